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
	"time"

	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/report"
)

// outcome is what slowness did to a side.
type outcome struct {
	counts
	// back is how long after its end every key had a worker for good; 0: before.
	back time.Duration
}

// cell is one slowness, and what it did to ours and to stock.
type cell struct {
	what        string
	latency     time.Duration
	lasts       time.Duration
	ours, stock outcome
}

// scene is both sides behind proxies, with what each has listed at its start.
type scene struct {
	sides
	cold map[*side]counts
}

// startScene starts both sides with objects, and then their controller managers.
func (b *benchmark) startScene(ctx context.Context, section string) (*scene, error) {
	all, err := b.start(ctx, section, b.settings(), false, true)
	if err != nil {
		return nil, err
	}
	scene := &scene{sides: all, cold: map[*side]counts{}}
	err = all.each(ctx, func(ctx context.Context, s *side) error {
		if err := s.createAll(ctx, b.workload); err != nil {
			return err
		}
		if b.apart && !s.stock {
			if err := s.addLeader(ctx); err != nil {
				return err
			}
		}
		if err := s.addAll(ctx, managers, true); err != nil {
			return err
		}
		return s.rest(ctx)
	})
	if err != nil {
		all.end()
		return nil, err
	}
	for _, s := range all {
		scene.cold[s] = s.now()
		cold := scene.cold[s].lists().all
		log.Printf("%s: started; %d lists, %s", s.name, cold.requests, report.Megabytes(cold.bytes))
	}
	return scene, nil
}

// suffer makes all proxies slow for as long as the cell says, heals them, and notes what that did.
func (scene *scene) suffer(ctx context.Context, c *cell, after time.Duration, slow, heal func(*proxy) error) error {
	err := scene.each(ctx, func(ctx context.Context, s *side) error {
		before := s.now()
		if err := s.proxies(slow); err != nil {
			return err
		}
		if err := harness.Sleep(ctx, c.lasts); err != nil {
			return err
		}
		if err := s.proxies(heal); err != nil {
			return err
		}
		healed := time.Now()
		if err := harness.Sleep(ctx, after); err != nil {
			return err
		}
		if err := s.settle(ctx, managers); err != nil {
			return err
		}
		o := outcome{counts: s.since(before)}
		if since, _ := s.unserved.whole(); since.After(healed) {
			o.back = since.Sub(healed)
		}
		if s.stock {
			c.stock = o
		} else {
			c.ours = o
		}
		return nil
	})
	log.Printf("%s, %v for %v: ours %+v, stock %+v", c.what, c.latency, c.lasts, c.ours, c.stock)
	return err
}

// places are where a request may take longer.
var places = map[string]func(time.Duration) *slowness{"server": slowServer, "network": slowNetwork}

// measureBrownouts makes every request take longer, for a while.
func measureBrownouts(ctx context.Context, b *benchmark) (report string, err error) {
	scene, err := b.startScene(ctx, "brownout")
	if err != nil {
		return "", err
	}
	defer scene.end()
	var cells []cell
	for _, where := range b.where {
		for _, lasts := range b.durations {
			for _, latency := range b.latencies {
				c := cell{what: where, latency: latency, lasts: lasts}
				err := scene.suffer(ctx, &c, b.after,
					func(p *proxy) error { p.slow(places[where](latency)); return nil },
					func(p *proxy) error { p.slow(&slowness{}); return nil })
				if err != nil {
					return scene.brownouts(b, cells), fmt.Errorf("%s, %v for %v: %w", where, latency, lasts, err)
				}
				cells = append(cells, c)
			}
		}
	}
	return scene.brownouts(b, cells), nil
}

// measureOutages takes the API server away, for a while.
func measureOutages(ctx context.Context, b *benchmark) (report string, err error) {
	scene, err := b.startScene(ctx, "outage")
	if err != nil {
		return "", err
	}
	defer scene.end()
	var cells []cell
	for _, kind := range []struct {
		what       string
		lasts      []time.Duration
		slow, heal func(*proxy) error
	}{
		{"refused", b.refused, (*proxy).refuse, (*proxy).accept},
		{"silent", b.silent, func(p *proxy) error { p.silence(); return nil }, func(p *proxy) error { p.speak(); return nil }},
	} {
		for _, lasts := range kind.lasts {
			c := cell{what: kind.what, lasts: lasts}
			if err := scene.suffer(ctx, &c, b.after, kind.slow, kind.heal); err != nil {
				return scene.outages(b, cells), fmt.Errorf("%s for %v: %w", kind.what, lasts, err)
			}
			cells = append(cells, c)
		}
	}
	return scene.outages(b, cells), nil
}
