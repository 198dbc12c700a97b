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

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/pkg/ringtable"
	"k8s.io/kubernetes/test/benchmark/measure"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/ownership"
	"k8s.io/kubernetes/test/harness/proxy"
)

// process is a controller manager, behind a proxy of its own.
type process struct {
	name  string
	proxy *proxy.Proxy
	// owned has the keys that it owned when the ring last settled.
	owned hashkey.Ranges
}

func (b *benchmark) newProcess() (*process, error) {
	proxy, err := measure.NewProxy(b.cluster)
	return &process{proxy: proxy}, err
}

func (b *benchmark) start(ctx context.Context, p *process, args ...string) (err error) {
	p.name, err = b.cluster.AddControllerManager(ctx, append(args, "--master="+p.proxy.URL())...)
	return err
}

// live returns the live bytes of the process.
func (b *benchmark) live(ctx context.Context, p *process) (uint64, error) {
	least, err := measure.LeastLive(ctx, b.cluster, p.name)
	if err == nil {
		log.Printf("%s: %s live", p.name, size(float64(least)))
	}
	return least, err
}

// settle waits until these processes make up the ring with no handover open, and each
// has reported its number of ReplicaSets, which it does once that has changed by a tenth.
// A joining instance chooses its donor by it.
func (b *benchmark) settle(ctx context.Context, ring []*process) error {
	return harness.Await(ctx, soon, 50*time.Millisecond, "the ring", func(ctx context.Context) error { return b.unsettled(ctx, ring) })
}

func (b *benchmark) unsettled(ctx context.Context, ring []*process) error {
	now, err := ringtable.Get(ctx, b.client, catalogue.WorkloadsRing)
	if err != nil {
		return err
	}
	if len(now.Instances) != len(ring) {
		return fmt.Errorf("there are %d instances, want %d", len(now.Instances), len(ring))
	}
	byPID := map[int]ringtable.Instance{}
	for _, i := range now.Instances {
		owned := int64(b.setsIn(i.Owned) + b.podsIn(i.Owned))
		missed := i.Weight - owned
		if i.Phase != shardingv1alpha1.InstanceActive || !i.Coming.Empty() || max(missed, -missed) > i.Weight/10 {
			return fmt.Errorf("instance %s is %s with %d ReplicaSets and pods, of %d that it owns", i.Name, i.Phase, i.Weight, owned)
		}
		if pid, ok := ownership.PID(i.Holder); ok {
			byPID[pid] = i
		}
	}
	for _, p := range ring {
		pid, err := b.cluster.PID(p.name)
		if err != nil {
			return err
		}
		i, ok := byPID[pid]
		if !ok {
			return fmt.Errorf("%s is not in the ring", p.name)
		}
		p.owned = i.Owned
	}
	return nil
}
