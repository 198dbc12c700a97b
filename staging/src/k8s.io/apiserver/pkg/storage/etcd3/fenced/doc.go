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

// Package fenced puts conditions into the transactions that store objects, so that nothing
// that happens between the admission of a write and its storage can make it wrong.
//
// WrapClient and WrapStorage are all that etcd3's factory calls, once for each storage. A
// request that asks for nothing passes through both as it is.
//
// # The lease of a ControllerInstance
//
// A ControllerInstance lives under one etcd lease from its creation to its end. Its registry
// asks for that with WithLease. A creation grants the lease; later writes leave the key on
// it; and a write that turned out to change nothing renews it (Lease.KeepAlive). A record whose key
// has no lease, as somebody else wrote it, is removed: it would never end.
//
// # The fence
//
// A write in the name of a controller instance (controllerring.FromContext) is judged
// for each object that it changes, where that object is stored: by the registry's record of
// the instance, the lines of its spec.governs, and the keys that it owns. What the
// transaction then compares is the revision of that record: the fencing token. If the record
// has changed meanwhile, it alone is judged again, and the transaction is tried again or
// refused. The token holds for a record with the UID of the request and an epoch no higher
// than the request's. So a write is stored only while its instance is registered, and only
// before the instance says, in the write that raises its epoch, what it gives away.
//
// An instance takes a hash key for itself only where nobody on its ring owns one, and the
// transaction compares that: no record has changed since the registry was listed and had no owner.
//
// A refusal is 409 with the cause fence.CauseFenced.
//
// # The leader's Lease
//
// Where a write gives the Lease of the leader of the kube-controller-managers to a holder whose
// identity is not signed (ring.SignLeader), the transaction also compares that no instance of
// their rings is registered. So a stock controller manager cannot become leader beside a ring.
// It renews and releases the Lease as it likes. A refusal is 409 with the cause
// fence.CauseRingsRunning.
//
// # Where the registry is
//
// The registry is found by the prefix of all keys in etcd: WrapStorage recognizes the storage
// of controllerinstances and follows it, from the first write that is to be judged. Nothing
// has to be registered. What has been seen of it may be old: before a write is refused
// because its instance is not known or not the owner, the registry is read once more, with
// quorum.
//
// A transaction cannot compare what lies in another etcd (--etcd-servers-overrides). For such
// a resource, and for a backend without such transactions, the registry is read with quorum
// just before the object is stored. That leaves a window, as long as that storage
// takes. The API server logs it at start.
package fenced
