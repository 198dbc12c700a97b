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
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/hashkey"
)

// simulatedRegistry is the registry of a simulated day. Its log is read in views: what is written
// within a tick comes to the instances at once.
type simulatedRegistry struct {
	*timetable
	revision int64
	// records are in order of name, ring those that own a range in order of key.
	records, ring []*Record
	// named says how open handovers were begun.
	named map[string]naming
	// stalled is until when nothing can be written.
	stalled time.Duration

	views []simulatedView
	// skipped are the views that are kept no longer.
	skipped int
	ticking bool
	// stirred are the records that a tick is about.
	stirred map[string]bool
	// changed is called for each change of the ring, published for each view.
	changed   func(change)
	published func(stirred map[string]bool)
	log       Balancer
	history   history

	writes, news int
	perSecond    map[int64]int
}

// simulatedView is a view with what an instance remembers that has seen all views before it. It
// is worked out once for all of them.
type simulatedView struct {
	*View
	at      time.Duration
	log     Balancer
	history history
}

// naming is how a handover was begun: for which reason, and whether balance was free to move as
// much as it liked then.
type naming struct {
	reason string
	free   bool
}

// change is that of the owner of a range.
type change struct {
	revision      int64
	loser, gainer string
	keys          hashkey.Ranges
	// reason is that of the write, or why there is none.
	reason string
	// boundary is the record whose key has changed.
	boundary string
}

const (
	// tick is how long the registry gathers what has changed before the instances see it.
	tick = 20 * time.Millisecond
	// keptViews is for how long views are kept. Who lags by more lists the registry.
	keptViews = 5 * time.Second
)

func newSimulatedRegistry(t *timetable) *simulatedRegistry {
	g := &simulatedRegistry{timetable: t, named: map[string]naming{}, stirred: map[string]bool{}, perSecond: map[int64]int{}}
	g.views = []simulatedView{{View: NewView(0)}}
	g.log = NewBalancer("", false)
	g.log.Shifts(g.views[0].View, 0, nil)
	return g
}

func (g *simulatedRegistry) find(name string) (int, bool) {
	return slices.BinarySearchFunc(g.records, name, func(r *Record, name string) int { return cmp.Compare(r.Name, name) })
}

func (g *simulatedRegistry) get(name string) (Record, bool) {
	i, ok := g.find(name)
	if !ok {
		return Record{}, false
	}
	return *g.records[i], true
}

func (g *simulatedRegistry) place(key int64) (int, bool) {
	return slices.BinarySearchFunc(g.ring, key, func(r *Record, key int64) int { return cmp.Compare(*r.Key, key) })
}

// at returns the owner at that place, counted around the ring.
func (g *simulatedRegistry) owner(place int) *Record {
	n := len(g.ring)
	return g.ring[((place%n)+n)%n]
}

// owned returns the keys that the record owns.
func (g *simulatedRegistry) owned(r Record) hashkey.Ranges {
	if r.Key == nil {
		return nil
	}
	i, _ := g.place(*r.Key)
	return hashkey.Between(*g.owner(i - 1).Key, *r.Key)
}

func sameKey(a, b *int64) bool { return a == b || a != nil && b != nil && *a == *b }

// put stores a record. reason says why, if its key changes.
func (g *simulatedRegistry) put(r Record, reason string) Record {
	i, known := g.find(r.Name)
	var old Record
	if known {
		old = *g.records[i]
	}
	g.revision++
	g.perSecond[int64(g.now/time.Second)]++
	r.Revision = g.revision
	if r.UID != old.UID || !sameKey(r.Key, old.Key) || !sameKey(r.Next, old.Next) || r.Donor != old.Donor ||
		!sameKey(r.PinnedKey, old.PinnedKey) || r.Drained != old.Drained || r.BalanceOff != old.BalanceOff {
		r.Generation = old.Generation + 1
		g.writes++
	} else {
		g.news++
	}
	if !known {
		g.records = slices.Insert(g.records, i, &r)
	} else {
		g.records[i] = &r
	}
	c := change{revision: g.revision, reason: reason, boundary: r.Name}
	switch {
	case sameKey(old.Key, r.Key):
		if r.Key != nil {
			at, _ := g.place(*r.Key)
			g.ring[at] = &r
		}
	case old.Key == nil:
		at, _ := g.place(*r.Key)
		if len(g.ring) > 0 {
			c.loser = g.owner(at).Name
		}
		g.ring = slices.Insert(g.ring, at, &r)
		c.gainer, c.keys = r.Name, g.owned(r)
	default:
		at, _ := g.place(*old.Key)
		before := hashkey.Between(*g.owner(at - 1).Key, *old.Key)
		successor := g.owner(at + 1).Name
		g.ring = slices.Delete(g.ring, at, at+1)
		at, _ = g.place(*r.Key)
		g.ring = slices.Insert(g.ring, at, &r)
		after := g.owned(r)
		if gain := after.Minus(before); !gain.Empty() {
			c.loser, c.gainer, c.keys = successor, r.Name, gain
		} else {
			c.loser, c.gainer, c.keys = r.Name, successor, before.Minus(after)
		}
	}
	if !sameKey(old.Next, r.Next) && r.Next != nil {
		g.named[r.Name] = naming{reason, g.now < g.log.Changed()+ByDefault.Free}
	}
	structural := !known || r.Generation != old.Generation || r.Phase != old.Phase || !r.Cached.Equal(old.Cached) || !r.Report.Equal(old.Report) || r.Deleting != old.Deleting
	if structural {
		g.stir(old)
		g.stir(r)
	}
	g.tick()
	if c.gainer != "" {
		g.changed(c)
	}
	return r
}

func (g *simulatedRegistry) remove(name, reason string) {
	i, ok := g.find(name)
	if !ok {
		return
	}
	r := *g.records[i]
	g.revision++
	g.writes++
	g.perSecond[int64(g.now/time.Second)]++
	g.stir(r)
	c := change{revision: g.revision, reason: reason}
	g.records = slices.Delete(g.records, i, i+1)
	if r.Key != nil {
		c.keys, c.loser = g.owned(r), name
		at, _ := g.place(*r.Key)
		g.ring = slices.Delete(g.ring, at, at+1)
		if len(g.ring) > 0 {
			c.gainer = g.owner(at).Name
		}
	}
	g.tick()
	if c.loser != "" {
		g.changed(c)
	}
}

// stir notes whom a change of the record concerns: itself, its donor, its neighbours and, past
// those that leave, the next that stays.
func (g *simulatedRegistry) stir(r Record) {
	if r.Name == "" {
		return
	}
	g.stirred[r.Name] = true
	if r.Donor != "" {
		g.stirred[r.Donor] = true
	}
	if len(g.ring) == 0 {
		return
	}
	around := func(key int64) {
		at, exact := g.place(key)
		for i, n := at, 0; n < len(g.ring); i, n = i+1, n+1 {
			o := g.owner(i)
			g.stirred[o.Name] = true
			if !o.leaving() && (n > 0 || !exact) {
				break
			}
		}
		for i, n := at-1, 0; n < len(g.ring); i, n = i-1, n+1 {
			o := g.owner(i)
			g.stirred[o.Name] = true
			if !o.leaving() {
				break
			}
		}
	}
	if r.Key != nil {
		around(*r.Key)
	}
	if r.Next != nil {
		around(*r.Next)
	}
}

// tick makes a view soon.
func (g *simulatedRegistry) tick() {
	if g.ticking {
		return
	}
	g.ticking = true
	g.after(tick, func() {
		g.ticking = false
		g.publish()
		stirred := g.stirred
		g.stirred = map[string]bool{}
		g.published(stirred)
	})
}

// publish makes a view of what is stored now, and returns it.
func (g *simulatedRegistry) publish() *simulatedView {
	last := &g.views[len(g.views)-1]
	if last.Revision == g.revision {
		return last
	}
	view := &View{Revision: g.revision, records: slices.Clone(g.records), ring: slices.Clone(g.ring)}
	g.log.Shifts(view, g.now, nil)
	g.history.observe(view, g.now)
	for len(g.views) > 0 && g.views[0].at < g.now-keptViews {
		g.views[0] = simulatedView{}
		g.views = g.views[1:]
		g.skipped++
	}
	g.views = append(g.views, simulatedView{view, g.now, g.log.Copy(), g.history})
	return &g.views[len(g.views)-1]
}

// seen returns the newest view that is as old as that, and how many there were before it; nil:
// it is kept no longer.
func (g *simulatedRegistry) seen(horizon time.Duration) (*simulatedView, int) {
	i, _ := slices.BinarySearchFunc(g.views, horizon, func(v simulatedView, at time.Duration) int {
		if v.at <= at {
			return -1
		}
		return 1
	})
	if i == 0 {
		return nil, 0
	}
	return &g.views[i-1], g.skipped + i - 1
}
