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

// Package ownership says who owns which hash keys. It shares no code with the ring, so that judges
// can rely on it: it knows no more than the meaning of the registry. An instance owns the keys
// above its predecessor's up to and including its own, and the lowest instance also those above
// the highest.
package ownership

import (
	"cmp"
	"slices"
	"sort"
	"strconv"
	"strings"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
)

// Part is the upper end of what an instance owns.
type Part struct {
	Name string
	UID  types.UID
	Key  int64
}

// View has what instances own, by ascending key and, where two have the same, by name.
type View []Part

// Of returns the view with these parts.
func Of(parts []Part) View {
	slices.SortFunc(parts, func(a, b Part) int { return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Name, b.Name)) })
	return parts
}

// Owner returns the instance that owns the key, and false if nobody does.
func (v View) Owner(key int64) (Part, bool) {
	if len(v) == 0 {
		return Part{}, false
	}
	i := sort.Search(len(v), func(i int) bool { return v[i].Key >= key })
	return v[i%len(v)], true
}

// With returns the view with the key of one instance set.
func (v View) With(p Part) View {
	return Of(append(slices.DeleteFunc(slices.Clone(v), func(other Part) bool { return other.Name == p.Name }), p))
}

// Records are those that are there, by name.
type Records map[string]*shardingv1alpha1.ControllerInstance

// Ring returns the records of one ring.
func (r Records) Ring(name string) (of []*shardingv1alpha1.ControllerInstance) {
	for _, record := range r {
		if record.Spec.Ring == name {
			of = append(of, record)
		}
	}
	return of
}

// View returns what the instances of a ring own. One without a key owns nothing.
func (r Records) View(ring string) View {
	var parts []Part
	for _, record := range r.Ring(ring) {
		if key := record.Spec.HashKey; key != nil {
			parts = append(parts, Part{record.Name, record.UID, int64(*key)})
		}
	}
	return Of(parts)
}

// Owner returns the record of the instance of a ring that owns the key, nil if nobody does.
func (r Records) Owner(ring string, key int64) *shardingv1alpha1.ControllerInstance {
	p, _ := r.View(ring).Owner(key)
	return r[p.Name]
}

// PID returns that of the process that a holderIdentity, HOST_PID_RANDOM, names, and false if it
// names none.
func PID(holder string) (int, bool) {
	parts := strings.Split(holder, "_")
	if len(parts) < 3 {
		return 0, false
	}
	pid, err := strconv.Atoi(parts[len(parts)-2])
	return pid, err == nil
}
