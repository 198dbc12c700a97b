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

package sharding

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ControllerInstance is one process's part in one ring. The instances of a ring share the
// line of hash keys, [0, 9223372036854775807], and run the same controllers. Each works
// only on the objects whose key it owns.
//
// The object is stored under one lease of spec.leaseDurationSeconds for all its life, so
// that an instance that stops renewing disappears. Finalizers do not hold that up. An
// update of the status that changes nothing renews the lease, and stores nothing. An
// update that changes something renews nothing.
//
// A delete of an instance that owns a range asks it to leave: it drains, and then deletes
// the object itself. A grace period of 0 takes the range from it at once.
type ControllerInstance struct {
	metav1.TypeMeta

	// Metadata is the standard object metadata.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	metav1.ObjectMeta

	// Spec says who the instance is and what it owns.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status
	Spec ControllerInstanceSpec

	// Status is what the instance last reported about itself.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status
	Status ControllerInstanceStatus
}

// ControllerInstanceSpec says who an instance is and which part of the ring it owns.
//
// A hash key changes hands only by a write of its present owner, made after it has
// stopped working on it, or by that owner's death.
type ControllerInstanceSpec struct {
	// Ring is the ring that the instance is on, such as "workloads". All instances with
	// the same ring share the line of hash keys.
	// It must be a DNS label: at most 63 lower case letters, digits and '-'.
	// This field is required and immutable.
	Ring string

	// HolderIdentity names the host and the process that run the instance. What comes
	// before the last two '_', or before the only one, is the process's place: after
	// processes have died young there, the next one gets a range only after a rest.
	// It has 1 to 253 characters: letters, digits, '-', '_', '.' and ':', the first and
	// the last of them a letter or a digit.
	// This field is required and immutable.
	HolderIdentity string

	// LeaseDurationSeconds is how long the object lives after it was created or last
	// renewed, in seconds. The instance must not work on anything once that time has
	// passed since it sent its last successful renewal.
	// The minimum value is 2, the shortest time to live that storage keeps, and the
	// maximum value is 3600.
	// This field is required and immutable.
	LeaseDurationSeconds int32

	// HashKey is the upper end, inclusive, of the range the instance owns: the keys
	// above the hashKey of its predecessor in the ring, up to and with its own. The
	// instance with the lowest hashKey also owns what lies above the highest one.
	// Unset means that the instance owns nothing yet. Only the instances of the ring
	// write it; others move a boundary with nextHashKey.
	// The minimum value is 0 and the maximum value is 9223372036854775807.
	HashKey *int64

	// NextHashKey is where hashKey is to move. It must differ from hashKey. Unset
	// means that no move is under way.
	// The minimum value is 0 and the maximum value is 9223372036854775807.
	NextHashKey *int64

	// Donor is the name of the ControllerInstance that an instance which owns nothing
	// yet asks to split its range. It may name neither the object itself nor anything
	// that cannot be the name of a ControllerInstance. That it exists is not checked.
	Donor string

	// Controllers are the controllers that the instance runs on the ring, such as
	// "replicaset-controller". Each is a DNS label.
	// The maximum number of controllers is 64.
	// This field is immutable.
	Controllers []string

	// Governs says which hash key the instance has to own to write an object. The first
	// line that covers the controller and the resource counts. A write that no line covers
	// is refused.
	// The maximum number of lines is 256.
	// This field is immutable.
	Governs []Governs

	// PinnedHashKey is where a person wants the upper end of the range to be. While hashKey or
	// nextHashKey is this key, the instances do not move that boundary to even out the load.
	// It is set to nextHashKey by a write of that key which no instance of the ring makes; where
	// hashKey is pinned, only once the boundary is there.
	// Unset it to release the boundary.
	// The minimum value is 0 and the maximum value is 9223372036854775807.
	PinnedHashKey *int64

	// Drained asks the instance to give its range away and to stay on the ring without one. It
	// leaves as for a delete, and registers anew with drained set. It owns a range only while
	// there is no other instance that can.
	Drained bool

	// Balance is Disabled if the instances are not to move boundaries to even out the load of the
	// ring. It is so for the whole ring if it is for one instance of it. An instance that
	// registers on such a ring has it, too.
	Balance Balance

	// Held are the ranges whose objects the caches of the process hold as it registers, since it
	// lost its record while they were full, in ascending order and without overlap. Whoever gives
	// the instance a range gives it one of these if it can, as nothing has to be listed anew then.
	// Empty for a process that has just started. Only creation sets it.
	// The maximum number of ranges is 64.
	// This field is immutable.
	Held []HashKeyRange
}

// Balance says whether the instances of a ring even out its load.
type Balance string

// BalanceDisabled means that they do not. Empty means that they do.
const BalanceDisabled Balance = "Disabled"

// Governs says which hash key governs the objects of a resource that a controller writes.
type Governs struct {
	// Controller is the controller that writes; "*" is every one.
	Controller string

	// Group is the API group of the resource; "" is the core group, "*" every one.
	Group string

	// Resource is the plural name of the resource, without subresource; "*" is every one.
	Resource string

	// By is the governing key.
	By GoverningKey
}

// GoverningKey says whose hash key an instance has to own to write an object. It is one of
// GoverningKeys in k8s.io/apimachinery/pkg/sharding.
type GoverningKey string

// InstancePhase is where an instance stands in the protocol of the ring.
type InstancePhase string

// These are the phases of an instance.
const (
	// InstanceInit means that the instance is registered, and owns nothing.
	InstanceInit InstancePhase = "Init"

	// InstanceLocked means that the instance is to own a range: nextHashKey is set. It
	// fills its caches for it and works on nothing in it until the owner gives it up.
	InstanceLocked InstancePhase = "Locked"

	// InstanceWait means that the instance gives a range away: it takes up nothing in
	// it any more, and waits for what is still in work there to end.
	InstanceWait InstancePhase = "Wait"

	// InstanceActive means that the instance works on the range it owns.
	InstanceActive InstancePhase = "Active"

	// InstanceLeaving means that the instance is about to end: its successor takes its
	// range over once nothing is in work there any more.
	InstanceLeaving InstancePhase = "Leaving"
)

// HashKeyRange is a range of hash keys. Both ends are inclusive, since a range that
// reaches the highest key has no int64 above it.
type HashKeyRange struct {
	// First is the lowest hash key of the range, inclusive.
	// The minimum value is 0 and the maximum value is that of last.
	First int64

	// Last is the highest hash key of the range, inclusive.
	// The minimum value is that of first and the maximum value is 9223372036854775807.
	Last int64
}

// ControllerInstanceStatus is what an instance last reported about itself.
type ControllerInstanceStatus struct {
	// Phase is where the instance stands in the protocol of the ring: Init, Locked,
	// Wait, Active or Leaving. Empty until the instance first reports.
	Phase InstancePhase

	// Cached are the ranges whose objects all caches of the instance hold and follow,
	// in ascending order and without overlap.
	// The maximum number of ranges is 64.
	Cached []HashKeyRange

	// Weight is the number of objects that the caches of the instance hold for the keys
	// that it owns: those it is responsible for, and their dependents.
	// The minimum value is 0 and the maximum value is 1099511627776.
	Weight int64

	// Busy is the number of objects the instance is working on right now.
	// The minimum value is 0 and the maximum value is 1099511627776.
	Busy int64

	// Epoch counts how often the instance has given keys away or has ceased to work on a
	// controller. It is raised in the write that says so, in gives or in controllers, once
	// no such work is under way. A request that the instance sent with a lower epoch is
	// refused from then on. It never falls, and rises by 1024 at most in one write.
	// The minimum value is 0 and the maximum value is 4611686018427387904.
	Epoch int64

	// Gives is what the instance gives away now. Only a grant that it allows is stored.
	// Unset means that it gives nothing.
	Gives *Gift

	// Controllers says of each of spec.controllers whether the instance works on it. One
	// that is not listed it does not work on.
	// The maximum number of controllers is 64.
	Controllers []ControllerState

	// Heaviest is the number of those objects, of Weight, that share one hash key: the key
	// that more of them have than any other. No range can be split between them.
	// The minimum value is 0 and the maximum value is 1099511627776.
	Heaviest int64

	// Heap is what the instance's process held after its last garbage collection. Unset
	// where there has been none since the instance registered.
	Heap *ProcessHeap

	// Work is the part of their time, in thousandths, that the workers of one controller have
	// lately spent on objects: of the controller whose workers have had most to do.
	// The minimum value is 0 and the maximum value is 1000.
	Work int32

	// PhaseSince is when the API server first stored the present phase. Clients cannot set it.
	PhaseSince *metav1.Time

	// BeforeHeaviest is the number of objects, of weight, whose hash keys come before that of
	// heaviest in the range, from its lower end. They can be given to the predecessor only, and
	// those that come after it to the successor.
	// The minimum value is 0 and the maximum value is 1099511627776.
	BeforeHeaviest int64

	// PresenceEnded is when an API server noticed that the presence of the instance had ended, set as
	// the server is about to remove the record for that. So the last state of a record says how its
	// end was noticed: unset where its lease has ended. The next change of the status unsets it.
	// Clients cannot set it.
	PresenceEnded *metav1.MicroTime
}

// ProcessHeap is what a process held after a garbage collection. The process may be on
// other rings, too, and the one that leads runs controllers that are on no ring: of two
// processes with as many objects, the one that holds more has less room.
type ProcessHeap struct {
	// LiveBytes is the size of all objects that were in use, in bytes.
	// The minimum value is 0 and the maximum value is 1125899906842624.
	LiveBytes int64

	// Objects is the number of objects in the caches of the process's instances at that time,
	// on all rings and whoever owns them: a collection may be minutes ago.
	// The minimum value is 0 and the maximum value is 1099511627776.
	Objects int64
}

// ControllerState says whether an instance works on a controller. A ring works on a
// controller only while all its instances list it in spec.controllers and, for the rings
// of kube-controller-manager, the leader does not run it.
type ControllerState struct {
	// Name is the controller, one of spec.controllers.
	Name string

	// Working says that the instance may be working on the controller. It is set before
	// the instance looks for the last time whether it may, and is unset once no work of
	// the controller is under way.
	Working bool

	// Reason says why the instance does not work on the controller, or is about to cease,
	// for people. It has at most 1024 characters.
	Reason string
}

// Gift is what a donor gives away: the hashKey that an instance is to have.
type Gift struct {
	// To is the name of the ControllerInstance whose hashKey is granted: that of the
	// receiver, or the donor's own name where its own boundary moves down.
	To string

	// HashKey is the hash key that it is to have.
	// The minimum value is 0 and the maximum value is 9223372036854775807.
	HashKey int64
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ControllerInstanceList is a list of ControllerInstances.
type ControllerInstanceList struct {
	metav1.TypeMeta

	// Metadata is the standard list metadata.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	metav1.ListMeta

	// Items is the list of ControllerInstances.
	Items []ControllerInstance
}
