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

// Package controllerring is the admission plugin that says what may be done to the records of
// a ring, the ControllerInstances.
//
//   - Who creates a record must be allowed to work on its ring (verb "work" on
//     rings.sharding.k8s.io, by name), and the record owns no hash key yet.
//   - Who changes or deletes a record does so in the name of an instance of the same ring, or must
//     be allowed to work on that ring or to steer it (verb "steer", for people). A right to write
//     ControllerInstances alone is a right to no ring.
//   - Who changes its status does so in the name of an instance of the ring, or must be allowed to
//     work on it. The fence and the other instances believe what it says.
//   - spec.hashKey and spec.donor are changed in the name of an instance only (fence.Header).
//     Anybody else moves a boundary with spec.nextHashKey, and the owner hands the range over.
//   - spec.nextHashKey of an instance that owns a range can be set to a key between those of the
//     two neighbours, and to nothing else.
//
// Records that expire are not deleted by a request, so nothing of this concerns them. What an
// instance itself may write is judged where it is stored
// (apiserver/pkg/storage/etcd3/fenced).
package controllerring
