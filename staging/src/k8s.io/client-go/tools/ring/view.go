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
	"sort"

	"k8s.io/apimachinery/pkg/hashkey"
)

// View is the registry of one controller as of one revision of its log. Who owns
// what follows from it alone.
type View struct {
	// Revision is the newest revision that the view has seen.
	Revision int64
	records  map[string]Record
	// ring is what Ring returns, made when it is first asked for.
	ring []Record
}

// NewView returns the view of these records as of revision.
func NewView(revision int64, records ...Record) *View {
	v := &View{Revision: revision, records: make(map[string]Record, len(records))}
	for _, r := range records {
		v.records[r.Name] = r
	}
	return v
}

// Get returns the record of that name, and whether there is one.
func (v *View) Get(name string) (Record, bool) {
	r, ok := v.records[name]
	return r, ok
}

// Records returns all records in order of name.
func (v *View) Records() []Record {
	out := make([]Record, 0, len(v.records))
	for _, r := range v.records {
		out = append(out, r)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// Ring returns the records that own a range, in order of key. Of several with
// the same key only the first by name owns anything, so only that one is there.
func (v *View) Ring() []Record {
	if v.ring == nil {
		v.ring = v.makeRing()
	}
	return v.ring
}

func (v *View) makeRing() []Record {
	out := []Record{}
	for _, r := range v.Records() {
		if r.Key != nil {
			out = append(out, r)
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return *out[i].Key < *out[j].Key })
	unique := out[:0]
	for _, r := range out {
		if n := len(unique); n > 0 && *unique[n-1].Key == *r.Key {
			continue
		}
		unique = append(unique, r)
	}
	return unique
}

// Owned returns the keys that the instance owns: (its predecessor's key, its key].
func (v *View) Owned(name string) hashkey.Ranges {
	ring := v.Ring()
	for i, r := range ring {
		if r.Name == name {
			return hashkey.Between(*ring[(i+len(ring)-1)%len(ring)].Key, *r.Key)
		}
	}
	return nil
}

// Successor returns the instance next above on the ring, which takes over when
// this one goes, and whether there is one other than the instance itself.
func (v *View) Successor(name string) (Record, bool) {
	ring := v.Ring()
	for i, r := range ring {
		if r.Name == name && len(ring) > 1 {
			return ring[(i+1)%len(ring)], true
		}
	}
	return Record{}, false
}

// With returns the view that this one becomes when r is written.
func (v *View) With(r Record) *View {
	next := v.copy()
	next.records[r.Name] = r
	return next
}

// Without returns the view that this one becomes when the record goes.
func (v *View) Without(name string) *View {
	next := v.copy()
	delete(next.records, name)
	return next
}

func (v *View) copy() *View {
	next := &View{Revision: v.Revision, records: make(map[string]Record, len(v.records)+1)}
	for name, r := range v.records {
		next.records[name] = r
	}
	return next
}
