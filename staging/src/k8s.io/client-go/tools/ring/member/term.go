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
	"sync"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/klog/v2"
)

// term is one registration of a member, from its creation to its loss.
type term struct {
	*Member
	// self names the registration, at epoch 0 and for no controller.
	self fence.Identity
	// answered is when the newest renewal that was answered was sent; the creation counts. It
	// belongs to the goroutine that renews.
	answered time.Time

	// events carries what happened to the one goroutine that decides.
	events chan func()
	// kick asks that goroutine to decide again.
	kick chan struct{}

	lock sync.Mutex
	// round is when the deciding goroutine last came round; zero: it has not begun.
	round time.Time

	// The fields below belong to the deciding goroutine.
	machine   *ring.Machine
	duties    duties
	observer  *observer
	phase     shardingv1alpha1.InstancePhase
	follow    hashkey.Ranges
	releasing hashkey.Ranges
	// last are the controllers that were last seen to work in releasing.
	last []string
	// settled is the revision that the log must have reached before the next
	// write: the instance's own last one.
	settled int64
	writing bool
	refused refusal
	news    news
	dryRun  dryRun
	heavy   heavy
	lookout lookout
	lost    bool
	ready   readiness
	// idleSince is since when the instance has been kept from work that it may do; zero: it is not.
	idleSince time.Time
}

func (t *term) run(ctx context.Context) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "instance", t.self.Name)
	logger.Info("Registered on the ring", "leaseDuration", t.cfg.LeaseDuration)
	t.cfg.Metrics.Registered()
	defer t.cfg.Metrics.State("", 0)
	// Leaving takes requests of its own, so ctx only starts it.
	work, cancel := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), logger))
	var wg sync.WaitGroup
	defer func() {
		t.cfg.Gate.expire()
		t.showEnd()
		cancel()
		t.drain(ctx)
		t.cfg.Gate.notify(func() {})
		t.cfg.Gate.notifyBar(func(string) {})
		wg.Wait()
		for name, c := range t.cfg.Controllers {
			c.Released(hashkey.All())
			t.cfg.Metrics.Working(name, false)
		}
	}()
	t.cfg.Gate.notify(t.again)
	t.cfg.Gate.notifyBar(func(reason string) {
		logger.Error(nil, "Stops working: an API server without the feature gate ControllerRing does not refuse what an instance may not write. Turn it on in all API servers behind this address, and let no proxy drop the header from their answers", "header", fence.Header, "reason", reason)
		t.again()
	})
	for _, s := range t.cfg.Sources {
		wg.Go(func() { t.forward(work, s.HeldChanged()) })
	}
	if t.cfg.Leadership != nil {
		wg.Go(func() { t.cfg.Leadership.Notify(work, t.again) })
	}
	t.comeRound()
	wg.Go(func() { t.renew(work) })
	from := t.machine.View().Revision
	wg.Go(func() { t.readLog(work, from) })

	leaving := ctx.Done()
	var giveUp <-chan time.Time
	for !t.lost {
		t.comeRound()
		wake := t.decide(work, ctx.Err() != nil)
		if t.lost {
			return
		}
		if self, _ := t.machine.View().Get(t.self.Name); self.Deleting && giveUp == nil {
			giveUp = t.cfg.Clock.After(t.cfg.LeaseDuration)
		}
		select {
		case f := <-t.events:
			f()
			// What is there already is taken before the next decision.
			for len(t.events) > 0 {
				(<-t.events)()
			}
		case <-t.kick:
		case <-t.cfg.Clock.After(soonest(wake, t.turn())):
		case <-leaving:
			leaving = nil
			if giveUp == nil {
				giveUp = t.cfg.Clock.After(t.cfg.LeaseDuration)
			}
		case <-giveUp:
			logger.Info("Could not leave the ring in time; the record will expire")
			return
		}
	}
}

// turn is how often the deciding goroutine comes round though nothing happens.
func (t *term) turn() time.Duration {
	return min(t.cfg.LeaseDuration/hangsPerLease/2, loadInterval)
}

func (t *term) comeRound() {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.round = t.cfg.Clock.Now()
}

func (t *term) lastRound() time.Time {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.round
}

// soonest returns the shorter of two pauses; 0 is none.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return a + b
	}
	return min(a, b)
}

// drain waits for work that is still under way. Without a deadline to believe in, its
// requests fail, so it ends soon. However late it ends, it must not see the next term,
// in whose name its requests would be sent. Only a member that will have no next term,
// since ctx has ended, stops waiting after a lease.
func (t *term) drain(ctx context.Context) {
	leaving := ctx.Done()
	var limit <-chan time.Time
	for t.cfg.Gate.Busy(hashkey.All()) > 0 {
		select {
		case <-t.kick:
		case <-leaving:
			leaving, limit = nil, t.cfg.Clock.After(t.cfg.LeaseDuration)
		case <-limit:
			return
		}
	}
}

// again asks for a new decision.
func (t *term) again() {
	select {
	case t.kick <- struct{}{}:
	default:
	}
}

// forward asks for a new decision whenever changed has something.
func (t *term) forward(ctx context.Context, changed <-chan struct{}) {
	for {
		select {
		case <-changed:
			t.again()
		case <-ctx.Done():
			return
		}
	}
}

// lose ends the term, as something other than the log says that the record is gone.
func (t *term) lose(logger klog.Logger, reason error) {
	if t.lost {
		return
	}
	logger.Info("The instance's record is gone; will register anew", "reason", reason.Error())
	t.observer.fenced("The record is gone while the process lives; it joins anew")
	t.lost = true
}

// post hands f to the deciding goroutine.
func (t *term) post(ctx context.Context, f func()) {
	select {
	case t.events <- f:
	case <-ctx.Done():
	}
}
