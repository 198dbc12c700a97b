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
	"sort"

	"k8s.io/apimachinery/pkg/hashkey"
)

// View is one ring of the registry as of one revision of its log. Who owns
// what follows from it alone. It is never changed: its methods return new ones.
type View struct {
	// Revision is the newest revision that the view has seen.
	Revision int64
	// records are all records in order of name, ring those that own a range in
	// order of key. Views share them.
	records, ring []*Record
	// shared says that several records have the same key.
	shared bool
}

// NewView returns the view of these records as of revision.
func NewView(revision int64, records ...Record) *View {
	own := make([]*Record, 0, len(records))
	for _, r := range records {
		own = append(own, &r)
	}
	slices.SortFunc(own, func(a, b *Record) int { return cmp.Compare(a.Name, b.Name) })
	return newView(revision, own)
}

// newView takes records in order of name.
func newView(revision int64, records []*Record) *View {
	ring := make([]*Record, 0, len(records))
	for _, r := range records {
		if r.Key != nil {
			ring = append(ring, r)
		}
	}
	slices.SortStableFunc(ring, func(a, b *Record) int { return cmp.Compare(*a.Key, *b.Key) })
	keyed := len(ring)
	ring = slices.CompactFunc(ring, func(a, b *Record) bool { return *a.Key == *b.Key })
	return &View{Revision: revision, records: records, ring: ring, shared: len(ring) < keyed}
}

func (v *View) find(name string) (int, bool) {
	return sort.Find(len(v.records), func(i int) int { return cmp.Compare(name, v.records[i].Name) })
}

// Get returns the record of that name, and whether there is one.
func (v *View) Get(name string) (Record, bool) {
	i, ok := v.find(name)
	if !ok {
		return Record{}, false
	}
	return *v.records[i], true
}

// Records returns all records in order of name. They must not be changed.
func (v *View) Records() []*Record { return v.records }

// Ring returns the records that own a range, in order of key. Of several with
// the same key only the first by name owns anything, so only that one is there.
// They must not be changed.
func (v *View) Ring() []*Record { return v.ring }

// hasRingOf says whether in both views the same instances own the same keys.
func (v *View) hasRingOf(other *View) bool {
	return slices.EqualFunc(v.ring, other.ring, func(a, b *Record) bool {
		return a.UID == b.UID && *a.Key == *b.Key
	})
}

// above returns the place in the ring of the first instance whose key is not below that.
func (v *View) above(key int64) int {
	return sort.Search(len(v.ring), func(i int) bool { return *v.ring[i].Key >= key })
}

// Index returns the place of the instance in Ring; -1: it owns no range.
func (v *View) Index(name string) int {
	r, _ := v.Get(name)
	if r.Key == nil {
		return -1
	}
	i := v.above(*r.Key)
	if v.ring[i].Name != name {
		return -1
	}
	return i
}

// Owned returns the keys that the instance owns: (its predecessor's key, its key].
func (v *View) Owned(name string) hashkey.Ranges {
	i := v.Index(name)
	if i < 0 {
		return nil
	}
	return hashkey.Between(*v.ring[(i+len(v.ring)-1)%len(v.ring)].Key, *v.ring[i].Key)
}

// ownedAfter returns what the instance owns once that record has that key.
func (v *View) ownedAfter(r Record, key int64, name string) hashkey.Ranges {
	owner, ok := v.Owner(key)
	if !ok || v.shared || *owner.Key == key {
		// One that owned nothing may come to.
		r.Key, r.Next = &key, nil
		return v.With(r).Owned(name)
	}
	// below returns the key of the others' next one below that place.
	n, moves := len(v.ring), v.Index(r.Name)
	below := func(i int) int64 {
		if i = (i + n - 1) % n; i == moves {
			i = (i + n - 1) % n
		}
		return *v.ring[i].Key
	}
	if name == r.Name {
		if n == 1 && moves == 0 {
			return hashkey.All()
		}
		return hashkey.Between(below(v.above(key)), key)
	}
	i := v.Index(name)
	if i < 0 {
		return nil
	}
	owned := hashkey.Between(below(i), *v.ring[i].Key)
	if owned.Contains(key) {
		return hashkey.Between(key, *v.ring[i].Key)
	}
	return owned
}

// Owner returns the instance that owns the key, and whether there is one.
func (v *View) Owner(key int64) (Record, bool) {
	if len(v.ring) == 0 {
		return Record{}, false
	}
	return *v.ring[v.above(key)%len(v.ring)], true
}

// Neighbours returns the instances next below and next above on the ring, which may
// be the same one, and whether there is any other than the instance itself.
func (v *View) Neighbours(name string) (predecessor, successor Record, ok bool) {
	i, n := v.Index(name), len(v.ring)
	if i < 0 || n == 1 {
		return Record{}, Record{}, false
	}
	return *v.ring[(i+n-1)%n], *v.ring[(i+1)%n], true
}

// Successor returns the instance next above on the ring, which takes over when
// this one goes, and whether there is one other than the instance itself.
func (v *View) Successor(name string) (Record, bool) {
	_, successor, ok := v.Neighbours(name)
	return successor, ok
}

// Spare says whether another instance can own the range of that one: it does not leave, and is not
// drained.
func (v *View) Spare(name string) bool {
	return slices.ContainsFunc(v.records, func(r *Record) bool { return r.Name != name && r.Stays() })
}

// BalanceOff returns the instance whose record says that the ring is not to be evened out, and
// whether there is one.
func (v *View) BalanceOff() (name string, off bool) {
	i := slices.IndexFunc(v.records, func(r *Record) bool { return r.BalanceOff })
	if i < 0 {
		return "", false
	}
	return v.records[i].Name, true
}

// With returns the view that this one becomes when r is written.
func (v *View) With(r Record) *View {
	i, found := v.find(r.Name)
	rest := v.records[i:]
	if found {
		rest = rest[1:]
	}
	return newView(v.Revision, slices.Concat(v.records[:i], []*Record{&r}, rest))
}

// Without returns the view that this one becomes when the record goes.
func (v *View) Without(name string) *View {
	i, found := v.find(name)
	if !found {
		return v
	}
	return newView(v.Revision, slices.Concat(v.records[:i], v.records[i+1:]))
}
