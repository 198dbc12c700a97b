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
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestSimulatedDay has many instances share many objects for a day: they start, crash, leave, are
// drained and upgraded while the load grows and shrinks, in the surroundings of
// docs/benchmarks/simulation.md. At all times no key has two workers, and nobody works on what it
// does not own. After each part of the day the ring comes to rest: all keys are worked on, no
// instance has much more than its share, and nothing moves any more.
//
//	RING_SIMULATION=long         1,000 instances, a million objects, 25 hours; otherwise 40 and 20,000
//	RING_SIMULATION_SEED=n       another day; 1 otherwise
//	RING_SIMULATION_INSTANCES=n  so many instances, with as many objects each
func TestSimulatedDay(t *testing.T) {
	how, err := readDay(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("RING_SIMULATION_SEED=%d: %d instances, %d keys", how.seed, how.instances, how.keys)
	var days []*day
	for _, policy := range []func(string) Policy{byDefault, nil} {
		began := time.Now()
		d := newDay(how.seed, how.size, policy)
		d.progress = func(line string) { t.Logf("%4.0f s  %s", time.Since(began).Seconds(), line) }
		err := d.run(dayScenes(how.size))
		days = append(days, d)
		t.Logf("balance %t: %d decisions in %.0f s", policy != nil, d.decisions, time.Since(began).Seconds())
		if err != nil {
			t.Errorf("seed %d, balance %t: %v", how.seed, policy != nil, err)
		}
		if d.wrong != nil {
			t.Logf("before that:\n%s", d.story(how.story))
			break
		}
	}
	t.Logf("\n%s", dayTable(days))
	for _, f := range days[0].phases {
		// Donors that decide at the same moment do not see each other's moves.
		if f.perMinute > 1.1*ByDefault.Rate {
			t.Errorf("in %q, balance moved %.1f%% of all keys in a minute", f.name, 100*f.perMinute)
		}
	}
}

// byDefault is the policy that instances have.
func byDefault(instance string) Policy { return NewBalancer(instance, false) }

// dayTable shows what was measured, with balance and without; docs/benchmarks/simulation.md
// explains the columns.
func dayTable(days []*day) string {
	var out strings.Builder
	row := func(cells ...any) {
		fmt.Fprintf(&out, "|%-17s|%4s|%11s|%7s|%5s|%6s|%5s|%4s|%5s|%5s|%5s|%5s|%5s|\n", cells...)
	}
	row("phase", "ring", "+ dead -", "idle", "for", "moved", "bal.", "min", "max", "even", "w/s", "peak", "off")
	fmt.Fprintln(&out, strings.Repeat("|---", 13)+"|")
	number := func(format string, x float64) string {
		if x == 0 {
			return "0"
		}
		return fmt.Sprintf(format, x)
	}
	for i, f := range days[0].phases {
		if f.seconds == 0 {
			break
		}
		even := ""
		if f.quiet {
			even = "never"
			if f.evenAt > 0 {
				even = fmt.Sprintf("%.0f", (f.evenAt - f.begin).Seconds())
			}
		}
		off := ""
		if len(days) > 1 && i < len(days[1].phases) {
			g := days[1].phases[i]
			off = fmt.Sprintf("%.2f", g.most/max(1, g.mean))
		}
		changes := ""
		if f.joins+f.deaths+f.leaves > 0 {
			changes = fmt.Sprintf("%d %d %d", f.joins, f.deaths, f.leaves)
		}
		row(f.name, fmt.Sprint(f.instances), changes, number("%.4f", max(0, 100*f.unworked/f.seconds)), number("%.1f", f.longest),
			number("%.1f", 100*f.byOthers), number("%.1f", 100*f.byBalance), number("%.1f", 100*f.perMinute),
			fmt.Sprintf("%.2f", f.most/max(1, f.mean)), even, number("%.1f", float64(f.writes+f.news)/f.seconds), fmt.Sprint(f.peak), off)
	}
	for i, d := range days {
		var moved, unworked, seconds float64
		for _, f := range d.phases {
			moved += f.byOthers + f.byBalance
			unworked += f.unworked
			seconds += f.seconds
		}
		fmt.Fprintf(&out, "%s balance: the line moved %.1f times, %.4f%% of all key-seconds unworked\n", []string{"with", "without"}[i], moved, 100*unworked/max(1, seconds))
	}
	return out.String()
}

// dayExtent is what the environment asks TestSimulatedDay for.
type dayExtent struct {
	size
	seed int64
	// story is how much of what happened before a failure is printed.
	story int
}

func readDay(getenv func(string) string) (dayExtent, error) {
	how := dayExtent{size: size{instances: 40, keys: 20_000}, seed: 1, story: 30}
	e := environment{getenv: getenv}
	if e.long("RING_SIMULATION") {
		how.size = size{instances: 1000, keys: 1_000_000, long: true}
	}
	if seed := e.number("RING_SIMULATION_SEED", 0, 1<<31-1); seed != nil {
		how.seed = int64(*seed)
	}
	if n := e.number("RING_SIMULATION_INSTANCES", 20, 5000); n != nil {
		how.keys = how.keys / how.instances * int(*n)
		how.instances = int(*n)
	}
	return how, e.err()
}

// A test that cannot fail shows nothing: without the drain, keys do not stay apart.
func TestASimulatedDayFindsAMissingDrain(t *testing.T) {
	s := size{instances: 40, keys: 20_000}
	d := newDay(1, s, byDefault)
	d.grantEarly = true
	err := d.run(dayScenes(s))
	if err == nil || !strings.Contains(err.Error(), "both work on") {
		t.Fatalf("found %v, want two workers", err)
	}
	t.Log(err)
}

func TestTheEnvironmentSaysWhichDayToSimulate(t *testing.T) {
	for name, tc := range map[string]struct {
		env       map[string]string
		instances int
		seed      int64
		err       string
	}{
		"nothing set":     {instances: 40, seed: 1},
		"long":            {env: map[string]string{"": "long"}, instances: 1000, seed: 1},
		"a seed":          {env: map[string]string{"_SEED": "7"}, instances: 40, seed: 7},
		"an unknown word": {env: map[string]string{"": "year"}, err: `RING_SIMULATION is "year", want long or nothing`},
		"a smaller ring":  {env: map[string]string{"": "long", "_INSTANCES": "200"}, instances: 200, seed: 1},
		"one instance":    {env: map[string]string{"_INSTANCES": "1"}, err: `RING_SIMULATION_INSTANCES is "1", want a number from 20 to 5000`},
		"a seed below 0":  {env: map[string]string{"_SEED": "-1"}, err: `RING_SIMULATION_SEED is "-1", want a number from 0 to 2147483647`},
	} {
		t.Run(name, func(t *testing.T) {
			how, err := readDay(func(variable string) string { return tc.env[strings.TrimPrefix(variable, "RING_SIMULATION")] })
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("error %v, want %s", err, tc.err)
				}
				return
			}
			if err != nil || how.instances != tc.instances || how.seed != tc.seed {
				t.Errorf("simulates %+v, %v; want %d instances and seed %d", how, err, tc.instances, tc.seed)
			}
		})
	}
}
