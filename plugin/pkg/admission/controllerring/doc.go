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

// Package controllerring is the admission plugin that guards the rings of
// controllers.
//
// The fence: a write that names a controller instance (fence.Header) is refused with 409
// when that instance is gone, when another has its name, when it does not own the hash
// key that governs the object, or when the catalogue (pkg/controller/ring) does not say
// whose key that is. So a process that was paused, and goes on after others have taken
// over its range, changes nothing. Writes that name no instance are not touched.
//
// The catalogue governs an object by its own key where it is what the controller works
// on (a ReplicaSet of the replicaset-controller), and by its controller's otherwise: the
// controller reference of a pod that is created, deleted or changed, that of the adopter
// in an adoption, that of the former owner in a release. An object without such a
// reference has no governing key: it is enough that the instance is alive. Events are
// not checked: nobody works from them, and an instance that is fenced must be able to
// say so.
//
// The API server watches the registry. It decides from what it has seen only if it knows
// the instance to be alive now:
//
//	last write of the record + fence.Confidence(lease) > now
//
// on its own monotonic clock. To date that write it trusts neither another clock nor the
// moment when it heard of the write, which may have been late. Every half second it reads
// the revision of storage, and a write with a higher revision than one of these readings
// was made after it.
//
// Since then such an instance can have lost a key only by its own doing, and before it
// gives one away it has ended its work there. So a view that is behind lets nothing wrong
// pass. In all other cases, and before a refusal, the registry is read with quorum, and
// what it says counts. Only what the catalogue does not cover is refused without a read:
// the controller of a record never changes.
//
// What is not guaranteed: the check comes before the write is stored. If the API
// server is held up between the two (a validating webhook, a paused process) until
// the instance's lease has ended, the write is stored nevertheless.
//
// The lever: spec.nextHashKey of an instance that owns a range can be set to a key between
// those of the two neighbours, and to nothing else.
package controllerring
