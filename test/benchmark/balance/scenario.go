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

import (
	"context"
	"fmt"
	"log"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/pkg/localcluster"
	"k8s.io/kubernetes/pkg/ringtable"
	"k8s.io/kubernetes/test/harness"
)

const (
	// most is how many controller managers there are at most, killed how many of them are killed,
	// and restarted how many are left for the rolling restart.
	most, killed, restarted = 10, 3, 5
	// calm is for how long the load has to be even, without a move, before a phase ends. It lasts
	// at least and at most so long after what happens in it; longest is the limit of one in which
	// many keys have to move at the rate of a calm ring.
	calm          = 30 * time.Second
	atLeast       = time.Minute
	atMost        = 3 * time.Minute
	longest       = 7 * time.Minute
	beforeRolling = 20 * time.Second
	// killEvery is between two kills while objects come and go.
	killEvery = 5 * time.Minute
	pollEvery = 250 * time.Millisecond
)

// result is what was measured in one mode.
type result struct {
	mode   string
	phases []phase
	events []event
	// handovers counts moves of a boundary by their result: warm, cold or called_off.
	handovers tally
}

type tally map[string]int

// bench is a cluster with its controller managers.
type bench struct {
	*settings
	*result
	cluster  *localcluster.Cluster
	client   kubernetes.Interface
	records  records
	managers []string
	// counters has the handovers that each process has counted, by its name and pid.
	counters map[string]map[string]int
	// churned is the state of the objects that come and go.
	churned churned
}

// scenario goes through all phases.
func (b *bench) scenario(ctx context.Context) error {
	b.handovers = tally{}
	if err := b.fill(ctx); err != nil {
		return err
	}
	if err := b.add(ctx, 1); err != nil {
		return err
	}
	if err := b.settled(ctx); err != nil {
		return err
	}
	if err := b.told(ctx, int64(b.objects)); err != nil {
		return err
	}
	if err := b.phase(ctx, phase{name: fmt.Sprintf("%d join 1", most-1), within: true}, atMost, func(ctx context.Context) error {
		if err := b.add(ctx, most-1); err != nil {
			return err
		}
		return b.settled(ctx)
	}); err != nil {
		return err
	}
	if err := b.phase(ctx, phase{name: fmt.Sprintf("%d of %d killed", killed, most), within: true}, atMost, func(ctx context.Context) error {
		// Not neighbours by start, and the first leads.
		return b.kill(ctx, b.managers[2], b.managers[5], b.managers[8])
	}); err != nil {
		return err
	}
	if b.settings.calm {
		log.Printf("waiting until no instance has gone for %v", free)
		if err := harness.Sleep(ctx, free); err != nil {
			return err
		}
	}
	if err := b.phase(ctx, phase{name: "one key gets half of all pods", within: true}, longest, b.grow); err != nil {
		return err
	}
	if err := b.phase(ctx, phase{name: "everything deleted", within: true}, atMost, b.deleteAll); err != nil {
		return err
	}
	// Without balance no boundary would move.
	if b.churn > 0 && b.mode == enabled {
		if err := b.phase(ctx, phase{name: fmt.Sprintf("objects come and go for %v", b.churn)}, atLeast, b.comeAndGo); err != nil {
			return err
		}
		log.Print("deleting everything")
		if err := b.deleteAll(ctx); err != nil {
			return err
		}
	}
	return b.rolling(ctx)
}

// phase does something, waits until the load is even, and notes when that was.
func (b *bench) phase(ctx context.Context, p phase, atMost time.Duration, do func(context.Context) error) error {
	if b.mode != enabled {
		atMost = min(atMost, atLeast)
	}
	log.Printf("balance %s: %s", b.mode, p.name)
	p.begin = time.Now()
	if err := do(ctx); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	p.done = time.Now()
	log.Printf("done after %.0f s; waiting until the load is even", p.done.Sub(p.begin).Seconds())
	if err := b.hold(ctx, atLeast, atMost); err != nil {
		return err
	}
	if err := b.count(ctx, b.managers...); err != nil {
		return err
	}
	p.end = time.Now()
	b.phases = append(b.phases, p)
	f := replay(b.records.all()).of(p)
	even := fmt.Sprintf("even %.0f s after the begin, %.0f s after it was done", f.even.Sub(p.begin).Seconds(), max(0, f.even.Sub(p.done).Seconds()))
	if f.never {
		even = "not even"
	}
	log.Printf("max : mean %.2f (%.2f beside heavy keys), %s; %d moves by balance of %.1f %% of all keys, %d back", f.last.ratio, f.last.counted, even, f.moves, 100*f.moved[byBalance], f.back)
	return nil
}

// hold waits at least and at most so long, in between until the load has been even and no key has
// changed hands for a while.
func (b *bench) hold(ctx context.Context, atLeast, atMost time.Duration) error {
	begin := time.Now()
	told := 0
	for {
		if err := b.records.Failed(); err != nil {
			return err
		}
		h := replay(b.records.all())
		var stirred time.Time
		for _, l := range h.loads {
			if !l.even {
				stirred = l.at
			}
		}
		if n := len(h.changes); n > 0 && h.changes[n-1].at.After(stirred) {
			stirred = h.changes[n-1].at
		}
		last := h.loads[len(h.loads)-1]
		since := time.Since(begin)
		if since >= atMost || since >= atLeast && last.even && time.Since(stirred) >= calm {
			return nil
		}
		if minutes := int(since / (30 * time.Second)); minutes > told {
			told = minutes
			log.Printf("after %.0f s: max : mean %.2f (%.2f beside heavy keys) of %d", since.Seconds(), last.ratio, last.counted, last.owners)
		}
		if err := harness.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// rolling restarts five controller managers one after the other.
func (b *bench) rolling(ctx context.Context) error {
	log.Printf("scaling down to %d controller managers", restarted)
	for len(b.managers) > restarted {
		name := b.managers[len(b.managers)-1]
		if err := b.count(ctx, name); err != nil {
			return err
		}
		if err := b.cluster.StopProcess(ctx, name); err != nil {
			return err
		}
		b.managers = b.managers[:len(b.managers)-1]
	}
	if err := b.settled(ctx); err != nil {
		return err
	}
	if err := b.createControllers(ctx, b.objects/2); err != nil {
		return err
	}
	if err := b.told(ctx, int64(b.objects/2)); err != nil {
		return err
	}
	limit := atMost
	if b.mode != enabled {
		limit = beforeRolling
	}
	if err := b.hold(ctx, beforeRolling, limit); err != nil {
		return err
	}
	return b.phase(ctx, phase{name: fmt.Sprintf("rolling restart of %d", restarted), rolling: true}, atLeast, func(ctx context.Context) error {
		for _, name := range b.managers {
			if err := b.count(ctx, name); err != nil {
				return err
			}
			begin := time.Now()
			if err := b.cluster.StopProcess(ctx, name); err != nil {
				return err
			}
			stopped := time.Since(begin)
			if err := b.cluster.StartAgain(ctx, name); err != nil {
				return err
			}
			if err := b.settled(ctx); err != nil {
				return err
			}
			log.Printf("%s was stopped in %.1f s, and the ring is Active again after %.1f s", name, stopped.Seconds(), time.Since(begin).Seconds())
		}
		return nil
	})
}

// add starts n more controller managers at once.
func (b *bench) add(ctx context.Context, n int) error {
	names, err := b.cluster.AddControllerManagers(ctx, n)
	if err != nil {
		return err
	}
	b.managers = append(b.managers, names...)
	return nil
}

// kill ends these with SIGKILL.
func (b *bench) kill(ctx context.Context, names ...string) error {
	if err := b.count(ctx, names...); err != nil {
		return err
	}
	for _, name := range names {
		if err := b.cluster.Kill(name); err != nil {
			return err
		}
		log.Printf("killed %s", name)
	}
	left := b.managers
	b.managers = nil
	for _, name := range left {
		if !strings.Contains(" "+strings.Join(names, " ")+" ", " "+name+" ") {
			b.managers = append(b.managers, name)
		}
	}
	return nil
}

// settled waits until all controller managers are on the ring, and work on all keys.
func (b *bench) settled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	for {
		ring, err := ringtable.Get(ctx, b.client, catalogue.WorkloadsRing)
		if err != nil {
			return err
		}
		owners := 0
		for _, i := range ring.Instances {
			if !i.Owned.Empty() {
				owners++
			}
		}
		problems := ring.Problems()
		if len(ring.Instances) == len(b.managers) && owners == len(b.managers) && ring.Active() == owners && len(problems) == 0 {
			return nil
		}
		if err := harness.Sleep(ctx, pollEvery); err != nil {
			return fmt.Errorf("waiting for a ring of %d, it has %d, of which %d own a range and %d are Active, and %q: %w", len(b.managers), len(ring.Instances), owners, ring.Active(), problems, err)
		}
	}
}

// told waits until the records tell of nearly that many objects. An instance tells what it has once
// that has changed by a tenth.
func (b *bench) told(ctx context.Context, objects int64) error {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	for {
		if err := b.records.Failed(); err != nil {
			return err
		}
		h := replay(b.records.all())
		last := h.loads[len(h.loads)-1]
		sum := int64(last.mean*float64(last.owners) + 0.5)
		if 10*sum >= 9*objects {
			log.Printf("the ring has %d objects by its weight, and %d were created", sum, objects)
			return nil
		}
		if err := harness.Sleep(ctx, pollEvery); err != nil {
			return fmt.Errorf("the ring has %d of %d objects by its weight: %w", sum, objects, err)
		}
	}
}

// count reads from these processes how many moves of a boundary they have seen.
func (b *bench) count(ctx context.Context, names ...string) error {
	for _, name := range names {
		metrics, err := b.cluster.Get(ctx, name, "/metrics")
		if err != nil {
			return err
		}
		pid, err := b.cluster.PID(name)
		if err != nil {
			return err
		}
		b.counters[fmt.Sprintf("%s %d", name, pid)] = handoversIn(string(metrics))
	}
	return nil
}
