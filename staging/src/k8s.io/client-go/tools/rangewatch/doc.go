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

// Package rangewatch limits an ordinary client-go informer to a set of hash key ranges, which may
// change while the informer runs.
//
// A Source sits between a ListerWatcher and the informer. The informer's reflector lists once and
// then holds one watch, which the Source feeds. When the ranges change, objects that leave are
// reported as DELETED in their last known state. Only the ranges that enter are listed, and their
// objects reported as ADDED. The server's watch is then replaced by one with the new selector. None
// of this goes through the reflector, so its back-off causes no delay, and ranges that stay are
// followed throughout. New ranges supersede a change that is still in progress. A change that fails
// is retried, and the ranges held meanwhile stay held.
//
// A relist follows when the server no longer has the events that the watch needs. An object that
// has not changed stays the one in the store and is not transformed again. One that has changed
// replaces the store's as it arrives. What is new or gone waits for the end of the list, when both
// change in one step. So the store has everything at every moment, and a relist needs memory for
// what is new, not for everything twice. Servers that can stream lists send them object by object,
// others in pages.
//
// Decisions are made in the package follower, and carried out here.
//
// # Guarantees
//
//   - Each object is reported once as added when it enters, as updated when it changes, as deleted
//     when it leaves; never an older revision after a newer one.
//   - The resource version of the informer's store (LastStoreSyncResourceVersion) never claims more
//     than the store has for the ranges in Held, and never goes back. It may claim less while a
//     change is in progress.
//   - WaitFor returns only when the store, not merely the stream that feeds it, has every object of
//     the ranges as of a moment after the call. The moment is found in the collection's own
//     revisions, so it does not matter in which etcd the collection lies.
//
// # Limits
//
//   - WaitFor says nothing about event handlers, which run after the store is updated. A Filter
//     keeps from them what is older than the moment at which a caller began to rely on the store.
//   - The informer's WatchErrorHandler is told of an object that cannot be taken. Failed requests
//     are logged and retried here, with client-go's back-off.
//   - An object that is created and deleted before a growth is listed may not be reported at all,
//     as with any list.
//   - A change of ranges is not atomic: readers of the store see objects come and go one by one. A
//     caller that needs a complete range must wait for it.
//   - An object that was deleted and created again under its name while it was not followed may be
//     reported as updated, with another UID, as after any relist.
//   - A server that refuses a selector is asked for everything, which is filtered here, until the
//     watch ends after five to ten minutes.
//   - A server that does not say how far it is, when asked, costs a list of everything for each
//     growth and each WaitFor: at once where it has refused the question, as the API server of this
//     tree does without a watch cache; else ten seconds later, but for those that follow.
//   - HasSynced says that the first list has arrived, whatever its ranges were.
//
// Resource versions must be numbers that the API server gave out, because they are compared.
package rangewatch
