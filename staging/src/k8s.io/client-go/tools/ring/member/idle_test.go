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

package member

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/hashkey"
)

// idles waits until the record says that the instance may be working, and why it does not.
func (i *instance) idles(reason string) {
	i.t.Helper()
	eventually(i.t, "the record says: "+reason, func() bool {
		state := i.state()
		return state.Working && state.Reason == reason && !i.door().ServesAll()
	})
}

func TestTheRecordSaysWhyAnInstanceIsKeptFromWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &election{}
		e.lead(withoutIt, true)
		failure := errors.New("no quorum")
		i := under(t, newRegistry(t), e).slow()
		e.onRead = func() error {
			e.lock.Lock()
			defer e.lock.Unlock()
			return failure
		}
		begin := time.Now()
		i.start()
		// The gate is shut by that, too: no source has anything.
		i.idles(reasonNoLeader)
		if waited := time.Since(begin); waited < idleTold {
			t.Errorf("it was said after %v", waited)
		}
		e.lock.Lock()
		failure = nil
		e.lock.Unlock()
		i.idles(reasonStale)
		i.sources[1].wait(strings.Repeat("a list; ", 200))
		waits := fmt.Sprintf("%.*s", maxAwaited, "sets waits for "+strings.Repeat("a list; ", 200))
		i.idles(waits)
		if s := i.Snapshot(); !strings.HasPrefix(s.Sources[1].Waits, "a list; ") || s.Sources[0].Waits != "" {
			t.Errorf("the sources are shown as %+v", s.Sources)
		}
		i.sources[1].wait("")
		i.idles(reasonStale)

		answered := map[*question]bool{}
		eventually(t, "all answers", func() bool {
			for n := range i.sources {
				s := i.sources[n]
				for _, q := range s.asked() {
					if !answered[q] {
						answered[q] = true
						close(q.answer)
					}
				}
				s.hold(hashkey.All())
			}
			return i.door().ServesAll()
		})
		eventually(t, "no reason", func() bool { return i.state().Working && i.state().Reason == "" })
	})
}

// Between two controllers that change hands, or ranges, an instance is idle for a moment.
func TestAShortWaitIsNotToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInstance(t, newRegistry(t))
		ctx := testContext(t)
		term := i.registered(ctx)
		term.decided(ctx)
		open := hashkey.All()
		begin := time.Now()
		term.duties.states[0].Working = true
		for _, step := range []struct {
			after time.Duration
			open  hashkey.Ranges
			wake  time.Duration
			says  bool
		}{
			{0, open, idleTold, false},
			{idleTold - 1, open, 1, false},
			{idleTold, nil, 0, false},
			{idleTold + 1, open, idleTold, false},
			{2*idleTold + 1, open, 0, true},
		} {
			if wake := term.sayIdle(begin.Add(step.after), step.open, nil, nil); wake != step.wake || (term.duties.states[0].Reason != "") != step.says {
				t.Errorf("after %v: wakes after %v, says %q", step.after, wake, term.duties.states[0].Reason)
			}
		}
		// Who owns nothing has nothing to work on.
		i.door().set(false)
		term.duties.states[0].Reason = ""
		if wake := term.sayIdle(begin, nil, nil, nil); wake != 0 {
			t.Errorf("owns nothing, and wakes after %v", wake)
		}
	})
}
