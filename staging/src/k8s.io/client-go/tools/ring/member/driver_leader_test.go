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
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/ring"
)

// noticesLeader is how late a process hears of a leader at most.
const noticesLeader = 8 * time.Second

// leaders hold the Lease one after another. Each runs what it signs that no ring works on.
type leaders struct {
	world *world
	dice  *dice

	lock    sync.Mutex
	holder  string
	terms   int64
	changed time.Time
}

func newLeaders(w *world) *leaders {
	l := &leaders{world: w, dice: newDice(w.seed, "leaders")}
	l.take(none("calm"))
	return l
}

// none is a leader that runs no controller of a ring.
func none(process string) string {
	controllers := []string{"*"}
	for _, c := range worldControllers {
		controllers = append(controllers, "-"+c)
	}
	return ring.SignLeader(process, controllers)
}

func (l *leaders) take(holder string) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.holder = holder
	l.terms++
	l.changed = time.Now()
}

func (l *leaders) newest() (holder string, term int64) {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.holder, l.terms
}

// explains says why the ring does not work on a controller.
func (l *leaders) explains(controller string) string {
	l.lock.Lock()
	defer l.lock.Unlock()
	if (ring.Leader{Holder: l.holder}).Runs(controller) {
		return "the leader runs the controller"
	}
	if l.terms > 1 && time.Since(l.changed) < noticesLeader+4*time.Second {
		return "the leader has changed"
	}
	return ""
}

// run has leaders come and go until the world calms down.
func (l *leaders) run() {
	defer l.take(none("calm"))
	for {
		select {
		case <-time.After(l.dice.upTo(15 * time.Second)):
		case <-l.world.calm:
			return
		}
		controllers := []string{"*"}
		var runs []string
		for _, c := range worldControllers {
			if l.dice.chance(0.5) {
				controllers = append(controllers, "-"+c)
			} else {
				runs = append(runs, c)
			}
		}
		l.take(ring.SignLeader(fmt.Sprintf("leader%d", l.dice.below(1000)), controllers))
		holder, _ := l.newest()
		l.world.chronicle.note(nil, "%s leads", holder)
		l.lead(holder, runs)
		if l.dice.chance(0.5) {
			l.take("")
		}
	}
}

// lead is a leader's term. It begins to work once no record says that its instance does.
func (l *leaders) lead(holder string, runs []string) {
	over, end := context.WithTimeout(context.Background(), l.dice.upTo(40*time.Second))
	defer end()
	for rules := false; ; {
		select {
		case <-time.After(l.dice.upTo(100 * time.Millisecond)):
		case <-over.Done():
			l.rule(nil)
			return
		case <-l.world.calm:
			l.rule(nil)
			return
		}
		if view := l.world.view(); len(runs) == 0 || !rules && slices.ContainsFunc(runs, func(c string) bool { return len(view.WorkingOn(c)) > 0 }) {
			continue
		}
		rules = true
		l.rule(runs)
		l.work(holder, task{pick(l.dice, runs), pick(l.dice, l.world.keys)})
	}
}

// rule says which controllers the leader works on.
func (l *leaders) rule(controllers []string) {
	t := &l.world.truth
	t.lock.Lock()
	defer t.lock.Unlock()
	clear(t.led)
	for _, c := range controllers {
		t.led[c] = true
	}
}

// work is one piece of the leader's work.
func (l *leaders) work(holder string, what task) {
	w := l.world
	w.registry.lock.Lock()
	w.truth.lock.Lock()
	for p, uid := range w.truth.working[what] {
		if p.trusts() && w.registeredLocked(uid) {
			w.violation("the leader and %v work on %v at once", p, what)
		}
	}
	w.truth.lock.Unlock()
	w.registry.lock.Unlock()
	time.Sleep(l.dice.upTo(10 * time.Millisecond))
	w.truth.lock.Lock()
	defer w.truth.lock.Unlock()
	w.truth.sequence++
	w.truth.stored[what][types.UID(holder)] = w.truth.sequence
}

// leadership is what a process knows of the leader.
type leadership struct {
	process *process

	lock   sync.Mutex
	holder string
	term   int64
}

func newLeadership(p *process) *leadership { return &leadership{process: p} }

// Leader implements Leadership.
func (l *leadership) Leader() (ring.Leader, bool) {
	l.lock.Lock()
	defer l.lock.Unlock()
	return ring.Leader{Holder: l.holder}, l.term > 0
}

// Notify implements Leadership.
func (l *leadership) Notify(ctx context.Context, changed func()) {
	w := l.process.world
	for {
		changed()
		holder, term := w.leaders.newest()
		lag := l.process.dice.leader.upTo(time.Second)
		if l.disturbed() && l.process.dice.leader.chance(0.1) {
			lag = l.process.dice.leader.upTo(noticesLeader)
		}
		select {
		case <-time.After(lag):
		case <-ctx.Done():
			return
		}
		l.see(holder, term)
	}
}

// Read implements Leadership.
func (l *leadership) Read(ctx context.Context) (ring.Leader, error) {
	d := l.process.dice.leader
	out, back := l.process.world.leaseReads+d.upTo(5*time.Millisecond), d.upTo(5*time.Millisecond)
	if l.disturbed() {
		switch draw := d.below(100); {
		case draw < 10:
			return ring.Leader{}, errors.New("no answer")
		case draw < 30:
			out = d.upTo(3 * time.Second)
		case draw < 50:
			back = d.upTo(3 * time.Second)
		}
	}
	time.Sleep(out)
	holder, term := l.process.world.leaders.newest()
	time.Sleep(back)
	if err := ctx.Err(); err != nil {
		return ring.Leader{}, err
	}
	l.see(holder, term)
	return ring.Leader{Holder: holder}, nil
}

func (l *leadership) disturbed() bool {
	w := l.process.world
	return w.faults.leases && w.disturbed.Load()
}

// see keeps what is newer than what it has seen.
func (l *leadership) see(holder string, term int64) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if term >= l.term {
		l.holder, l.term = holder, term
	}
}
