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

package main

import (
	"slices"
	"sort"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/ring"
	"k8s.io/kubernetes/test/harness/ownership"
)

// record is what is known of a ControllerInstance.
type record struct {
	name        string
	uid         types.UID
	holder      string
	controllers []string
	governs     []shardingv1alpha1.Governs
	lease       time.Duration

	// present means that it has neither been deleted nor expired.
	present bool
	key     *int64
	next    *int64
	pinned  *int64
	phase   shardingv1alpha1.InstancePhase
	epoch   int64
	raises  []raise
}

// place is that of the process. The ring lets what starts where a process died young wait, up to
// five minutes, before it gets a range.
func (r *record) place() string { return ring.Place(r.holder) }

// raise is a write by which the instance raised its epoch.
type raise struct {
	epoch    int64
	revision int64
	seen     time.Time
	// gives is what it gave away from then on, nil if it gave nothing.
	gives *shardingv1alpha1.Gift
}

// view is who owned what from a revision on.
type view struct {
	revision int64
	ownership.View
}

// views are those of all revisions, in ascending order.
type views []view

// at returns the view at a revision.
func (vs views) at(revision int64) view {
	i := sort.Search(len(vs), func(i int) bool { return vs[i].revision > revision })
	if i == 0 {
		return view{}
	}
	return vs[i-1]
}

// governing returns whose key governs what the controller writes to the resource, by the record,
// and whether the record says so.
func (r *record) governing(controller string, resource schema.GroupResource) (shardingv1alpha1.GoverningKey, bool) {
	if !slices.Contains(r.controllers, controller) {
		return "", false
	}
	return ring.Governing(r.governs, controller, resource.Group, resource.Resource)
}

// governingKeys returns the keys that an instance has to own to make of an object what it is
// afterwards. One of the two is nil if the object did not exist or does not any more.
func governingKeys(by shardingv1alpha1.GoverningKey, before, after *unstructured.Unstructured) []int64 {
	keysOf := func(o *unstructured.Unstructured) (keys sharding.Keys) {
		if o != nil {
			keys, _ = sharding.KeysOf(o) // it has metadata
		}
		return keys
	}
	keys, n := sharding.Governing(string(by), keysOf(before), keysOf(after))
	return slices.Compact(keys[:n])
}
