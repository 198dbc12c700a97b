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

// Package follower decides what an informer does that follows a set of hash key ranges, which may
// change at any time: what to list and to watch, which objects to give the informer's store as
// added, updated or deleted, and what the store can be said to have. It is pure. A driver tells a
// Follower what happens, and does its Steps:
//
//	          Want: what leaves is removed, then what is missing is listed
//	        ┌──────────────────────────────────────────────────────────────┐
//	        │                                                              ▼
//	┌───────┴──────┐   listed: a watch of everything      ┌───────────────────────┐
//	│ following    │◀─────────────────────────────────────│ following and listing │
//	└─┬─────┬──────┘                                      └───────────────────────┘
//	  │     │    ▲
//	  │     └────┘ Wait: the watch is opened anew, and asks how far the server is
//	  │     ▲
//	  ▼     │ listed: the store is replaced
//	┌───────┴──────┐
//	│ replacing    │ the watch has expired: everything is listed
//	└──────────────┘
//
// Growing without a gap. The ranges R are followed, and D is to be added. The base B is the
// revision that the watch of R has reached when the list of D begins. The list is consistent, at a
// revision L that is not before B. Its objects that have not changed since B are delivered, one by
// one. Those that have changed are left to a watch of R and D together, which is opened at B, and D
// is pending until that watch has reached L. So each object's revisions come in order, and the
// store's content for R is as of its revision, as with any watch. What the new watch repeats for R
// is recognized by its revision and dropped. If R is empty, B is L: everything comes from the list.
//
// Replacing in place. When the server no longer has the events that the watch needs, everything is
// listed. What the store has already is updated as the list brings it, so that no object is in
// memory twice. What is new is kept beside the store, and what is gone stays in it, until the list
// is complete. Then both change at once. The store stays at its revision meanwhile, since it is
// complete as of no later one, and what is held stays held.
//
// A list is believed. An object that is older there than in the store belongs to a server that was
// restored from a backup, and goes on after a later revision. It replaces the store's, at the end.
//
// A reader without a store. It gets a first list as if the ranges had grown from nothing. When the
// watch has expired, they count as nothing again: what the list has is added or updated as it
// comes, and what is gone is removed at its end.
//
// Questions. The watch of a quiet collection reports its progress once a minute only, and does not
// say how old that progress is. If a growth or a waiter needs to know, the watch is opened anew and
// asks: a server that knows hash keys sends a marked bookmark as soon as it has sent everything up
// to the revision that etcd had after the request. What is followed is then as of a moment after
// the question, which satisfies the waiters that came before it. Those that come while an answer is
// outstanding share the next question. It waits for that answer, else waiters that come faster than
// answers would keep replacing the watch. Nothing is listed.
//
// A server that does not answer. It may refuse the question, or ignore it: one without a watch
// cache sends no bookmarks at all. Where it has refused, or nothing has come for long (Silent),
// whatever needs an answer lists everything in its place. Each watch asks again, until one has an
// answer.
//
// Refusals. A server may not know the question or the selector, and say so in any words. What may
// be a refusal is tried again at once with less: without the question, then without the selector.
// Everything is asked for again once the watch has ended.
package follower
