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
	"sync/atomic"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/klog/v2"
)

// maxRemoval is how long a record is tried to be removed.
const maxRemoval = 5 * time.Second

// lastWordLimit is how long a term whose record is lost waits for the log to show it.
const lastWordLimit = time.Second

// term is one registration of a member, from its creation to its loss.
type term struct {
	*Member
	// self names the registration, at epoch 0 and for no controller.
	self fence.Identity
	// answered is when the newest renewal that was answered was sent; the creation counts. It
	// belongs to the goroutine that renews.
	answered time.Time
	// renewNow has that goroutine renew the record at once, and lapse tells it how often then; nil:
	// no presence has ended.
	renewNow chan struct{}
	lapse    atomic.Pointer[lapse]

	// events carries what happened to the one goroutine that decides.
	events chan func()
	// kick asks that goroutine to decide again.
	kick chan struct{}

	lock sync.Mutex
	// round is when the deciding goroutine last came round; zero: it has not begun.
	round time.Time
	// heard is when the watch of the registry last told something, unwatch ends it.
	heard   time.Time
	unwatch context.CancelFunc

	// The fields below belong to the deciding goroutine.
	machine  ring.Decider
	duties   duties
	observer *observer
	phase    shardingv1alpha1.InstancePhase
	follow   hashkey.Ranges
	// releasing are the keys that the gate was shut for and whose last work has not been seen to
	// end, voiding those whose controllers are being told that it has.
	releasing, voiding hashkey.Ranges
	// opened is when the gate was last opened for something.
	opened time.Time
	// last are the controllers that were last seen to work in releasing.
	last []string
	// queueing is what each controller is being told of, and is to be told of next. turns is full
	// while one is.
	queueing map[string]*queueing
	turns    chan struct{}
	// recent are the keys that were looked up last.
	recent recent
	// beside is what goes on beside the deciding goroutine for the controllers.
	beside sync.WaitGroup
	// settled is the revision that the log must have reached before the next
	// write: the instance's own last one.
	settled int64
	writing bool
	refused refusal
	news    news
	dryRun  dryRun
	heavy   heavy
	stuck   stuck
	lookout lookout
	// lost says that the term ends, left that it has deleted its record itself.
	lost, left bool
	// buried says that the log has shown the end of the record.
	buried bool
	// gaveUp says that the term has ended though its record may be there still, which would keep its
	// range: it had no lease any more when it was renewed, or the server stores no news of it.
	gaveUp    bool
	readiness readiness
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
		if t.lost && !t.left {
			t.lastWord()
		}
		t.keep(ctx)
		cancel()
		t.drain(ctx)
		if t.gaveUp {
			t.remove(ctx)
		}
		t.cfg.Gate.notify(func() {})
		t.cfg.Gate.notifyBar(func(string) {})
		wg.Wait()
		t.beside.Wait()
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
	if t.cfg.Presences != nil {
		wg.Go(func() { t.bePresent(work) })
	}
	view := t.machine.View()
	wg.Go(func() { t.readLog(work, view.Revision) })
	if _, off := view.BalanceOff(); off {
		wg.Go(func() { t.turnBalanceOff(work, t.self) })
	}

	leaving := ctx.Done()
	var giveUp <-chan time.Time
	for !t.lost {
		t.comeRound()
		wake := t.decide(work, ctx.Err() != nil)
		if t.lost {
			return
		}
		if self, _ := t.machine.View().Get(t.self.Name); self.Deleting && giveUp == nil {
			// In no hurry, it waits as long as a donor for the caches of whoever takes over.
			giveUp = t.cfg.Clock.After(fillSteps*t.cfg.StepLimit + t.cfg.LeaseDuration)
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
			giveUp = t.cfg.Clock.After(t.cfg.LeaseDuration)
		case <-giveUp:
			logger.Info("Could not leave the ring in time; the record will expire")
			return
		}
	}
}

// keep keeps for the next registration what the caches hold: nothing is listed anew that it is
// given back. Nor is what they were still to be filled with, as by the loss of others that have
// lost their records at the same time. One that is drained asks for nothing.
func (t *term) keep(ctx context.Context) {
	if !t.drained && ctx.Err() == nil {
		t.setFollow(t.held(t.follow))
		t.Member.held = t.follow
	} else {
		t.Member.held = nil
	}
	t.Member.follow = t.follow
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
// in whose name its requests would be sent. After a lease the process is asked to exit. Only a
// member that will have no next term, since ctx has ended, stops waiting after a lease.
func (t *term) drain(ctx context.Context) {
	leaving, late := ctx.Done(), t.cfg.Clock.After(t.cfg.LeaseDuration)
	var limit <-chan time.Time
	for t.cfg.Gate.Busy(hashkey.All()) > 0 {
		select {
		case <-t.kick:
		case <-late:
			t.exit(ctx)
		case <-leaving:
			leaving, limit = nil, t.cfg.Clock.After(t.cfg.LeaseDuration)
		case <-limit:
			return
		}
	}
}

// exit asks the process to exit, as work has outlived the record by a lease.
func (t *term) exit(ctx context.Context) {
	oldest := t.cfg.Gate.lasts(t.cfg.Clock.Now(), 0)
	if len(oldest) == 0 {
		return
	}
	reason := fmt.Sprintf("the instance's record has been gone for %v, and work of %s on %s goes on", t.cfg.LeaseDuration, oldest[0].controller, t.describe(oldest[0].key))
	klog.FromContext(ctx).Error(nil, "Does not register anew while work goes on that began before", "reason", reason)
	if t.cfg.Exit != nil {
		t.cfg.Exit(reason)
	}
}

// lastWord waits a moment for the log to show the end of the record: somebody may have drained the
// instance, or taken that back, and its next record is to say so.
func (t *term) lastWord() {
	late := t.cfg.Clock.After(lastWordLimit)
	for !t.buried {
		select {
		case f := <-t.events:
			f()
		case <-late:
			return
		}
	}
}

// remove removes the record, under which no work goes on. If that fails, it ends with its lease, or
// the API servers remove it.
func (t *term) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(t.cfg.LeaseDuration/hangsPerLease, maxRemoval))
	defer cancel()
	if err := t.delete(ctx, t.self); err != nil {
		klog.FromContext(ctx).Error(err, "Could not remove the record that the instance has given up", "instance", t.self.Name)
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
