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
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/utils/clock"
)

// barredTime is how long no controller sends a request after an API server without the fence
// has answered.
const barredTime = 30 * time.Second

// errNotRenewed is why a request is not sent, or given up.
var errNotRenewed = fmt.Errorf("this instance could not renew its ControllerInstance in time, so another may own the object now (%s)", fence.CauseFenced)

// credential is in whose name an instance works and sends requests, and until when. It is safe for
// concurrent use.
type credential struct {
	clock clock.WithDelayedExecution

	lock sync.Mutex
	// self is the registration that the deadline belongs to. It names no controller.
	self fence.Identity
	// deadline is when the instance stops believing that it is alive, on the
	// monotonic clock: no work begins at or after it. Each renewal moves it.
	deadline time.Time
	// grace is how long after the deadline the record lives at least, so that nobody else owns its
	// keys.
	grace time.Duration
	// believing ends when the grace has passed without a renewal, or the credential expires: so do
	// the requests that are under way then.
	believing context.Context
	lapse     context.CancelFunc
	timer     clock.Timer
	// turnedAway says that the deadline has kept out work that the ranges would
	// have let in.
	turnedAway bool
	// refused is told who has refused a write.
	refused func(by string)
	// barred says why no request of a controller may be sent before that time.
	barred      string
	barredUntil time.Time
	// onBar is told when it has been barred.
	onBar func(reason string)
}

func newCredential(c clock.WithDelayedExecution) *credential {
	return &credential{clock: c, refused: func(string) {}, onBar: func(string) {}}
}

// Deadline returns the instant from which on no work begins and no request of this instance is
// sent. Renewals move it.
func (c *credential) Deadline() time.Time {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.deadline
}

// lets says whether the deadline lets work begin now. If not, extend tells that it was turned away.
func (c *credential) lets(now time.Time) bool {
	c.lock.Lock()
	defer c.lock.Unlock()
	lets := now.Before(c.deadline)
	c.turnedAway = c.turnedAway || !lets
	return lets
}

// begin lets requests be sent in the name of a new registration, until deadline, and be under way
// for a grace after that: an API server may have charged a quota for what they create. Nothing that
// began under another registration may be in work.
func (c *credential) begin(self fence.Identity, deadline time.Time, grace time.Duration) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.self, c.grace = self, grace
	c.turnedAway = false
	c.believeLocked(deadline)
}

// believeLocked sets the deadline.
func (c *credential) believeLocked(deadline time.Time) {
	c.stopLocked()
	c.deadline = deadline
	if c.believing == nil || c.believing.Err() != nil {
		c.believing, c.lapse = context.WithCancel(context.Background())
	}
	c.timer = c.clock.AfterFunc(deadline.Add(c.grace).Sub(c.clock.Now()), func() {
		c.lock.Lock()
		defer c.lock.Unlock()
		if c.deadline.Equal(deadline) {
			c.lapse()
		}
	})
}

func (c *credential) stopLocked() {
	if c.timer != nil {
		c.timer.Stop()
	}
}

// raise lets requests carry that epoch from now on. It does nothing once the credential has
// expired or belongs to another registration.
func (c *credential) raise(self fence.Identity, epoch int64) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if isSame(c.self, self) {
		c.self.Epoch = max(c.self.Epoch, epoch)
	}
}

// isSame says whether both are of one registration, whatever their epochs.
func isSame(a, b fence.Identity) bool { return a.Name == b.Name && a.UID == b.UID }

// identity returns in whose name requests are sent now, and whether there is anybody.
func (c *credential) identity() (self fence.Identity, ok bool) {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.self, c.self.Name != ""
}

// admit lets a request be sent now, in the name of self and with a context that ends when
// the request may no longer be under way: when the grace after the deadline passes without a
// renewal, or the credential expires. It fails if that has happened. The caller must call cancel
// when the request has ended.
func (c *credential) admit(ctx context.Context) (self fence.Identity, limited context.Context, cancel context.CancelFunc, err error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if !c.clock.Now().Before(c.deadline) {
		return fence.Identity{}, nil, nil, errNotRenewed
	}
	limited, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.believing, func() { end(errNotRenewed) })
	return c.self, limited, func() { stop(); end(nil) }, nil
}

// extend moves the deadline of the registration to t, unless it is later already. It
// does nothing once the credential has expired or belongs to another registration: an answer
// that comes late must not let requests out again. It reports whether work was turned
// away at the old deadline, so that it can be asked for again.
func (c *credential) extend(self fence.Identity, t time.Time) (turnedAway bool) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if !isSame(c.self, self) {
		return false
	}
	if t.After(c.deadline) {
		c.believeLocked(t)
	}
	turnedAway = c.turnedAway && c.clock.Now().Before(c.deadline)
	if turnedAway {
		c.turnedAway = false
	}
	return turnedAway
}

// expire gives up the requests under way: the instance's record is gone.
func (c *credential) expire() {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.self = fence.Identity{}
	c.deadline = time.Time{}
	c.stopLocked()
	if c.lapse != nil {
		c.lapse()
	}
}

// countRefused calls f for each write that is refused. f must not block.
func (c *credential) countRefused(f func(by string)) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.refused = f
}

func (c *credential) refuse(by string) {
	c.lock.Lock()
	refused := c.refused
	c.lock.Unlock()
	refused(by)
}

// bar lets no controller send a request for a while: an API server has carried this one out
// without judging it. Another such request begins the time anew.
func (c *credential) bar(request string) {
	c.lock.Lock()
	now := c.clock.Now()
	anew := !now.Before(c.barredUntil)
	c.barredUntil = now.Add(barredTime)
	if anew {
		c.barred = fmt.Sprintf("an API server without the feature gate ControllerRing has answered (%.256s); it is tried again every %v", request, barredTime)
	}
	reason, onBar := c.barred, c.onBar
	c.lock.Unlock()
	if anew {
		onBar(reason)
	}
}

// whyBarred says why no controller may send a request now; "" if each may.
func (c *credential) whyBarred() string {
	c.lock.Lock()
	defer c.lock.Unlock()
	if !c.clock.Now().Before(c.barredUntil) {
		return ""
	}
	return c.barred
}

// notifyBar calls f when it has been barred. f must not block.
func (c *credential) notifyBar(f func(reason string)) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.onBar = f
}
