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
	"strconv"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
)

// Views holds the rings of a registry, by name, as of one revision.
type Views struct {
	// Revision is the revision of the registry.
	Revision int64
	rings    map[string]*View
}

// ReadList returns the rings of a list of ControllerInstances. It fails where the list
// or an instance has a resource version that is no number.
func ReadList(list *shardingv1alpha1.ControllerInstanceList) (Views, error) {
	revision, err := strconv.ParseInt(list.ResourceVersion, 10, 64)
	if err != nil {
		return Views{}, fmt.Errorf("list of ControllerInstances has resourceVersion %q, want a number: %w", list.ResourceVersion, err)
	}
	records := make([]Record, 0, len(list.Items))
	for i := range list.Items {
		r, err := NewRecord(&list.Items[i])
		if err != nil {
			return Views{}, err
		}
		records = append(records, r)
	}
	return NewViews(revision, records...), nil
}

// NewViews returns the rings that these records form as of revision.
func NewViews(revision int64, records ...Record) Views {
	members := map[string][]Record{}
	for _, r := range records {
		members[r.Ring] = append(members[r.Ring], r)
	}
	v := Views{Revision: revision, rings: make(map[string]*View, len(members))}
	for name, records := range members {
		v.rings[name] = NewView(revision, records...)
	}
	return v
}

// Ring returns the ring of that name, an empty one if it has no instance.
func (v Views) Ring(name string) *View {
	if view, ok := v.rings[name]; ok {
		return view
	}
	return NewView(v.Revision)
}

// Of returns the ring that the instance of that name is in, an empty one if there is
// no such instance.
func (v Views) Of(instance string) *View {
	for _, view := range v.rings {
		if _, ok := view.Get(instance); ok {
			return view
		}
	}
	return NewView(v.Revision)
}
