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

// Package rangewatch gives an ordinary client-go informer a collection that is
// limited to a set of hash key ranges, and lets that set change while the
// informer runs.
//
// A Source stands between a list-watch and the informer. The informer's reflector
// lists once and then holds one watch for good; the Source feeds that watch. When
// the ranges change, what leaves is reported as DELETED with the last known
// object, what enters is listed (it alone) and reported as ADDED, and the watch of
// the server is replaced by one with the new selector. None of that goes through
// the reflector, so its back-off does not stand in the way, and objects in ranges
// that stay are followed all the time. A newer set supersedes one that is still on
// its way; a failing one leaves what is held as it is and is tried again.
//
// A first list and a relist, which follows on events that the server has forgotten,
// go through the reflector. The store keeps what it has until the new replaces it in
// one step. Lists are streams of single objects where the server has that, and what
// has not changed since stays the object that the store has, transformed once: so a
// relist holds what there is and what has changed, not everything twice. With
// Config.IncompleteRelists not even that, but nothing is held meanwhile.
//
// # What holds
//
//   - What enters is reported as added, what changes as updated, what leaves as
//     deleted, each once; never an older revision after a newer one.
//   - The resource version of the informer's store (LastStoreSyncResourceVersion)
//     never claims more than the store has for the ranges in Held, and never goes
//     back. It may claim less for the moment that a change takes.
//   - WaitFor returns only when the store, not merely the stream that leads to it,
//     has every object of the ranges as of the revision that was asked for.
//
// # What does not
//
//   - WaitFor says nothing about event handlers, which run behind the store.
//   - An object that came and went before a growth was listed may not be reported at
//     all, as with any list.
//   - A change does not become visible in one step: readers of the store see objects
//     come and go one by one. Whoever must not act on half a range waits for it.
//   - An object that was deleted and created again under the same name while it was
//     not followed may be reported as updated, with another UID, as after any relist.
//   - A server that does not say at once where a watch stands says so in a bookmark
//     each minute, or by the next event. What grows, and WaitFor, take as long there.
//   - HasSynced says that the first list has arrived, whatever the ranges were.
//
// Resource versions must be the numbers that an API server gives out: they are
// compared.
package rangewatch
