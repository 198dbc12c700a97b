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

import "testing"

// asked is a Follower whose steps a test looks for.
type asked struct {
	*testing.T
	*Follower
}

// begin returns a Follower that has the ranges, and watches nothing yet.
func begin(t *testing.T) asked {
	f := asked{t, New()}
	f.Want(rangeAB)
	f.List()
	f.next(List)
	f.ListEnded(5)
	f.next(Replace)
	f.Watch()
	return f
}

// next returns the next step of that kind, and drops what comes before.
func (f asked) next(want Action) Step {
	f.Helper()
	for {
		step, ok := f.Next()
		if !ok {
			f.Fatalf("no step to %s", want)
		}
		if step.Do == want {
			return step
		}
	}
}

// none checks that there is no step of that kind.
func (f asked) none(not Action) {
	f.Helper()
	for step, ok := f.Next(); ok; step, ok = f.Next() {
		if step.Do == not {
			f.Errorf("a step to %s", not)
		}
	}
}

func TestAnObjectWithoutAKeyIsInEveryRange(t *testing.T) {
	if (Key{}).In(nil) || !(Key{}).In(rangeAB) {
		t.Error("an object without a key is in no range, and in every other one")
	}
}

// The answer to a question ends the wait, so nobody asks again meanwhile.
func TestAQuestionIsAskedOnce(t *testing.T) {
	f := begin(t)
	f.Wait(1, rangeAB)
	if !f.next(Watch).Asks {
		t.Error("a watch for a waiter does not ask")
	}
	f.Opened()
	f.none(Watch)
	f.Wait(2, rangeAB)
	f.none(Watch)
}

// A server that has refused a question is listed, and is asked again with the next watch: it may
// have been replaced.
func TestAfterARefusalEachWatchAsks(t *testing.T) {
	f := begin(t)
	f.Wait(1, rangeAB)
	if !f.next(Watch).Asks {
		t.Error("a watch for a waiter does not ask")
	}
	f.OpenFailed(Refused)
	f.next(List)
	f.ListEnded(f.revision)
	if !f.next(Watch).Asks {
		t.Error("does not ask again")
	}
	f.OpenFailed(Refused)
	if f.next(Watch).Asks {
		t.Error("asks again at once")
	}
}

// A server is asked for all again when the watch ends: it may have been replaced.
func TestARefusalLastsAsLongAsTheWatch(t *testing.T) {
	for name, end := range map[string]func(asked){
		"ended":  func(f asked) { f.WatchEnded(false) },
		"failed": func(f asked) { f.WatchFailed(Failed); f.RetryWatch() },
	} {
		t.Run(name, func(t *testing.T) {
			f := begin(t)
			if f.next(Watch).Everything {
				t.Error("asks for everything at first")
			}
			f.OpenFailed(Refused)
			if !f.next(Watch).Everything {
				t.Error("asks for ranges again")
			}
			f.Opened()
			end(f)
			if f.next(Watch).Everything {
				t.Error("never asks for ranges again")
			}
		})
	}
}

// A server whose cache lags cannot answer a question, but it can send what it has.
func TestWatchIsOpenedPlainlyIfTheServerCannotAnswer(t *testing.T) {
	f := begin(t)
	f.Wait(1, rangeAB)
	if !f.next(Watch).Asks {
		t.Error("a watch for a waiter does not ask")
	}
	f.OpenFailed(Failed)
	f.next(RetryWatch)
	f.RetryWatch()
	if f.next(Watch).Asks {
		t.Error("a watch asks again, and nothing is followed meanwhile")
	}
	f.Opened()
	if !f.next(Watch).Asks {
		t.Error("the waiter is forgotten")
	}
	// With a watch that goes on, there is no harm in asking.
	f.OpenFailed(Failed)
	f.next(RetryWatch)
	f.RetryWatch()
	if !f.next(Watch).Asks {
		t.Error("the waiter is forgotten after a failure")
	}
}

// The informer begins anew while the store stays where it is, and nothing is wanted: no watch will
// tell that it has caught up.
func TestAListOfNothingIsAsOfAllThatWasGiven(t *testing.T) {
	f := begin(t)
	object := Object{ID: ids[0], Key: keys[0], Revision: 6}
	f.next(Watch)
	f.Opened()
	f.Changed(object, false)
	f.next(Add)
	f.WatchFailed(Expired)
	f.next(List)
	object.Revision = 7
	f.Listed(object, false)
	f.next(Update)
	f.Want(nil)
	f.List()
	if got := f.next(Replace).Revision; got != 7 {
		t.Errorf("a list of nothing is as of revision %d, want 7", got)
	}
}

// A consistent list is never of a revision from before it was asked for.
func TestAListFromBeforeIsOfAnotherHistory(t *testing.T) {
	for name, ask := range map[string]func(asked){
		"a list of everything": func(f asked) { f.WatchFailed(Expired); f.next(List) },
		"the informer's first list": func(f asked) {
			f.List()
			f.next(List)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := begin(t)
			f.T = t
			f.next(Watch)
			f.Opened()
			f.Changed(Object{ID: ids[0], Key: keys[0], Revision: 6}, false)
			f.next(Report)
			ask(f)
			f.ListEnded(5)
			if got := f.next(Diverge).Revision; got != 5 {
				t.Errorf("the server is said to be at revision %d, want 5", got)
			}
			f.List()
			f.next(List)
			f.ListEnded(5)
			f.next(Diverge)
			// What was held before is told again, once it is.
			f.List()
			f.next(List)
			f.ListEnded(7)
			f.next(Replace)
			f.Watch()
			if held := f.next(Report).Ranges; !held.Equal(rangeAB) {
				t.Errorf("%s is held of a later history", held)
			}
		})
	}
}

// The watch goes on beside the list of a growth, and may be ahead of it by the list's end.
func TestAListMayBeOlderThanWhatHasComeMeanwhile(t *testing.T) {
	f := begin(t)
	f.Want(rangeA)
	f.next(Watch)
	f.Opened()
	f.Want(rangeAB)
	f.next(List)
	f.Changed(Object{ID: ids[0], Key: keys[0], Revision: 9}, false)
	f.next(Add)
	f.ListEnded(6)
	f.next(Watch)
}
