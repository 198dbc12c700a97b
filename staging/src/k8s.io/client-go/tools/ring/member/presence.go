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
	"context"
	"errors"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/klog/v2"
)

// Presences opens presences: requests that are open for as long as the process lives. When it dies,
// its kernel ends them, and an API server that tracks presences removes the record soon.
type Presences interface {
	// Open opens a presence of the instance, for one of the reasons of fence.PresenceHeader, until
	// ctx ends. It returns once the server has answered: with ErrNoPresence if that opens
	// none; or with ErrUnanswered if it has not, and may have opened one.
	Open(ctx context.Context, self fence.Identity, why string) (Presence, error)
}

// Presence is one that is open.
type Presence interface {
	// Wait returns when it has ended, and whether the server has ended it in good order.
	Wait() (inOrder bool)
}

// ErrNoPresence says that the API server opens no presence: it is an older one, is set so, or
// refuses it.
var ErrNoPresence = errors.New("the API server opens no presence, so the death of this process is noticed when its lease ends")

// ErrUnanswered says that the API server was asked to open a presence and has not answered. It may
// have opened one, which it has seen, or will see, end.
var ErrUnanswered = errors.New("the API server has not answered")

const (
	// reopenPause is how long after a presence could not be opened it is tried again, hurryPause in
	// the first hurry after one has ended: a server that has seen the end waits for that long.
	reopenPause = time.Second
	hurryPause  = 100 * time.Millisecond
	hurry       = 2 * time.Second
	// hurriedRenewals is how often the record is renewed in that time, and lackingRenewals after it
	// until another is open: a server that stood still, or that a dead connection leads to, sees the
	// end late.
	hurriedRenewals = 500 * time.Millisecond
	lackingRenewals = time.Second
	// refusedPause is how long after a server has opened none it is tried again.
	refusedPause = time.Minute
)

// lapse is the last end of a presence.
type lapse struct {
	// since is when the presence ended, or may have: the server may have opened one that this process
	// gave up.
	since time.Time
	// over says that another is open since, or that there is no server that opens one.
	over bool
}

// bePresent keeps a presence open. Whenever one ends the record is renewed at once, and another is
// opened.
func (t *term) bePresent(ctx context.Context) {
	defer utilruntime.HandleCrashWithContext(ctx)
	logger := klog.FromContext(ctx)
	why, told := fence.PresenceFirst, false
	var ended time.Time
	defer t.showPresence(nil)
	end := func() {
		ended = t.cfg.Clock.Now()
		t.lapse.Store(&lapse{since: ended})
		select {
		case t.renewNow <- struct{}{}:
		default:
		}
	}
	for ctx.Err() == nil {
		opened := t.cfg.Clock.Now()
		presence, err := t.cfg.Presences.Open(ctx, t.self, why)
		pause := wait.Jitter(reopenPause, 0.5)
		switch {
		case err == nil:
			t.lapse.Store(&lapse{since: ended, over: true})
			t.showPresence(&PresenceState{Since: &opened})
			why = fence.PresenceLost
			if presence.Wait() {
				why = fence.PresenceNext
			}
			told = false
			t.showPresence(&PresenceState{Lacks: "the last one has ended"})
			// What is cut again and again is not opened again and again.
			if t.cfg.Clock.Since(opened) >= reopenPause {
				pause = 0
			}
			end()
		case errors.Is(err, ErrNoPresence):
			t.lapse.Store(&lapse{since: ended, over: true})
			pause = wait.Jitter(refusedPause, 0.5)
		case errors.Is(err, ErrUnanswered):
			end()
		case t.cfg.Clock.Since(ended) < hurry:
			pause = hurryPause
		}
		if err != nil {
			t.showPresence(&PresenceState{Lacks: err.Error()})
		}
		if err != nil && !told && ctx.Err() == nil {
			logger.Info("Has no presence", "err", err)
			told = true
		}
		select {
		case <-t.cfg.Clock.After(pause):
		case <-ctx.Done():
		}
	}
}

// pace returns how long after a renewal that is sent now the next one is.
func (t *term) pace(now time.Time) time.Duration {
	period := fence.RenewalPeriod(t.cfg.LeaseDuration)
	last := t.lapse.Load()
	switch {
	case last != nil && now.Add(hurriedRenewals).Sub(last.since) < hurry:
		return min(period, hurriedRenewals)
	case last != nil && !last.over:
		return min(period, lackingRenewals)
	}
	return period
}
