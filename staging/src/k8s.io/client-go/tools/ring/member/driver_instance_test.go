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
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/balance"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// process is a member with all that it works with, and what has befallen it.
type process struct {
	*Member
	world   *world
	number  int
	place   string
	holder  string
	gate    *Gate
	sources []*informer
	dice    struct{ requests, watches, callbacks, leader *dice }
	// transport is what its requests to the registry use.
	transport transport
	// wanted tells the workers of a controller that it has acquired a range.
	wanted map[string]chan struct{}
	// killed is closed when it dies. stopping ends its Run in good order.
	killed   chan struct{}
	stopping context.CancelFunc
	// stalls says that its present watch is to get nothing any more.
	stalls atomic.Bool
	// registrations counts them.
	registrations atomic.Int32

	lock                 sync.Mutex
	died, stopped, ended time.Time
	resumed              chan struct{}
	hangsUntil           time.Time
	troubles             []*trouble
	standings            []standing
	claimed              map[task]bool
	late                 map[task]int
}

// String implements fmt.Stringer.
func (p *process) String() string { return fmt.Sprintf("process %d", p.number) }

// effect is what trouble keeps a process from.
type effect int

const (
	slowed   effect = 1 << iota // it does its part in handovers late
	silenced                    // it sends no renewal that is answered
	severed                     // what is on its way from or to it is lost, or late
)

// trouble is what has befallen a process for a while.
type trouble struct {
	process     *process
	why         string
	effect      effect
	from, until time.Time
}

// trouble begins. It lasts until it is ended.
func (p *process) trouble(why string, e effect) *trouble {
	p.lock.Lock()
	defer p.lock.Unlock()
	t := &trouble{process: p, why: why, effect: e, from: time.Now()}
	p.troubles = append(p.troubles, t)
	return t
}

func (t *trouble) end() { t.endAfter(0) }

func (t *trouble) endAfter(d time.Duration) {
	t.process.lock.Lock()
	defer t.process.lock.Unlock()
	t.until = time.Now().Add(d)
}

// troubled returns why the process was kept from something at any time from then to then; "" if it
// was not.
func (p *process) troubled(e effect, from, until time.Time) string {
	p.lock.Lock()
	defer p.lock.Unlock()
	for _, t := range slices.Backward(p.troubles) {
		if t.effect&e != 0 && !t.from.After(until) && (t.until.IsZero() || t.until.After(from)) {
			return t.why
		}
	}
	return ""
}

// start starts a process in that place.
func (w *world) start(place string, change ...func(*Config)) *process {
	w.lock.Lock()
	defer w.lock.Unlock()
	p := &process{
		world: w, number: len(w.processes), place: place, gate: NewGate(clock.RealClock{}),
		killed: make(chan struct{}), wanted: map[string]chan struct{}{}, claimed: map[task]bool{}, late: map[task]int{},
	}
	p.holder = fmt.Sprintf("%s_%d", place, p.number)
	p.dice.requests, p.dice.watches = newDice(w.seed, p.holder+" requests"), newDice(w.seed, p.holder+" watches")
	p.dice.callbacks, p.dice.leader = newDice(w.seed, p.holder+" callbacks"), newDice(w.seed, p.holder+" leader")
	var exits sync.Once
	cfg := Config{
		Client: &driverClient{process: p}, Ring: "workloads", HolderIdentity: p.holder, LeaseDuration: worldLease,
		Gate: p.gate, Controllers: map[string]Controller{}, Leadership: newLeadership(p),
		Workers: func(string) int { return worldWorkers },
		Heap:    newHeap(func() (uint64, uint64) { return 1 << 24, 1 }),
		Balance: func() *balance.Config { return &balance.Config{Settings: worldSettings} },
		Metrics: &registrations{process: p},
		Exit:    func(string) { exits.Do(p.exit) },
	}
	for _, name := range []string{"pods", "sets"} {
		s := newInformer(p, name)
		p.sources, cfg.Sources = append(p.sources, s), append(cfg.Sources, s)
	}
	for _, c := range worldControllers {
		p.wanted[c] = make(chan struct{}, worldWorkers)
		cfg.Controllers[c] = &drivenController{process: p, name: c}
	}
	for _, f := range change {
		f(&cfg)
	}
	m, err := New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	p.Member = m
	w.processes = append(w.processes, p)
	w.byHolder[p.holder] = p
	w.chronicle.of(p, "starts on %s", place)
	p.run()
	return p
}

// exit ends a process that has asked for that, and starts it again, as a kubelet does.
func (p *process) exit() {
	p.world.chronicle.of(p, "exits")
	p.world.running.Go(func() {
		p.kill()
		time.Sleep(time.Second)
		p.world.start(p.place)
	})
}

// worldSettings moves more, sooner, than the default, as histories are short and rings small.
var worldSettings = func() balance.Settings {
	settings := balance.Default
	settings.Seed, settings.Least, settings.Rate = 20, 4, 0.3
	settings.AfterLoss, settings.Back = 5*time.Second, 20*time.Second
	return settings
}()

func (p *process) run() {
	ctx, stopping := context.WithCancel(klog.NewContext(context.Background(), p.world.chronicle.logger(p)))
	p.stopping = stopping
	work, end := context.WithCancel(context.Background())
	for _, c := range worldControllers {
		for n := range worldWorkers {
			d := newDice(p.world.seed, fmt.Sprintf("%s %s %d", p.holder, c, n))
			p.world.running.Go(func() { p.work(work, c, d) })
		}
	}
	p.world.running.Go(func() {
		p.Run(ctx)
		end()
		p.lock.Lock()
		defer p.lock.Unlock()
		p.ended = time.Now()
	})
}

// stop asks the process to leave in good order.
func (p *process) stop() {
	p.lock.Lock()
	p.stopped = time.Now()
	p.lock.Unlock()
	p.world.chronicle.of(p, "is asked to stop")
	p.stopping()
}

// kill ends the process at once. What it has sent may still arrive.
func (p *process) kill() {
	p.lock.Lock()
	dead := !p.died.IsZero()
	if !dead {
		p.died = time.Now()
		close(p.killed)
	}
	p.lock.Unlock()
	p.stopping()
}

func (p *process) lives() bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.died.IsZero() && p.ended.IsZero()
}

// overAt is when the process has ended, or was killed before; zero: it has not.
func (p *process) overAt() time.Time {
	p.lock.Lock()
	defer p.lock.Unlock()
	if !p.died.IsZero() {
		return p.died
	}
	return p.ended
}

func (p *process) stoppedAt() time.Time {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.stopped
}

func (p *process) diedAt() time.Time {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.died
}

// trusts says whether its gate lets work begin in what it is open for.
func (p *process) trusts() bool { return p.lives() && time.Now().Before(p.gate.Deadline()) }

// believes says whether it does, and begins such work.
func (p *process) believes() bool { return p.trusts() && p.whenResumed() == nil }

// pause has the process do nothing for a while, as far as it can be had to: its clocks go on.
func (p *process) pause(lasts time.Duration) {
	p.lock.Lock()
	if p.resumed != nil {
		p.lock.Unlock()
		return
	}
	resumed := make(chan struct{})
	p.resumed = resumed
	p.lock.Unlock()
	p.trouble("it is paused", slowed|silenced|severed).endAfter(lasts)
	p.world.chronicle.of(p, "is paused for %v", lasts)
	time.AfterFunc(lasts, func() {
		p.lock.Lock()
		defer p.lock.Unlock()
		p.resumed = nil
		close(resumed)
	})
}

// whenResumed returns what is closed when the process goes on; nil: it is not paused.
func (p *process) whenResumed() <-chan struct{} {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.resumed
}

// thaw waits while the process is paused.
func (p *process) thaw() {
	for resumed := p.whenResumed(); resumed != nil; resumed = p.whenResumed() {
		select {
		case <-resumed:
		case <-p.killed:
			return
		}
	}
}

// hang has the next callbacks hang for as long.
func (p *process) hang(lasts time.Duration) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.hangsUntil = time.Now().Add(lasts)
}

// callback is what each call of a controller goes through.
func (p *process) callback(what string, ranges hashkey.Ranges) {
	p.thaw()
	p.lock.Lock()
	rest := time.Until(p.hangsUntil)
	p.lock.Unlock()
	if rest <= 0 {
		return
	}
	p.world.chronicle.of(p, "hangs for %v in %s of %v", rest, what, ranges)
	defer p.trouble("a callback hangs", slowed|silenced).end()
	select {
	case <-time.After(rest):
	case <-p.killed:
	}
}

// holds says whether the process's member is in that registration.
func (p *process) holds(r ring.Record) bool {
	self, ok := p.gate.identity()
	return ok && self.UID == r.UID
}

// registrations counts those of a process.
type registrations struct {
	noMetrics
	process *process
}

// Registered implements Metrics.
func (r *registrations) Registered() { r.process.registrations.Add(1) }

// drivenController is a controller of a process.
type drivenController struct {
	process *process
	name    string
}

// Prepare implements Controller.
func (c *drivenController) Prepare(r hashkey.Ranges) { c.process.callback("Prepare", r) }

// Acquired implements Controller.
func (c *drivenController) Acquired(_ context.Context, r hashkey.Ranges) {
	c.process.callback("Acquired", r)
	for range worldWorkers {
		select {
		case c.process.wanted[c.name] <- struct{}{}:
		default:
		}
	}
}

// Released implements Controller.
func (c *drivenController) Released(r hashkey.Ranges) {
	p := c.process
	if open := p.gate.For(c.name).serving().Intersect(r); !open.Empty() {
		p.world.violation("%v releases %v of the %s, for which its door is open", p, open, c.name)
	}
	p.callback("Released", r)
}
