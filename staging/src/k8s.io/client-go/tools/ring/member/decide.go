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
	"time"

	"k8s.io/apimachinery/pkg/hashkey"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/ring"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// decide asks the roster and the machine, and carries out what they say, in the order of
// the fields of ring.RosterDecision and ring.Decision. It returns when to decide again though
// nothing happens; 0: never.
func (t *term) decide(ctx context.Context, leaving bool) time.Duration {
	defer utilruntime.HandleCrashWithContext(ctx)
	logger := klog.FromContext(ctx)
	if t.checkSources(ctx); t.diverged.Load() {
		t.lost = true
		return 0
	}
	t.release(ctx)
	now := t.cfg.Clock.Now()
	if own, ok := t.machine.View().Get(t.self.Name); ok {
		t.learn(own)
	}
	working := t.assign(ctx)
	d := t.next(now, leaving)
	if d.Gone {
		logger.Info("The instance's record is gone; will register anew")
		t.lost = true
		return 0
	}
	t.shut(logger, d.Open)
	t.setFollow(d.Follow)
	t.open(ctx, d.Open, d.Since)
	t.employ(ctx, working)
	if d.Phase != t.phase {
		logger.Info("Changed phase", "from", t.phase, "to", d.Phase, "owned", d.Owned)
		t.phase = d.Phase
	}
	// From here on requests carry the epoch, so that none can be sent with the last one once
	// the registry has it.
	t.cfg.Gate.raise(t.self, d.Report.Epoch)
	wake := t.sayIdle(now, d.Open, d.Owned.Minus(d.Follow), working)
	t.sayStuck(ctx, now)
	t.sayAwaited()
	t.show(now, &d)

	if d.Wake != 0 {
		wake = soonest(wake, max(d.Wake-now.Sub(t.epoch), time.Millisecond))
	}
	wake = soonest(wake, t.report(ctx, now, d))
	wake = soonest(wake, t.look(ctx, now, d))
	t.propose(ctx, now, d)
	if d.Write != nil && !t.writing && t.machine.View().Revision >= t.settled {
		if pause := t.refused.retryAt.Sub(now); pause > 0 && t.refused.of(d.Write) {
			return soonest(wake, pause)
		}
		t.write(ctx, *d.Write)
	}
	return wake
}

// next returns what the machine decides. Of the members of a process with a capacity one at a time
// may begin to fill its caches: what room that leaves is known once it is done.
func (t *term) next(now time.Time, leaving bool) ring.Decision {
	limited := t.cfg.Capacity() > 0
	heap := t.cfg.Heap
	if limited {
		heap.deciding.Lock()
		defer heap.deciding.Unlock()
	}
	d := t.machine.Consult(t.input(now, leaving), t.news.work.keys, func(r hashkey.Ranges) []int64 { return t.recentKeys(now, r) })
	if limited && !t.follow.Covers(d.Follow) {
		heap.fills(t.Member, true, now)
	}
	return d
}

// input is what the machine is told of this instance.
func (t *term) input(now time.Time, leaving bool) ring.Input {
	serving, config := t.cfg.Gate.serving(), t.cfg.Balance()
	return ring.Input{
		Now:       now.Sub(t.epoch),
		Leaving:   leaving,
		Reported:  t.news.stored.Report,
		Announced: t.news.announced(),
		Slow:      t.lasting(now, t.cfg.LeaseDuration/hangsPerLease),
		Stuck:     t.lasting(now, t.cfg.StepLimit),
		Room:      t.room(),
		Serving:   serving,
		Draining:  t.releasing.Union(t.voiding).Union(t.cfg.Gate.inWork().Minus(serving)),
		DryRun:    config != nil && config.DryRun,
	}
}

// recent are the keys of all objects in ranges at a time.
type recent struct {
	ranges hashkey.Ranges
	at     time.Time
	keys   []int64
}

// recentKeys returns the keys of all objects in ranges, at least, that the sources hold, or held a
// moment ago: each decision asks for them until what follows from it is in the log.
func (t *term) recentKeys(now time.Time, ranges hashkey.Ranges) []int64 {
	r := &t.recent
	if !r.ranges.Covers(ranges) || now.Sub(r.at) >= loadInterval {
		*r = recent{ranges, now, t.keys(ranges)}
	}
	return r.keys
}

// room returns how many objects more the process can hold; nil: any number.
func (t *term) room() *int64 {
	capacity := t.cfg.Capacity()
	if capacity == 0 {
		return nil
	}
	if n := &t.news; n.counted.Before(t.opened) || differs(n.stored.Weight, n.status.Weight, loadParts) {
		// What has been filled last is not counted yet.
		return ptr.To[int64](0)
	}
	if t.cfg.Heap.isFilling(t.Member, t.cfg.Clock.Now().Add(-fillSteps*t.cfg.StepLimit)) {
		return ptr.To[int64](0)
	}
	return ptr.To(capacity - t.cfg.Heap.total())
}

// shut shuts the gate for all but these keys.
func (t *term) shut(logger klog.Logger, allowed hashkey.Ranges) {
	serving := t.cfg.Gate.serving()
	lost := serving.Minus(allowed)
	if lost.Empty() {
		return
	}
	t.cfg.Gate.set(serving.Intersect(allowed))
	t.releasing = t.releasing.Union(lost)
	logger.Info("Shut the gate", "ranges", lost, "revision", t.machine.View().Revision)
	t.again()
}

// setFollow has all sources follow these keys.
func (t *term) setFollow(follow hashkey.Ranges) {
	if follow.Equal(t.follow) {
		return
	}
	t.readiness.forget(hashkey.All().Minus(follow))
	t.follow = follow
	for _, s := range t.cfg.Sources {
		s.SetRanges(follow)
	}
}

// open opens the gate for those of these keys that all sources hold as of a moment after the log
// has come to revision since. It waits for none of the others.
func (t *term) open(ctx context.Context, allowed hashkey.Ranges, since int64) {
	serving := t.cfg.Gate.serving()
	// What is void only once the controllers have been told opens after that.
	gain := t.ready(ctx, allowed.Minus(serving).Minus(t.voiding), since)
	if gain.Empty() {
		return
	}
	t.releasing = t.releasing.Minus(gain)
	t.prepare(gain)
	t.cfg.Gate.set(serving.Union(gain))
	klog.FromContext(ctx).Info("Opened the gate", "ranges", gain, "revision", since)
	t.readiness.forget(gain)
	t.opened = t.cfg.Clock.Now()
	t.acquired(ctx, gain)
	// The next decision says what phase follows from it.
	t.again()
}

// release tells the controllers, beside the deciding goroutine, of ranges whose last work has
// ended, and each of the end of its own.
func (t *term) release(ctx context.Context) {
	logger := klog.FromContext(ctx)
	for c, told := range t.duties.releasing {
		if told || t.cfg.Gate.For(c).busy() > 0 {
			continue
		}
		t.duties.releasing[c] = true
		t.aside(ctx, func() { t.cfg.Controllers[c].Released(hashkey.All()) }, func() {
			delete(t.duties.releasing, c)
			logger.Info("Drained the controller", "controller", c)
		})
	}
	if t.releasing.Empty() {
		return
	}
	if busy := t.cfg.Gate.busyIn(t.releasing); len(busy) > 0 {
		t.last = busy
		return
	}
	released, last := t.releasing, t.last
	// What is known of them may be older than the work that has just ended.
	t.readiness.forget(released)
	t.releasing, t.voiding, t.last = nil, t.voiding.Union(released), nil
	t.aside(ctx, func() {
		for _, c := range t.cfg.Controllers {
			c.Released(released)
		}
	}, func() {
		t.voiding = t.voiding.Minus(released)
		logger.Info("Drained", "ranges", released, "last", last)
	})
}
