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

package follower

import "k8s.io/apimachinery/pkg/hashkey"

// Step is something to be done for a Follower.
type Step struct {
	Do Action
	// ID is that of the object to remove.
	ID ID
	// Revision is that of Remove, Bookmark, Replace and Diverge, and that from which to Watch.
	Revision uint64
	// Ranges are those to list or to watch, or those to report.
	Ranges hashkey.Ranges
	// Asks says that the watch is to ask how far the server is.
	Asks bool
	// Everything says that the list or the watch is to be of all objects, without a selector.
	Everything bool
	// Waiters are those whose wait has ended.
	Waiters []Waiter
}

// Lacks is what a Follower has yet to get. The zero value is nothing.
type Lacks struct {
	// List says that ranges have yet to be listed, Watch that no watch is open for what was listed.
	List, Watch bool
	// Listed is the revision of a list that the watch has yet to reach, and Waiter who has waited
	// longest for a watch or a list to say how far the server is. 0 is none.
	Listed uint64
	Waiter Waiter
}

// Action is a kind of Step.
type Action int

const (
	// Add gives the informer the object of the event as added.
	Add Action = iota + 1
	// Update gives it as updated.
	Update
	// Delete gives it as deleted.
	Delete
	// Remove gives the informer the store's object ID as deleted, as of Revision.
	Remove
	// Bookmark tells the informer that it is at Revision.
	Bookmark
	// Confirm does, too, and waits until the store has everything that the informer was given.
	Confirm
	// Hold has the store stay at its revision, whatever the revisions of the objects that it gets,
	// but for Bookmark, Confirm and Replace. Release ends that.
	Hold
	Release
	// Keep keeps the object of the event beside the store, Forget one that was kept.
	Keep
	Forget
	// ForgetAll forgets all objects that were kept.
	ForgetAll
	// Replace makes the store have what Known names, as of Revision, all at once: what was kept, and
	// else what the store has.
	Replace
	// Report tells others that the store has all objects of Ranges, and that the wait of Waiters
	// has ended.
	Report
	// List lists Ranges consistently.
	List
	// CancelList ends a list. Nothing more is told of it.
	CancelList
	// Watch opens a watch of Ranges from Revision on.
	Watch
	// CancelWatch gives up a watch that is being opened.
	CancelWatch
	// EndWatch ends the watch that is followed.
	EndWatch
	// RetryList and RetryWatch tell the Follower after a while that it is time for another attempt.
	RetryList
	RetryWatch
	// Diverge says that the server, which is at Revision, has another history than the store: it was
	// restored to an earlier state. Nothing of what the store has can be relied on or counts as
	// reported, and the Follower must not be used any more until List.
	Diverge
)

var actionNames = map[Action]string{
	Add: "add", Update: "update", Delete: "delete", Remove: "remove", Bookmark: "bookmark", Confirm: "confirm",
	Hold: "hold", Release: "release", Keep: "keep", Forget: "forget", ForgetAll: "forget all", Replace: "replace",
	Report: "report", List: "list", CancelList: "cancel the list", Watch: "watch", CancelWatch: "cancel the watch",
	EndWatch: "end the watch", RetryList: "retry the list later", RetryWatch: "retry the watch later",
	Diverge: "say that the server has another history",
}

func (a Action) String() string { return actionNames[a] }
