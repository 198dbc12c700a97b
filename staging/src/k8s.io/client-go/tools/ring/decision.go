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

package ring

import (
	"slices"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
)

// Input is what an instance knows of itself when it decides.
type Input struct {
	// Now is the time since some fixed instant, on a monotonic clock.
	Now time.Duration
	// Leaving says that the instance is asked to leave the ring. It stays true.
	Leaving bool
	// Reported is the newest report of this instance that the registry is known to have,
	// from the log or from an answer.
	Reported Report
	// Announced holds the keys that this instance has said, is saying, or is about to say that its
	// caches hold. Its record in the log may not say so yet, but others may have seen it, and rely on
	// it.
	Announced hashkey.Ranges
	// Serving holds the keys for which the gate is open.
	Serving hashkey.Ranges
	// Draining holds the keys that the gate was shut for while something of them is still in work.
	Draining hashkey.Ranges
	// Keys are the hash keys of the objects in what the instance owns, one for each object, in any
	// order; others may be among them. nil: nobody has looked, as a decision seldom needs them.
	Keys []int64
	// Slow holds keys on which work has been under way for some seconds: no gate is shut for them
	// until it has ended. Stuck holds those of them where it has for longer than Limits.Step. It may
	// never end, so what changes hands leaves them out.
	Slow, Stuck []int64
	// Room is how many objects more the process can hold; nil: as many as there are.
	Room *int64
	// Shifts are what the instance's policy wants, the best first. DryRun has them only proposed.
	Shifts []Shift
	DryRun bool
}

// idle says whether the gate is shut for these keys and nothing of them is in work any more.
func (in *Input) idle(keys hashkey.Ranges) bool {
	return in.Serving.Intersect(keys).Empty() && in.Draining.Intersect(keys).Empty()
}

// keysIn returns those of Keys that lie in these ranges.
func (in *Input) keysIn(ranges hashkey.Ranges) []int64 {
	return slices.DeleteFunc(slices.Clone(in.Keys), func(key int64) bool { return !ranges.Contains(key) })
}

// Decision is what follows from the log and an Input. Its fields are carried out in
// the order in which they stand here: what is to stop stops before anything begins,
// and a write is sent only when all that it relies on is done.
type Decision struct {
	// Gone, looked at first, says that the instance's record is no longer in the
	// registry: shut the gate and register anew. Nothing else is set then.
	Gone bool
	// NeedsKeys says that Input.Keys were not there and a write may follow from them. Decide again
	// at once, with them, in place of carrying this decision out.
	NeedsKeys bool
	// Open holds the keys that may be worked on. First shut the gate for what is not
	// in it, at once: the caches may let go of those keys next, and a later decision
	// gives them away once the gate is shut and idle.
	Open hashkey.Ranges
	// Follow, second, holds the keys that the caches should follow. It covers Open, so
	// the caches never let go of a key for which the gate is open.
	Follow hashkey.Ranges
	// Since, third, is the revision of the log that last added to Open: by a range that
	// this instance received, or by the end of a handover that it drained for. Open the
	// gate for what is new in Open once the caches hold all of it as of a moment after the
	// log has come to Since; until then it stays shut.
	Since int64
	// Phase and Owned, fourth, are reported: the phase, and the keys that the log says
	// are this instance's. Peers act on the report, so it must not run ahead of the
	// gate and the caches.
	Phase shardingv1alpha1.InstancePhase
	Owned hashkey.Ranges
	// Report, fifth, is what the registry must have of this instance. From now on requests
	// carry its epoch, whether or not the registry has it yet.
	Report Report
	// Write, last, is the next write to send; nil: none. It is sent only when no other
	// is under way and the log has come to the instance's own last one.
	Write *Write
	// Turn says that nothing else is to be done, so a boundary may move: ask the policy. nil: none
	// may.
	Turn *Turn
	// Proposal is the best of Input.Shifts that can be made, for people. Unless this is a dry run,
	// Write begins it; nil: none is to be made.
	Proposal *Shift
	// Wake is when to decide again though nothing has happened, as Input.Now
	// counts; 0: there is no such time.
	Wake time.Duration
	// Waits says that a handover is open that waits for somebody: a list may show what the watch does
	// not yet.
	Waits bool
}

// Write is one write to the registry. It is only valid for the spec that it was decided
// on: the UID and, except for a deletion, the generation must still be the same. News in
// the status changes nothing that the write relies on. A grant is valid only while the
// donor's record gives exactly this, too.
type Write struct {
	// Reason is one of the Reason constants, Detail a sentence for people where
	// the reason does not say all.
	Reason, Detail string
	// Name, UID and Generation are the record to write and what it was decided on.
	Name       string
	UID        types.UID
	Generation int64
	// Delete deletes the record. Otherwise Key, Next and Donor are its new values.
	Delete bool
	Key    *int64
	Next   *int64
	Donor  string
}

// The reasons for a write.
const (
	ReasonFirst   = "first"    // nobody owns a key: the oldest instance takes all
	ReasonWish    = "wish"     // an instance that joins names its donor
	ReasonSplit   = "split"    // the donor names the key at which it will split its range
	ReasonGrant   = "grant"    // the donor gives a joining instance its range, after draining it
	ReasonMove    = "move"     // the donor moves the boundary to its neighbour, after draining what lies between
	ReasonBalance = "balance"  // the donor names the key to which a boundary is to move, to even out the load
	ReasonCallOff = "call off" // the key that was named is taken back, by the donor or whoever has taken its place
	ReasonLeave   = "leave"    // the instance goes, after draining everything
)

func write(reason string, r Record, key, next *int64, donor string) *Write {
	return &Write{Reason: reason, Name: r.Name, UID: r.UID, Generation: r.Generation, Key: key, Next: next, Donor: donor}
}

// callOff closes a handover without a grant.
func callOff(r Record, detail string) *Write {
	w := write(ReasonCallOff, r, r.Key, nil, r.Donor)
	w.Detail = detail
	return w
}

// waitUntil says that a handover waits, until then at most.
func (d *Decision) waitUntil(at time.Duration) {
	d.Waits = true
	d.wakeAt(at)
}

func (d *Decision) wakeAt(at time.Duration) {
	if d.Wake == 0 || at < d.Wake {
		d.Wake = max(at, 1)
	}
}
