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

// Package ring is the hook that puts a controller of kube-controller-manager on a ring: it
// works on an object only while its gate is open for the object's hash key.
//
//   - Informers: one for each resource and path of a ring in this process, which all its
//     controllers share.
//   - Env: what a controller is built from. Its informers' handlers are told of keys that the
//     gate is open for, its client creates and deletes each pod once, and the lister of what it
//     works on shows a sync only the object that has passed the gate.
//   - Controller: the controller's queue behind the gate, its workers, and what it remembers.
//
// A controller's package has a ring.go with a function OnRing, which builds the controller
// from an Env as its own constructor does, and hands New its queue. Everything else of the
// controller stays as it is: events, metrics, logs, and what its sync does.
//
// What leaves the ranges of an instance is not deleted. An item of the queue without an object
// reaches the controller only if the object has been worked on here, and the gate is open for
// its key: then the caches hold that key, so it is gone.
package ring
