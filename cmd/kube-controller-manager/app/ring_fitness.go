/*
Copyright The Ringmaster Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package app

import "time"

const (
	// undoneLimit is how long nobody may run a controller until the leader's term ends, so the
	// next leader runs it. The record of a replica that crashes as it starts is there for some
	// seconds and a lease, of 15 s. Where a leader dies, nobody works for as long.
	undoneLimit = 20 * time.Second
	// lateLimit is how long so where the ring only waits for this process's own record: a
	// process that is slow to register would be as slow after an exit.
	lateLimit = time.Minute
	// shareLimit is how long a leader goes on that runs all that it should, and something that
	// the rings could share. Nothing is undone meanwhile, so it can be long: twice the longest
	// pause that a kubelet makes before it starts a process that crashes again and again.
	shareLimit = 10 * time.Minute
	// unfitLimit is how long a candidate may stand with what would leave a controller undone. It
	// is also by how much a candidate is ahead of a leader in leaving one to a ring, so the term
	// that begins as another ends does not end for the same reason.
	unfitLimit = 2 * time.Second
)

// fit is how the set of controllers that a process has signed compares with what it would sign
// now.
type fit struct {
	// lacks says that a leader with that set leaves a controller undone: it is not in the set,
	// and no ring shares it.
	lacks bool
	// late says that a ring will share it once this process is registered there.
	late bool
	// spares says that the rings could share a controller of the set.
	spares bool
}

// fitness judges for how long a set may go on. It has no clock.
//
// While a replica that does not list a controller has a record, the ring does not work on that.
// A replica that crashes again and again must not end a term each time. So what counts is for
// how much longer a controller was undone than all were done since: a short visit ends no term,
// and none is undone for more than half of the time in the long run. Once the leader runs it, a
// term ends for the ring's sake only when no such replica was there for shareLimit. So a loop
// ends one term at most, and so does a change that lasts.
type fitness struct {
	// fit is what was so as of at.
	fit
	at time.Time
	// undone is how long some controller was undone, less how long none was since. More than
	// lateLimit makes no difference, and would take as long to be forgotten.
	undone time.Duration
	// sparing is since when the rings could share one.
	sparing time.Time
}

// observe takes what is so from now on. It returns whether the set has a limit, and how long
// it may go on if that stays so.
func (f *fitness) observe(now time.Time, is fit, leads bool) (left time.Duration, limited bool) {
	if passed := now.Sub(f.at); f.lacks {
		f.undone = min(f.undone+passed, lateLimit)
	} else {
		f.undone = max(0, f.undone-passed)
	}
	if is.spares && !f.spares {
		f.sparing = now
	}
	f.fit, f.at = is, now
	undone, share := unfitLimit, shareLimit-unfitLimit
	if leads {
		undone, share = undoneLimit, shareLimit
	}
	if is.late {
		undone = lateLimit
	}
	switch {
	case is.lacks && is.spares:
		return min(undone-f.undone, share-now.Sub(f.sparing)), true
	case is.lacks:
		return undone - f.undone, true
	case is.spares:
		return share - now.Sub(f.sparing), true
	}
	return 0, false
}
