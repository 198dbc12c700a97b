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

package ring

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
)

// world is a registry with its log, and instances that read it at their own pace.
// Nothing in it is concurrent: a seed gives one history, which a failure prints.
// Its rings are larger than the exploration's, its histories longer, and its keys
// lie anywhere.
type world struct {
	t       *testing.T
	rand    *rand.Rand
	log     []entry
	records map[string]Record
	actors  []*actor
	writes  []*flight
	history []string
	// grantEarly, a broken rule, lets a donor write without having drained.
	grantEarly bool
}

type entry struct {
	revision int64
	record   Record
	deleted  bool
}

// flight is a write that has been sent. It may be applied late, even after its
// sender's death, and its answer may be lost.
type flight struct {
	from *actor
	Write
}

type actor struct {
	name    string
	machine *Machine
	read    int
	now     time.Duration
	leaving bool
	dead    bool
	flying  bool
	settled int64
	serving hashkey.Ranges
	// busy holds keys whose work has not ended though the gate may be shut.
	busy   hashkey.Ranges
	follow hashkey.Ranges
	held   hashkey.Ranges
	heldAt int64
	phase  shardingv1alpha1.InstancePhase
}

func newWorld(t *testing.T, seed int64) *world {
	return &world{t: t, rand: rand.New(rand.NewSource(seed)), records: map[string]Record{}}
}

func (w *world) note(format string, args ...any) {
	w.history = append(w.history, fmt.Sprintf(format, args...))
}

func (w *world) revision() int64 { return int64(len(w.log)) }

func (w *world) put(r Record) {
	r.Revision = w.revision() + 1
	w.records[r.Name] = r
	w.log = append(w.log, entry{revision: r.Revision, record: r})
}

func (w *world) remove(name string) {
	r := w.records[name]
	delete(w.records, name)
	r.Revision = w.revision() + 1
	w.log = append(w.log, entry{revision: r.Revision, record: r, deleted: true})
}

func (w *world) join() *actor {
	a := &actor{name: fmt.Sprintf("i%d", len(w.actors))}
	w.put(Record{Name: a.name, UID: types.UID(a.name), Phase: shardingv1alpha1.InstanceInit})
	var all []Record
	for _, r := range w.records {
		all = append(all, r)
	}
	a.machine = NewMachine(a.name, NewView(w.revision(), all...), Limits{Step: 30 * time.Second, Leave: 3 * time.Second})
	a.read = len(w.log)
	w.actors = append(w.actors, a)
	w.note("%s joins", a.name)
	return a
}

// decide runs the instance's machine once and carries out what it says.
func (w *world) decide(a *actor) {
	a.now += 10 * time.Millisecond
	d := a.machine.Decide(Input{
		Now:     a.now,
		Leaving: a.leaving,
		Serving: a.serving,
		Idle: func(r hashkey.Ranges) bool {
			return w.grantEarly || a.busy.Minus(a.serving).Intersect(r).Empty() && a.serving.Intersect(r).Empty()
		},
		Keys: func(r hashkey.Ranges) []int64 {
			var keys []int64
			for _, key := range testKeys {
				if r.Contains(key) {
					keys = append(keys, key)
				}
			}
			return keys
		},
	})
	if d.Gone {
		w.note("%s is out of the list", a.name)
		a.dead, a.serving, a.busy = true, nil, nil
		return
	}
	a.serving = a.serving.Intersect(d.Open)
	a.follow = d.Follow
	a.held = a.held.Intersect(d.Follow)
	if gain := d.Open.Minus(a.serving); !gain.Empty() && a.held.Covers(gain) && a.heldAt >= d.Since {
		a.serving = a.serving.Union(gain)
		a.busy = a.busy.Union(gain)
		w.note("%s opens its gate for %v", a.name, gain)
	}
	if r, ok := w.records[a.name]; ok && (r.Phase != d.Phase || !r.Cached.Equal(a.held)) {
		r.Phase, r.Cached, r.Workloads = d.Phase, a.held, int64(d.Owned.Width()>>50)
		w.put(r)
	}
	if d.Write != nil && !a.flying && a.machine.View().Revision >= a.settled {
		a.flying = true
		w.writes = append(w.writes, &flight{from: a, Write: *d.Write})
		w.note("%s sends %q for %s", a.name, d.Write.Reason, d.Write.Name)
	}
}

func (w *world) deliver(a *actor) {
	e := w.log[a.read]
	a.read++
	if e.deleted {
		a.machine.Remove(e.record.Name, e.revision)
	} else {
		a.machine.Apply(e.record)
	}
}

// land applies a write that was under way, or refuses it.
func (w *world) land(i int) {
	f := w.writes[i]
	w.writes = append(w.writes[:i], w.writes[i+1:]...)
	f.from.flying = false
	r, ok := w.records[f.Name]
	if !ok || r.UID != f.UID || !f.Delete && r.Revision != f.Revision {
		w.note("%s of %s conflicts", f.Reason, f.from.name)
		return
	}
	if f.Delete {
		w.remove(f.Name)
	} else {
		r.Key, r.Next, r.Donor = f.Key, f.Next, f.Donor
		w.put(r)
	}
	if w.rand.Intn(4) > 0 {
		f.from.settled = w.revision()
	}
	w.note("%s of %s is applied as %d: %v", f.Reason, f.from.name, w.revision(), w.ring())
}

func (w *world) ring() string {
	var parts []string
	view := NewView(w.revision())
	for _, r := range w.records {
		view = view.With(r)
	}
	for _, r := range view.Ring() {
		parts = append(parts, fmt.Sprintf("%s %v", r.Name, view.Owned(r.Name)))
	}
	return strings.Join(parts, "; ")
}

// check fails when two instances work on the same key.
func (w *world) check() error {
	for i, a := range w.actors {
		for _, b := range w.actors[i+1:] {
			if both := a.serving.Union(a.busy).Intersect(b.serving.Union(b.busy)); !both.Empty() {
				return fmt.Errorf("%s and %s both work on %v", a.name, b.name, both)
			}
		}
	}
	return nil
}

func (w *world) alive() []*actor {
	var out []*actor
	for _, a := range w.actors {
		if !a.dead {
			out = append(out, a)
		}
	}
	return out
}

// step does one thing that can happen.
func (w *world) step(faults bool) {
	living := w.alive()
	if len(living) == 0 || faults && len(living) < 5 && w.rand.Intn(40) == 0 {
		w.join()
		return
	}
	a := living[w.rand.Intn(len(living))]
	switch w.rand.Intn(12) {
	case 0, 1, 2, 3:
		for n := w.rand.Intn(3) + 1; n > 0 && a.read < len(w.log); n-- {
			w.deliver(a)
		}
	case 4, 5, 6:
		w.decide(a)
	case 7:
		// Work in ranges that the gate is shut for ends.
		a.busy = a.busy.Intersect(a.serving)
	case 8:
		a.held, a.heldAt = a.follow, w.revision()
	case 9, 10:
		if len(w.writes) > 0 {
			w.land(w.rand.Intn(len(w.writes)))
		}
	case 11:
		if !faults {
			return
		}
		switch w.rand.Intn(30) {
		case 0:
			w.note("%s dies", a.name)
			a.dead, a.serving, a.busy = true, nil, nil
			if _, ok := w.records[a.name]; ok {
				w.remove(a.name)
			}
		case 1:
			a.leaving = true
			w.note("%s leaves", a.name)
		case 2:
			w.note("%s misses a part of the log", a.name)
			var all []Record
			for _, r := range w.records {
				all = append(all, r)
			}
			a.machine.Replace(NewView(w.revision(), all...))
			a.read = len(w.log)
		case 3:
			w.note("%s pauses", a.name)
			a.now += 40 * time.Second
		case 4, 5:
			if r, ok := w.records[a.name]; ok && r.Key != nil {
				next := w.rand.Int63()
				r.Next = &next
				w.put(r)
				w.note("%s is to move to %x", a.name, next)
			}
		}
	}
}

// testKeys stand for a controller's objects; most lie in one half of the line.
var testKeys = func() []int64 {
	r := rand.New(rand.NewSource(1))
	keys := make([]int64, 200)
	for i := range keys {
		keys[i] = r.Int63() >> (i % 2)
	}
	return keys
}()

func (w *world) run(steps int) error {
	for i := 0; i < steps; i++ {
		w.step(true)
		if err := w.check(); err != nil {
			return err
		}
	}
	// Faults stop: every key gets its owner, and every handover ends.
	for i := 0; i < 200; i++ {
		for _, a := range w.alive() {
			for a.read < len(w.log) {
				w.deliver(a)
			}
			a.busy = a.busy.Intersect(a.serving)
			w.decide(a)
			if !a.dead {
				a.held, a.heldAt = a.follow, w.revision()
			}
			for len(w.writes) > 0 {
				w.land(0)
			}
			if err := w.check(); err != nil {
				return err
			}
		}
	}
	var served hashkey.Ranges
	for _, a := range w.alive() {
		served = served.Union(a.serving)
		if r := w.records[a.name]; r.Phase != shardingv1alpha1.InstanceActive || r.Next != nil {
			return fmt.Errorf("%s is still %s, with next key %v", a.name, r.Phase, r.Next)
		}
	}
	if len(w.alive()) > 0 && !served.Equal(hashkey.All()) {
		return fmt.Errorf("nobody serves %v", hashkey.All().Minus(served))
	}
	return nil
}

func TestRandomHistoriesAreSafeAndLive(t *testing.T) {
	for seed := int64(0); seed < 150; seed++ {
		w := newWorld(t, seed)
		if err := w.run(400); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, strings.Join(w.history, "\n"))
		}
	}
}

// A test that cannot fail shows nothing: without the drain the histories are not safe.
func TestRandomHistoriesFindAMissingDrain(t *testing.T) {
	for seed := int64(0); seed < 150; seed++ {
		w := newWorld(t, seed)
		w.grantEarly = true
		if err := w.run(400); err != nil {
			t.Logf("seed %d: %v", seed, err)
			return
		}
	}
	t.Fatal("no history shows that the donor did not drain")
}
