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
	"log"
	"time"

	"k8s.io/kubernetes/pkg/localcluster"
	"k8s.io/kubernetes/test/harness"
)

// restarted is what restarts of the API server did to a side.
type restarted struct {
	side, how string
	// away is how long there was no API server, each time.
	away []time.Duration
	// any counts the restarts by which something was lost, and counts add up all.
	any int
	counts
}

// waysToEnd are the ways in which an API server ends.
var waysToEnd = []struct {
	how string
	end func(context.Context, *localcluster.Cluster) error
}{
	{"kill -9", func(_ context.Context, c *localcluster.Cluster) error { return c.Kill(apiServerName) }},
	{"SIGTERM", func(ctx context.Context, c *localcluster.Cluster) error { return c.StopProcess(ctx, apiServerName) }},
}

// measureRestarts ends the API server and starts it again, each time once all is well.
func measureRestarts(ctx context.Context, b *benchmark) (string, error) {
	all, err := b.start(ctx, "restart", b.settings(), false, true)
	if err != nil {
		return "", err
	}
	defer all.end()
	results := make([][]restarted, len(all))
	err = all.each(ctx, func(ctx context.Context, s *side) error {
		if err := s.createAll(ctx, b.workload); err != nil {
			return err
		}
		if err := s.addAll(ctx, managers, false); err != nil {
			return err
		}
		of := &results[0]
		if s.stock {
			of = &results[1]
		}
		for _, way := range waysToEnd {
			*of = append(*of, restarted{side: s.name, how: way.how})
			r := &(*of)[len(*of)-1]
			for i := range b.restarts {
				if err := s.restart(ctx, way.end, r); err != nil {
					return err
				}
				log.Printf("restart, %s, %s: %d of %d: %+v", s.name, way.how, i+1, b.restarts, *r)
			}
		}
		return nil
	})
	return renderRestarts(results), err
}

// restart ends the API server, starts it again, and adds up what that did.
func (s *side) restart(ctx context.Context, end func(context.Context, *localcluster.Cluster) error, r *restarted) error {
	before, begin := s.now(), time.Now()
	if err := end(ctx, s.cluster); err != nil {
		return err
	}
	if err := s.cluster.StartAgain(ctx, apiServerName); err != nil {
		return err
	}
	r.away = append(r.away, time.Since(begin))
	// What is lost is noticed within a second, and has settled after that.
	if err := harness.Sleep(ctx, 2*time.Second); err != nil {
		return err
	}
	if err := s.settle(ctx, managers); err != nil {
		return err
	}
	c := s.since(before)
	if c.lost+c.leaders+c.ended > 0 {
		r.any++
	}
	r.lost, r.leaders, r.ended, r.unserved = r.lost+c.lost, r.leaders+c.leaders, r.ended+c.ended, r.unserved+c.unserved
	return nil
}
