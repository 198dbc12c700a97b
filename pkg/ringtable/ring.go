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

package ringtable

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/client-go/tools/ring"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
)

// Ring is one ring at one moment.
type Ring struct {
	Name string
	// Counted says that pods are counted: the ring works on ReplicaSets, by the catalogue of rings,
	// and these were looked at.
	Counted bool
	// Instances are those that own keys, in order of key, then those that own none
	// yet, in order of name.
	Instances []Instance
	// Gap holds the keys that no instance works on: those that nobody owns, and those
	// whose owner does not hold them in its caches or is not at work yet.
	Gap hashkey.Ranges
	// Draining holds the keys that their owner gives away just now, or leaves behind: it begins no
	// work on them, or will not soon.
	Draining hashkey.Ranges
	// Moves says which boundaries are to move, in sentences.
	Moves []string
	// Pods are those of all ReplicaSets, whether or not anybody owns them.
	Pods Pods

	view *ring.View
}

// Instance is a member of a ring.
type Instance struct {
	Name string
	// Holder names the host and the process.
	Holder string
	Phase  shardingv1alpha1.InstancePhase
	// Owned holds the keys that the instance owns. At the seam of the line these are
	// two ranges.
	Owned hashkey.Ranges
	// Coming holds the keys that it is to receive by the handover under way.
	Coming hashkey.Ranges
	// Next is the key that the end of its range is to move to, or that it is to get; nil: none.
	Next *int64
	// Deleting says that it has been asked to leave.
	Deleting bool
	// Weight counts the objects that it says it holds for the keys it owns, Heaviest those of them
	// that share one key, and Busy those that it was working on when it last told anything.
	Weight, Heaviest, Busy int64
	// Work is the part of their time that its busiest workers spend on objects, in thousandths.
	Work int32
	// LiveBytes is what its process held after a garbage collection, in bytes, and HeapObjects how
	// many objects were in its caches then, on all rings; 0: it has not told.
	LiveBytes, HeapObjects int64
	// PinnedKey is where a person wants the end of its range to be; nil: nowhere. Pinned says that it
	// is there, or is to move there, so that the instances do not move it to even out the load.
	PinnedKey *int64
	Pinned    bool
	// Drained says that it is to own a range only while no other instance can.
	Drained bool
	// Controllers are those that it runs on the ring, and Working those that it works on.
	Controllers, Working []string
	// Governs says whose hash key governs what they write.
	Governs []shardingv1alpha1.Governs
	// Waits says of each controller that it does not work on why not, if it knows.
	Waits []string
	// Pods are those of the ReplicaSets that it owns.
	Pods Pods
	// Created is when it registered, by the clock of the API server.
	Created time.Time
	// PhaseSince is since when it has its phase, by the same clock; zero: it is not known.
	PhaseSince time.Time
}

// Pods counts the pods of some ReplicaSets.
type Pods struct {
	// Ready are there and ready, Wanted are asked for.
	Ready  int64 `json:"ready"`
	Wanted int64 `json:"wanted"`
}

func (p *Pods) add(rs *appsv1.ReplicaSet) {
	p.Ready += int64(rs.Status.ReadyReplicas)
	if rs.Spec.Replicas == nil {
		p.Wanted++
	} else {
		p.Wanted += int64(*rs.Spec.Replicas)
	}
}

// Active counts the instances that are Active.
func (r *Ring) Active() int {
	n := 0
	for _, i := range r.Instances {
		if i.Phase == shardingv1alpha1.InstanceActive {
			n++
		}
	}
	return n
}

// Covered returns the part of all hash keys that some instance works on, from 0 to 1.
func (r *Ring) Covered() float64 {
	return share(hashkey.All().Minus(r.Gap))
}

// Names returns the names of the rings that have instances, in order.
func Names(instances []*shardingv1alpha1.ControllerInstance) []string {
	var names []string
	for _, i := range instances {
		names = append(names, i.Spec.Ring)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Host returns the host that the instance's process is on, as far as its holder tells.
func (i *Instance) Host() string {
	return cmp.Or(ring.Place(i.Holder), i.Holder)
}

// Imbalance returns how many times the mean weight the largest is, of those that own a range; 0:
// there is none.
func (r *Ring) Imbalance() float64 {
	var most, sum int64
	owners := 0
	for _, i := range r.Instances {
		if !i.Owned.Empty() {
			owners++
			most, sum = max(most, i.Weight), sum+i.Weight
		}
	}
	if sum == 0 {
		return 0
	}
	return float64(most) * float64(owners) / float64(sum)
}

// View returns the ring as its instances see it.
func (r *Ring) View() *ring.View { return r.view }

// Of returns the ring of that name. Instances of other rings are left out. Pods are counted
// only for a ring of ReplicaSets, and if these are given: nil are not looked at. An instance
// without a valid resource version is an error.
func Of(name string, instances []*shardingv1alpha1.ControllerInstance, replicaSets []*appsv1.ReplicaSet) (*Ring, error) {
	r := &Ring{Name: name, Gap: hashkey.All()}
	described, _ := catalogue.RingNamed(name)
	r.Counted = replicaSets != nil && slices.ContainsFunc(described.Controllers, func(c catalogue.Controller) bool {
		return c.Workloads == appsv1.Resource("replicasets")
	})
	var members []*shardingv1alpha1.ControllerInstance
	var records []ring.Record
	for _, i := range instances {
		if i.Spec.Ring != name {
			continue
		}
		record, err := ring.NewRecord(i)
		if err != nil {
			return nil, fmt.Errorf("ring %s: %w", name, err)
		}
		members, records = append(members, i), append(records, record)
	}
	view := ring.NewView(0, records...)
	r.view = view
	coming := map[string]hashkey.Ranges{}
	for _, h := range view.Handovers() {
		if h.Receiver != "" {
			part := h.OwnedAfter(h.Receiver).Minus(view.Owned(h.Receiver))
			coming[h.Receiver] = coming[h.Receiver].Union(part)
			// A donor serves one handover at a time. Which one, it says when its work there has ended.
			donor, _ := view.Get(h.Donor)
			if donor.Phase == shardingv1alpha1.InstanceWait && (donor.Gives == nil || donor.Gives.To == h.Record.Name) {
				r.Draining = r.Draining.Union(part)
			}
		}
		if h.Kind == ring.KindMove {
			r.Moves = append(r.Moves, fmt.Sprintf("%s: the end of its range is to move from %s to %s: %s gives to %s", h.Record.Name,
				hashkey.Format(*h.Record.Key), hashkey.Format(*h.Record.Next), h.Donor, h.Receiver))
		}
	}
	for n, i := range members {
		row := newInstance(i, view.Owned(i.Name), coming[i.Name])
		row.Pinned = records[n].Pinned()
		switch i.Status.Phase {
		case shardingv1alpha1.InstanceActive, shardingv1alpha1.InstanceWait, shardingv1alpha1.InstanceLeaving:
			r.Gap = r.Gap.Minus(row.Owned.Intersect(records[n].Cached))
		}
		if row.Phase == shardingv1alpha1.InstanceLeaving {
			r.Draining = r.Draining.Union(row.Owned)
		}
		r.Instances = append(r.Instances, row)
	}
	sort.Slice(r.Instances, func(i, j int) bool {
		a, b := r.Instances[i], r.Instances[j]
		if a.Owned.Empty() || b.Owned.Empty() {
			return b.Owned.Empty() && (!a.Owned.Empty() || a.Name < b.Name)
		}
		// At the seam the range of the lowest key ends with the first of its two ranges.
		return a.Owned[0].End < b.Owned[0].End
	})
	if r.Counted {
		r.countPods(replicaSets)
	}
	return r, nil
}

func newInstance(i *shardingv1alpha1.ControllerInstance, owned, coming hashkey.Ranges) Instance {
	row := Instance{
		Name:        i.Name,
		Holder:      i.Spec.HolderIdentity,
		Phase:       i.Status.Phase,
		Owned:       owned,
		Coming:      coming,
		Weight:      i.Status.Weight,
		Heaviest:    i.Status.Heaviest,
		Busy:        i.Status.Busy,
		Work:        i.Status.Work,
		Next:        (*int64)(i.Spec.NextHashKey),
		PinnedKey:   (*int64)(i.Spec.PinnedHashKey),
		Drained:     i.Spec.Drained,
		Deleting:    i.DeletionTimestamp != nil,
		Controllers: i.Spec.Controllers,
		Governs:     i.Spec.Governs,
		Created:     i.CreationTimestamp.Time,
	}
	if i.Status.Heap != nil {
		row.LiveBytes, row.HeapObjects = i.Status.Heap.LiveBytes, i.Status.Heap.Objects
	}
	if i.Status.PhaseSince != nil {
		row.PhaseSince = i.Status.PhaseSince.Time
	}
	for _, c := range i.Status.Controllers {
		if c.Working {
			row.Working = append(row.Working, c.Name)
		}
		if c.Reason != "" {
			row.Waits = append(row.Waits, c.Name+": "+c.Reason)
		}
	}
	return row
}

// countPods counts the pods of each ReplicaSet for all, and for the owner of its key.
func (r *Ring) countPods(replicaSets []*appsv1.ReplicaSet) {
	for _, rs := range replicaSets {
		r.Pods.add(rs)
		key := metav1.HashKeyOf(rs)
		for i := range r.Instances {
			if r.Instances[i].Owned.Contains(key) {
				r.Instances[i].Pods.add(rs)
			}
		}
	}
}
