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
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/test/benchmark/measure"
	"k8s.io/kubernetes/test/harness"
)

const (
	// pause is how long the recording lasts before the join, and after it.
	pause         = 5 * time.Second
	receivedEvery = 100 * time.Millisecond
	// Each process needs tens of milliseconds of CPU time for a collection.
	liveEvery = 500 * time.Millisecond
)

// recording records the join of an instance. All times are since the start of its
// process.
type recording struct {
	// ring has the processes in order of their start, the receiver last.
	ring []*process
	// live and received have the samples of each process, in the same order. Received
	// bytes are counted from the beginning of the recording.
	live, received [][]sample
	// joined is when the ring had settled again.
	joined time.Duration
}

type sample struct {
	at    time.Duration
	bytes float64
}

// join has one more instance join the ring, and records it.
func (b *benchmark) join(ctx context.Context, ring []*process) (*recording, error) {
	receiver, err := b.newProcess()
	if err != nil {
		return nil, err
	}
	ring = append(ring, receiver)
	r := &recording{ring: ring, live: make([][]sample, len(ring)), received: make([][]sample, len(ring))}
	begin := time.Now().Add(pause)
	recordCtx, stop := context.WithCancel(ctx)
	var recorders sync.WaitGroup
	recorders.Go(func() { r.recordReceived(recordCtx, begin) })
	recorders.Go(func() { r.recordLive(recordCtx, begin, b) })
	defer recorders.Wait()
	defer stop()

	log.Printf("recording %d instances of a settled ring for %v", instances, pause)
	if err := harness.Sleep(ctx, time.Until(begin)); err != nil {
		return nil, err
	}
	log.Print("one more instance joins")
	if err := b.start(ctx, receiver); err != nil {
		return nil, err
	}
	if err := b.settle(ctx, ring); err != nil {
		return nil, err
	}
	r.joined = time.Since(begin)
	log.Printf("it joined within %.1f s; recording for another %v", r.joined.Seconds(), pause)
	return r, harness.Sleep(ctx, pause)
}

func (r *recording) recordReceived(ctx context.Context, begin time.Time) {
	before := make([]int64, len(r.ring))
	for i, p := range r.ring {
		before[i] = p.proxy.Received()
	}
	for ctx.Err() == nil {
		for i, p := range r.ring {
			r.received[i] = append(r.received[i], sample{time.Since(begin), float64(p.proxy.Received() - before[i])})
		}
		_ = harness.Sleep(ctx, receivedEvery)
	}
}

func (r *recording) recordLive(ctx context.Context, begin time.Time, b *benchmark) {
	for ctx.Err() == nil {
		var all sync.WaitGroup
		// ControllerManagers has the processes of the ring in the same order.
		for i, name := range b.cluster.ControllerManagers() {
			all.Go(func() {
				// A process that is starting does not answer yet.
				if live, err := measure.Live(ctx, b.cluster, name); err == nil {
					r.live[i] = append(r.live[i], sample{time.Since(begin), float64(live)})
				}
			})
		}
		all.Wait()
		_ = harness.Sleep(ctx, liveEvery)
	}
}

// during returns the bytes that a process received from the start of the receiver to the
// end of the recording.
func (r *recording) during(i int) float64 {
	all := r.received[i]
	return all[len(all)-1].bytes - r.before(i)
}

// before returns the bytes that a process received before the join.
func (r *recording) before(i int) (bytes float64) {
	for _, s := range r.received[i] {
		if s.at > 0 {
			break
		}
		bytes = s.bytes
	}
	return bytes
}

// sizeOf returns the bytes that upstream's informers receive to list the ranges.
func (b *benchmark) sizeOf(ctx context.Context, ranges hashkey.Ranges) (float64, error) {
	proxy, err := measure.NewProxy(b.cluster)
	if err != nil {
		return 0, err
	}
	config := b.cluster.RESTConfig()
	config.Host = proxy.URL()
	config.DisableCompression = true // as in controller managers
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	factory := func(field string) informers.SharedInformerFactory {
		return informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.ShardSelector = ranges.Selector(field)
		}))
	}
	sets := factory(sharding.HashKeyPath).Apps().V1().ReplicaSets().Informer()
	pods := factory(sharding.ControllerHashKeyPath).Core().V1().Pods().Informer()
	go sets.RunWithContext(ctx)
	go pods.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), sets.HasSynced, pods.HasSynced) {
		return 0, context.Cause(ctx)
	}
	received := float64(proxy.Received())
	if got, want := len(pods.GetStore().ListKeys()), b.podsIn(ranges); got != want {
		return 0, fmt.Errorf("the moved range has %d pods, want %d", got, want)
	}
	log.Printf("the moved range: %d ReplicaSets, %d pods, %s", b.setsIn(ranges), b.podsIn(ranges), size(received))
	return received, nil
}
