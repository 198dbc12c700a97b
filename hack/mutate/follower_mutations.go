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

package main

// followerMutations drop or bend the rules of the Follower.
var followerMutations = []change{
	{"what is no longer wanted counts as reported", "follower.go", "\tf.reported = f.reported.Intersect(r)\n", ""},
	{"an object that leaves during a list is kept", "requests.go", "\t\tdelete(f.kept, object.ID)\n\t\tf.emit", "\t\tf.emit"},
	{"the store goes on during a list of everything", "requests.go", "\t\t\tf.hold()\n", ""},
	{"the store never goes on after a list", "events.go", "\t\tf.emit(Step{Do: Release})\n", ""},
	{"the store goes on before it has what was held", "events.go", "\t\tf.confirm()\n\t\tf.emit(Step{Do: Release})", "\t\tf.emit(Step{Do: Release})"},
	{"what a new watch repeats is news", "events.go", "object.Key.In(f.ranges) && !f.isPast(object)", "object.Key.In(f.ranges)"},
	{"an older state is news", "events.go", "case known && (object.Revision < old.revision || object.Revision == old.revision && !deleted):\n\t\treturn", "case false:\n\t\treturn"},
	{"a list delivers what the watch brings", "requests.go", "case object.Revision > l.base, known", "case known"},
	{"an older state in a list of everything is not believed", "requests.go", "in && (!known || object.Revision < old.revision)", "in && !known"},
	{"an older state in a list of all that is followed is not believed", "requests.go", "old.revision > object.Revision && !l.alone()", "old.revision > object.Revision"},
	{"an older state in a list beside a watch is believed", "requests.go", "old.revision > object.Revision && !l.alone()", "false"},
	{"an object that left comes back from the list", "events.go", "\tif f.listing != nil {\n\t\tf.listing.left[object.ID] = true\n\t}\n", ""},
	{"what an earlier growth delivered stays", "requests.go", "e.seen != l.number && e.key.In(l.ranges)", "false && e.key.In(l.ranges)"},
	{"nothing of a growth is pending", "requests.go", "\t\tf.pending = part{ranges: f.pending", "\t\t_ = part{ranges: f.pending"},
	{"a growth is held before the watch has reached it", "requests.go", "if max(d.pending.revision, d.last) <= revision {", "if true {"},
	{"nothing is known of what the last watch brought", "requests.go", "\tif !f.ranges.Empty() {\n\t\tf.past =", "\tif false {\n\t\tf.past ="},
	{"an object is removed before the store has it", "events.go", "\tf.confirm()\n\tdefer", "\tdefer"},
	{"a report does not wait for the store", "events.go", "\tf.confirm()\n\tf.emit(Step{Do: Report", "\tf.emit(Step{Do: Report"},
	{"a replacement does not wait for the store", "requests.go", "\tif swaps && !f.wantsList {\n\t\tf.confirm()\n\t}\n", ""},
	{"a list of everything adds objects at once", "requests.go", "\t\tf.emit(Step{Do: Keep, ID: object.ID})", "\t\tf.put(object, f.listing.number); delete(f.kept, object.ID)"},
	{"what a list of everything lacks stays", "requests.go", "\tfor _, id := range gone {\n\t\tdelete(f.known, id)\n\t}\n", ""},
	{"what a failed list had is kept", "requests.go", "\tif len(f.kept) > 0 {\n\t\tf.kept = nil\n\t\tf.emit(Step{Do: ForgetAll})\n\t}", ""},
	{"an object that was deleted during a list stays", "requests.go", "\told.seen = 0\n\tif in {", "\told.seen = f.listing.number\n\tif in {"},
	{"a list answers a later question", "requests.go", "nil, l.number, false\n", "nil, f.questions+1, false\n"},
	{"the list of a growth answers for what is followed", "requests.go", "\tif f.ranges.Empty() {\n\t\t// Else", "\tif true {\n\t\t// Else"},
	{"any bookmark answers a question", "events.go", "if answers && f.question > 0 {", "if f.question > 0 {"},
	{"an answer to an older question ends a wait", "extent.go", "return e.answered > w.after &&", "return e.answered >= w.after &&"},
	{"a part that is complete counts for the whole", "extent.go", "\treturn r.Empty()\n", "\treturn true\n"},
	{"waits do not ask", "requests.go", "(waits || f.doubts || f.silent || f.awaited(ranges))", "(waits || f.doubts || f.silent)"},
	{"a watch that has expired is opened again", "requests.go", "\tf.replacing = true\n", "\tf.replacing = false\n"},
	{"a list goes on beside the list of everything", "requests.go", "\tf.cancelOpening()\n\tf.cancelList()\n\tif f.oneByOne", "\tf.cancelOpening()\n\tif f.oneByOne"},
	{"a watch goes on beside the list of everything", "requests.go", "func (f *Follower) listAll() {\n\tf.stopFollowing()", "func (f *Follower) listAll() {"},
	{"what a server does not answer is not listed", "requests.go", "func (f *Follower) Silent() { f.silent = true }", "func (f *Follower) Silent() {}"},
	{"a question that was refused is not listed", "requests.go", "f.refused, f.silent = refusesQuestions, true", "f.refused = refusesQuestions"},
	{"what waits for a silent server is not listed", "requests.go", "!f.ranges.Covers(f.target) || f.awaited(f.ranges)", "!f.ranges.Covers(f.target)"},
	{"a growth waits for a silent server", "requests.go", "if f.listing != nil || !f.pending.ranges.Empty() || !f.ranges.Covers(f.target) || ", "if "},
	{"what leaves stays", "follower.go", "\tf.remove(f.knownThat", "\tf.remove(f.knownThat(func(entry) bool { return false }), at); _ = func(a []ID, b uint64) {}; _ = at; func(a []ID, b uint64) {}(f.knownThat"},
	{"a list of other ranges goes on", "follower.go", "\tf.cancelList()\n\tf.cancelOpening()\n\tf.listWaits", "\tf.cancelOpening()\n\tf.listWaits"},
	{"ranges that leave are followed", "follower.go", "\tf.restrict(f.target)\n", ""},
	{"nothing is watched", "follower.go", "\tif f.ranges.Empty() {\n\t\tf.stopFollowing()\n\t}\n", ""},
	{"a store that has nothing stays behind", "requests.go", "max(f.last, f.given, firstRevision)", "max(f.last, firstRevision)"},
	{"what is updated in place does not count as given", "requests.go", "\t\t\tf.emit(Step{Do: Update})\n\t\t\tf.sent(object.Revision)\n", "\t\t\tf.emit(Step{Do: Update})\n\t\t\tf.unconfirmed = true\n"},
	{"a new list forgets what was given", "follower.go", "given: f.given, ", ""},
	{"an object that leaves during a list of everything takes the store forward", "events.go", "\tif !d.held {\n", "\tif true {\n"},
	{"a server that cannot answer is asked again and again", "requests.go", "f.plainly = asked && !f.following", "f.plainly = false"},
	{"a list without news does not say how far it is", "requests.go", "\tif swaps {\n\t\tf.last = l.revision\n", "\tf.last = l.revision\n\tif swaps {\n"},
	{"the store does not learn how far it is", "follower.go", "reached > f.last {", "false {"},
	{"a list delivers what is newer than the watch", "requests.go", "\tif !f.ranges.Empty() {\n\t\tl.base = f.revision\n\t}\n", ""},
	{"a watch of a growth begins after its list", "requests.go", "true, revision, min(l.base, revision)", "true, revision, revision"},
	{"a list from before is believed", "requests.go", "\tif f.diverges(revision, l.floor) {", "\tif false {"},
	{"an answer from before is believed", "events.go", "\t\tif f.diverges(revision, f.floor) {", "\t\tif false {"},
	{"what has come beside a list makes it one from before", "requests.go", "f.diverges(revision, l.floor)", "f.diverges(revision, f.newest())"},
	{"nobody asks how far the server is once a watch has ended", "requests.go", "(waits || f.doubts || f", "(waits || f"},
	{"nobody asks how far the server is once a watch could not be opened", "requests.go", "f.refused, f.doubts = refusesNothing, true", "f.refused = refusesNothing"},
	{"what is held of another history counts as reported", "follower.go", "\tf.reported = nil\n", ""},
	{"a watch that asks is replaced by another", "requests.go", "(!asks || f.question > 0)", "!asks"},
	{"a refusal lasts", "requests.go", "\tf.following, f.refused, f.doubts = false, refusesNothing, true\n\tif short", "\tf.following, f.doubts = false, true\n\tif short"},
	{"a reader without a store holds what has expired", "requests.go", "\t\tf.restrict(nil)\n", ""},
	{"an object without a key is in no range", "follower.go", "\t\treturn !r.Empty()", "\t\treturn false"},
	{"an object that a list has is taken for gone", "requests.go", "\t\told.seen = l.number // the watch", "\t\t_ = l.number // the watch"},
}
