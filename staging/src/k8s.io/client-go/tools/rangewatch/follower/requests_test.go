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

// A server whose cache lags cannot answer a question, but it can send what it has.
func TestWatchIsOpenedPlainlyIfTheServerCannotAnswer(t *testing.T) {
	f := New()
	f.Want(rangeAB)
	f.List()
	next := func(want Action) Step {
		t.Helper()
		for {
			step, ok := f.Next()
			if !ok {
				t.Fatalf("no step to %s", want)
			}
			if step.Do == want {
				return step
			}
		}
	}
	next(List)
	f.ListEnded(5)
	next(Replace)
	f.Watch()
	f.Wait(1, rangeAB)
	if !next(Watch).Asks {
		t.Error("a watch for a waiter does not ask")
	}
	f.OpenFailed(Failed)
	next(RetryWatch)
	f.RetryWatch()
	if next(Watch).Asks {
		t.Error("a watch asks again, and nothing is followed meanwhile")
	}
	f.Opened()
	if !next(Watch).Asks {
		t.Error("the waiter is forgotten")
	}
	// With a watch that goes on, there is no harm in asking.
	f.OpenFailed(Failed)
	next(RetryWatch)
	f.RetryWatch()
	if !next(Watch).Asks {
		t.Error("the waiter is forgotten after a failure")
	}
}
