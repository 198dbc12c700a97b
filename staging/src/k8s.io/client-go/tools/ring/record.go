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
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
)

// Record is what the decisions use of a ControllerInstance.
type Record struct {
	Name string
	UID  types.UID
	// Ring is the ring that the instance is on.
	Ring string
	// Holder names the process that runs the instance.
	Holder string
	// Revision is the resource version of the record's last change in the log.
	Revision int64
	// Generation counts the changes of the record's spec. News in the status leaves it alone.
	Generation int64
	// Key is the upper end (inclusive) of the range that the instance owns; nil: none.
	Key *int64
	// Next is the key that Key is to become: named by the donor of an instance that
	// joins, or by an administrator who moves a boundary; nil: no handover is open.
	Next *int64
	// Donor is the instance whose range this one asks to split.
	Donor string
	// Phase is what the instance last reported.
	Phase shardingv1alpha1.InstancePhase
	// Cached holds the keys that the instance's caches follow, as last reported.
	Cached hashkey.Ranges
	// Controllers are those that the instance runs where the whole ring does, Working those
	// that it may be working on, as last reported.
	Controllers, Working []string
	// Weight counts the objects that the instance holds for the keys it owns, as last reported.
	Weight int64
	// Heaviest counts those of them that share one key, as last reported: that which most have.
	Heaviest int64
	// BeforeHeaviest counts the objects whose keys come before that one in the range, from its lower
	// end, as last reported.
	BeforeHeaviest int64
	// LiveBytes is the size of what the instance's process held after a garbage collection, with
	// all else that it does, in bytes, and HeapObjects the number of objects in its caches then, on
	// all rings, as last reported.
	LiveBytes, HeapObjects int64
	// Work is the part of their time that its busiest workers spend on objects, in thousandths, as
	// last reported.
	Work int32
	// PinnedKey is where a person wants Key to be; nil: nowhere.
	PinnedKey *int64
	// Held holds the keys that the process's caches held when it registered: it had lost its record.
	Held hashkey.Ranges
	// Drained says that the instance is to own a range only while no other can.
	Drained bool
	// BalanceOff says that the ring is not to be evened out.
	BalanceOff bool
	// Report is what the fence compares.
	Report
	// Deleting says that the instance has been asked to leave, by a delete of its record.
	Deleting bool
	// PresenceEnded is when an API server noticed that the instance's presence had ended, by its
	// clock, as it was about to remove the record for that; zero: it was not.
	PresenceEnded time.Time
}

// Report is the part of an instance's status that the fence compares.
type Report struct {
	// Epoch rises each time the instance gives keys away, in the write that says what. A
	// request that it sent with a lower epoch is refused from then on.
	Epoch int64
	// Gives is what the instance gives away now; nil: nothing. A grant of anything else is
	// refused.
	Gives *Gift
}

// Gift is the key that a donor grants: the record of the instance To gets Key.
type Gift struct {
	To  string
	Key int64
}

// Equal says whether both reports are the same.
func (r Report) Equal(other Report) bool {
	if r.Epoch != other.Epoch || (r.Gives == nil) != (other.Gives == nil) {
		return false
	}
	return r.Gives == nil || *r.Gives == *other.Gives
}

// registration is one registration of an instance. Another of the same name has
// another UID.
type registration struct {
	Name string
	UID  types.UID
}

func (r Record) registration() registration { return registration{r.Name, r.UID} }

func (r Record) leaving() bool { return r.Phase == shardingv1alpha1.InstanceLeaving }

// Stays says whether the instance does not leave, and is to own a range.
func (r Record) Stays() bool { return !r.leaving() && !r.Deleting && !r.Drained }

// joins says whether it is to own one, and owns nothing yet.
func (r Record) joins() bool { return r.Key == nil && r.Stays() }

// Pinned says whether a person has set the upper end of the instance's range, or is about to.
func (r Record) Pinned() bool {
	is := func(key *int64) bool { return key != nil && *key == *r.PinnedKey }
	return r.PinnedKey != nil && (is(r.Key) || is(r.Next))
}

// NewRecord takes a Record from its API object. It fails on a resource version
// that is no number, which the order of the log depends on.
func NewRecord(instance *shardingv1alpha1.ControllerInstance) (Record, error) {
	revision, err := strconv.ParseInt(instance.ResourceVersion, 10, 64)
	if err != nil {
		return Record{}, fmt.Errorf("ControllerInstance %s has resourceVersion %q, want a number: %w", instance.Name, instance.ResourceVersion, err)
	}
	var heap shardingv1alpha1.ProcessHeap
	if instance.Status.Heap != nil {
		heap = *instance.Status.Heap
	}
	var presenceEnded time.Time
	if instance.Status.PresenceEnded != nil {
		presenceEnded = instance.Status.PresenceEnded.Time
	}
	return Record{
		Name:           instance.Name,
		UID:            instance.UID,
		Ring:           instance.Spec.Ring,
		Holder:         instance.Spec.HolderIdentity,
		Revision:       revision,
		Generation:     instance.Generation,
		Key:            (*int64)(instance.Spec.HashKey),
		Next:           (*int64)(instance.Spec.NextHashKey),
		Donor:          instance.Spec.Donor,
		Phase:          instance.Status.Phase,
		Cached:         CachedRanges(instance.Status.Cached),
		Weight:         instance.Status.Weight,
		Heaviest:       instance.Status.Heaviest,
		BeforeHeaviest: instance.Status.BeforeHeaviest,
		LiveBytes:      heap.LiveBytes,
		HeapObjects:    heap.Objects,
		Work:           instance.Status.Work,
		PinnedKey:      (*int64)(instance.Spec.PinnedHashKey),
		Held:           CachedRanges(instance.Spec.Held),
		Drained:        instance.Spec.Drained,
		BalanceOff:     instance.Spec.Balance == shardingv1alpha1.BalanceDisabled,
		Controllers:    instance.Spec.Controllers,
		Working:        working(instance.Status.Controllers),
		Report:         Report{Epoch: instance.Status.Epoch, Gives: gift(instance.Status.Gives)},
		Deleting:       instance.DeletionTimestamp != nil,
		PresenceEnded:  presenceEnded,
	}, nil
}

func working(states []shardingv1alpha1.ControllerState) []string {
	var names []string
	for _, s := range states {
		if s.Working {
			names = append(names, s.Name)
		}
	}
	return names
}

func gift(gives *shardingv1alpha1.Gift) *Gift {
	if gives == nil {
		return nil
	}
	return &Gift{To: gives.To, Key: int64(gives.HashKey)}
}

// CachedRanges returns status.cached of a record, whose ranges include both ends,
// as half-open ranges.
func CachedRanges(cached []shardingv1alpha1.HashKeyRange) hashkey.Ranges {
	ranges := make([]hashkey.Range, 0, len(cached))
	for _, r := range cached {
		ranges = append(ranges, hashkey.Range{Start: uint64(r.First), End: uint64(r.Last) + 1})
	}
	return hashkey.NewRanges(ranges...)
}

// StatusCached is the inverse of CachedRanges.
func StatusCached(ranges hashkey.Ranges) []shardingv1alpha1.HashKeyRange {
	cached := make([]shardingv1alpha1.HashKeyRange, 0, len(ranges))
	for _, r := range ranges {
		cached = append(cached, shardingv1alpha1.HashKeyRange{
			First: shardingv1alpha1.HashKey(r.Start),
			Last:  shardingv1alpha1.HashKey(r.End - 1),
		})
	}
	return cached
}
