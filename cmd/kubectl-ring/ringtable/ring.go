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
	"fmt"
	"slices"
	"sort"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/client-go/tools/ring"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
)

// Ring is the ring of one controller at one moment.
type Ring struct {
	Controller string
	// Instances are those that own keys, in order of key, then those that own none
	// yet, in order of name.
	Instances []Instance
	// Gap holds the keys that no instance works on: those that nobody owns, and those
	// whose owner does not hold them in its caches or is not at work yet.
	Gap hashkey.Ranges
	// Pods are those of all ReplicaSets, whether or not anybody owns them.
	Pods Pods
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
	// Coming holds the keys that it is to own once the handover under way is over.
	Coming hashkey.Ranges
	// Workloads counts the objects that it says it is responsible for.
	Workloads int64
	// Pods are those of the ReplicaSets that it owns.
	Pods Pods
	// Created and Renewed are when it registered, and when it last sent a heartbeat, by
	// the clock of the API server and by its own. Renewed is zero before the first one.
	Created, Renewed time.Time
}

// Pods counts the pods of some ReplicaSets.
type Pods struct {
	// Ready are there and ready, Wanted are asked for.
	Ready, Wanted int64
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
	return float64(hashkey.All().Minus(r.Gap).Width()) / float64(hashkey.Limit)
}

// Controllers returns the names of the controllers that have instances, in order.
func Controllers(instances []*shardingv1alpha1.ControllerInstance) []string {
	var controllers []string
	for _, i := range instances {
		controllers = append(controllers, i.Spec.ControllerName)
	}
	slices.Sort(controllers)
	return slices.Compact(controllers)
}

// Of returns the ring of a controller. Instances of other controllers are left out.
// The pods of ReplicaSets are counted for the ring of the ReplicaSet controller only.
// An instance without a valid resource version is an error.
func Of(controller string, instances []*shardingv1alpha1.ControllerInstance, replicaSets []*appsv1.ReplicaSet) (*Ring, error) {
	r := &Ring{Controller: controller, Gap: hashkey.All()}
	var records []ring.Record
	for _, i := range instances {
		if i.Spec.ControllerName != controller {
			continue
		}
		record, err := ring.NewRecord(i)
		if err != nil {
			return nil, fmt.Errorf("ring of %s: %w", controller, err)
		}
		records = append(records, record)
	}
	view := ring.NewView(0, records...)
	for _, i := range instances {
		if i.Spec.ControllerName != controller {
			continue
		}
		record, _ := view.Get(i.Name)
		row := Instance{
			Name:      i.Name,
			Holder:    i.Spec.HolderIdentity,
			Phase:     i.Status.Phase,
			Owned:     view.Owned(i.Name),
			Workloads: i.Status.Workloads,
			Created:   i.CreationTimestamp.Time,
		}
		if i.Status.RenewTime != nil {
			row.Renewed = i.Status.RenewTime.Time
		}
		if next := record.Next; next != nil {
			moved := record
			moved.Key = next
			row.Coming = view.With(moved).Owned(i.Name).Minus(row.Owned)
		}
		switch i.Status.Phase {
		case shardingv1alpha1.InstanceActive, shardingv1alpha1.InstanceWait, shardingv1alpha1.InstanceLeaving:
			r.Gap = r.Gap.Minus(row.Owned.Intersect(record.Cached))
		}
		r.Instances = append(r.Instances, row)
	}
	sort.Slice(r.Instances, func(i, j int) bool {
		a, b := r.Instances[i], r.Instances[j]
		if a.Owned.Empty() || b.Owned.Empty() {
			return b.Owned.Empty() && (!a.Owned.Empty() || a.Name < b.Name)
		}
		return upTo(a.Owned) < upTo(b.Owned)
	})
	if controller == names.ReplicaSetController {
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
	return r, nil
}

// upTo returns the key, inclusive, that an instance's range (after, upTo] ends with.
// At the seam that is the end of the first of the two ranges.
func upTo(owned hashkey.Ranges) int64 { return int64(owned[0].End - 1) }

// after returns the key, exclusive, that an instance's range (after, upTo] begins
// with, and false if it begins with 0, which no key lies below.
func after(owned hashkey.Ranges) (int64, bool) {
	begin := owned[len(owned)-1].Start
	return int64(begin) - 1, begin > 0
}
