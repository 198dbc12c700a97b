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

package member

import (
	"os"
	"strconv"
	"testing"
	"time"
)

const (
	// explored is how many histories there are by default.
	explored = 150
	// exploredSpan is how long faults happen in each, and exploredRest how soon after that the
	// ring has to be at rest.
	exploredSpan = 90 * time.Second
	exploredRest = 10 * time.Minute
	// exploredPause is the longest time from one fault to the next.
	exploredPause = 8 * time.Second
)

// TestDriverExploration has members live through random histories. A history follows from its
// seed, as far as the scheduler lets it:
//
//	RING_DRIVER_SEED=17         that one alone
//	RING_DRIVER_HISTORIES=1000  seeds 1 to 1000
//	RING_DRIVER_FAULTS=kills    these classes of faults, instead of some that the seed draws
func TestDriverExploration(t *testing.T) {
	first, n := int64(1), number(t, "RING_DRIVER_HISTORIES", explored)
	if seed := number(t, "RING_DRIVER_SEED", 0); seed != 0 {
		first, n = seed, 1
	}
	for seed := first; seed < first+n; seed++ {
		t.Run(strconv.FormatInt(seed, 10), func(t *testing.T) {
			t.Parallel()
			faults := drawFaults(newDice(seed, "faults"))
			if names := os.Getenv("RING_DRIVER_FAULTS"); names != "" {
				var err error
				if faults, err = faultsOf(names); err != nil {
					t.Fatal(err)
				}
			}
			explore(t, seed, faults)
		})
	}
}

// number returns what a variable of the environment says.
func number(t *testing.T, name string, otherwise int64) int64 {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// explore is one history: faults happen, stop, and the ring comes to rest.
func explore(t *testing.T, seed int64, faults faults) {
	inWorld(t, seed, faults, func(w *world) {
		d := newDice(seed, "history")
		w.form(2 + d.below(3))
		w.disturbed.Store(true)
		if faults.leaders {
			w.running.Go(w.leaders.run)
		}
		for begun := time.Now(); time.Since(begun) < exploredSpan; {
			time.Sleep(d.upTo(exploredPause))
			faults.happen(w, d)
		}
		w.settleDown()
		for len(w.living()) < 2 {
			w.start("last")
		}
		w.rest()
		for _, p := range w.living() {
			if err := replay(p.Snapshot()); err != nil {
				w.violation("%s does not decide the same again: %v", p.holder, err)
			}
		}
		w.judge.end()
		w.judge.verdict()
		w.summarize()
	})
}

// rest waits until the ring is at rest.
func (w *world) rest() {
	for until := time.Now().Add(exploredRest); time.Now().Before(until); time.Sleep(time.Second) {
		w.undrain()
		if w.unrest() == "" {
			return
		}
	}
	w.violation("the ring does not come to rest: %s\n%s", w.unrest(), snapshots(w.all()))
}

// summarize logs what has happened.
func (w *world) summarize() {
	registrations := 0
	for _, p := range w.all() {
		registrations += int(p.registrations.Load())
	}
	w.truth.lock.Lock()
	entered, written, refused := w.truth.entered, w.truth.written, w.truth.refused
	w.truth.lock.Unlock()
	j := w.judge
	w.t.Logf("seed %d, faults %v, %v: %d processes, %d registrations, %d pieces of work, %d writes, %d refused; without a worker %v, unexplained %v, explained %s",
		w.seed, w.faults, sinceEpoch(), len(w.all()), registrations, entered, written, refused, j.unserved, j.unexplained, reasons(j.explained))
}
