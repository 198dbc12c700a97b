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
// The fence: a write that names a controller instance (identity.Header) is
// refused with 409 when that instance is gone, when another has its name, or when
// it does not own the hash key that governs the object. So a process that was
// paused, and goes on with what it had in hand after others have taken over its
// range, changes nothing. Writes that name no instance are not touched.
//
// The key that governs an object is its own where it is what the ring's controller
// works on (a ReplicaSet of the replicaset-controller), and its controller's
// otherwise: the controller reference of a pod that is created, deleted or
// changed, that of the adopter in an adoption, that of the former owner in a
// release. Where there is no such reference nobody's key is concerned: it is
// enough that the instance is alive. Events pass without a look: nobody works from
// them, and an instance that is fenced must be able to say so.
//
// The API server watches the registry and decides from what it has seen only if it
// knows the instance to be alive now:
//
//	last write of the record + ring.Confidence(lease) > now
//
// on its own monotonic clock. When that write was made it does not ask anybody's
// clock, and not when it heard of it either, which may have been late: every half
// second it reads the revision that storage is at, and a write with a higher
// revision than one of these readings was made after it.
//
// Such an instance can have lost a key since only by its own doing, and before it
// gives one away it has ended its work there. A view that is behind therefore
// lets nothing wrong pass. In all other cases, and before any refusal, the
// registry is read with quorum, and what it says counts.
//
// What is not guaranteed: the check comes before the write is stored. If the API
// server is held up between the two (a validating webhook, a paused process) until
// the instance's lease has ended, the write is stored nevertheless.
//
// The lever: spec.nextHashKey of an instance that owns a range can be set to what
// the two neighbours leave it, and to nothing else.
package controllerring
