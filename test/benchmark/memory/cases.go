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
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/rangewatch"
)

// caseOf describes a case: an informer, the range it holds at first, and what happens.
type caseOf struct {
	name string
	// ours makes the informer follow a range. Otherwise it is upstream's.
	ours, incomplete bool
	field            rangewatch.FieldPath
	// from and to are the part of all keys that the informer holds before and after.
	from, to float64
	// changed is the part of the pods that changes while the watch is cut. It is negative
	// in cases without a relist.
	changed float64
	// initial measures the first list, and cut cuts its stream half-way.
	initial, cut bool
	// blocks makes the handler block while pods change.
	blocks bool
}

var cases = []caseOf{
	{name: "initial sync, upstream", initial: true, from: 1, to: 1, changed: -1},
	{name: "initial sync", ours: true, initial: true, from: 1, to: 1, changed: -1},
	{name: "interrupted stream, upstream", initial: true, cut: true, from: 1, to: 1, changed: -1},
	{name: "interrupted stream", ours: true, initial: true, cut: true, from: 1, to: 1, changed: -1},
	{name: "relist, 0 % changed, upstream", from: 1, to: 1},
	{name: "relist, 0 % changed", ours: true, from: 1, to: 1},
	{name: "relist, 10 % changed, upstream", from: 1, to: 1, changed: 0.1},
	{name: "relist, 10 % changed", ours: true, from: 1, to: 1, changed: 0.1},
	{name: "relist, 100 % changed, upstream", from: 1, to: 1, changed: 1},
	{name: "relist, 100 % changed", ours: true, from: 1, to: 1, changed: 1},
	{name: "relist without completeness, 100 % changed", ours: true, incomplete: true, from: 1, to: 1, changed: 1},
	{name: "growth by 10 %", ours: true, from: 1 / 1.1, to: 1, changed: -1},
	{name: "growth by 50 %", ours: true, from: 1 / 1.5, to: 1, changed: -1},
	{name: "shrink by 50 %", ours: true, from: 1, to: 0.5, changed: -1},
	{name: "blocked handler, 10 % changed, upstream", from: 1, to: 1, changed: -1, blocks: true},
	{name: "blocked handler, 10 % changed", ours: true, from: 1, to: 1, changed: -1, blocks: true},
	{name: "a quarter by controller", ours: true, initial: true, field: rangewatch.ByControllerHashKey, from: 0.25, to: 0.25, changed: -1},
}

// result is what a case measured, in bytes unless noted.
type result struct {
	Name string
	// Before and After are the live bytes before and after the measurement, and Peak is
	// the maximum during it.
	Before, After uint64
	Peak          usage
	PeakRSS       uint64
	Received      int64
	Allocated     uint64
	Allocations   uint64
	// PodsBefore and PodsAfter are the numbers of stored pods.
	PodsBefore, PodsAfter int
	Seconds               float64
}

func runCase(ctx context.Context, kubeconfig, name string, pods int) error {
	for _, c := range cases {
		if c.name != name {
			continue
		}
		r, err := c.run(ctx, kubeconfig, pods)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(r)
	}
	return fmt.Errorf("no such case: %q", name)
}

func part(of float64) hashkey.Ranges {
	if of == 1 {
		return hashkey.All()
	}
	return hashkey.NewRanges(hashkey.Range{Start: 0, End: uint64(of * float64(uint64(hashkey.Limit)))})
}

// handler counts updates, and blocks while block is set.
type handler struct {
	updates atomic.Int64
	block   atomic.Pointer[chan struct{}]
}

func (h *handler) OnAdd(any, bool) {}
func (h *handler) OnDelete(any)    {}
func (h *handler) OnUpdate(any, any) {
	if block := h.block.Load(); block != nil {
		<-*block
	}
	h.updates.Add(1)
}

// caseRun is a case under way.
type caseRun struct {
	caseOf
	pods     int
	meter    *meter
	handler  *handler
	informer cache.SharedIndexInformer
	// source is nil for upstream's informer.
	source *rangewatch.Source

	result result
	// stats are the runtime's counts when the measurement began, at begin.
	stats runtime.MemStats
	begin time.Time
	// stopSampling ends the samples that are taken at fixed intervals.
	stopSampling func()
}

func (c caseOf) run(ctx context.Context, kubeconfig string, pods int) (result, error) {
	r, err := c.prepare(kubeconfig, pods)
	if err != nil {
		return result{}, err
	}
	if c.initial {
		r.startMeasuring()
	}
	if err := r.sync(ctx); err != nil {
		return result{}, err
	}
	switch {
	case c.initial:
	case c.changed >= 0:
		err = r.relist(ctx)
	case c.blocks:
		err = r.changeWhileBlocked(ctx)
	default:
		err = r.moveRange(ctx)
	}
	if err != nil {
		return result{}, err
	}
	return r.finish(), nil
}

// prepare makes the informer, with the meter on its connection.
func (c caseOf) prepare(kubeconfig string, pods int) (*caseRun, error) {
	if c.field == "" {
		c.field = rangewatch.ByHashKey
	}
	const podSize = 5 << 10
	m := &meter{every: int64(float64(pods)*max(c.from, c.to)) * podSize / 50, bodies: map[*body]struct{}{}}
	if c.cut {
		m.cutAfter = int64(pods) * podSize / 2
	}
	client, err := clientFor(kubeconfig, m)
	if err != nil {
		return nil, err
	}
	r := &caseRun{caseOf: c, pods: pods, meter: m, handler: &handler{}, result: result{Name: c.name}}
	if r.informer, r.source, err = c.newInformer(client, m, pods); err != nil {
		return nil, err
	}
	_, err = r.informer.AddEventHandler(r.handler)
	return r, err
}

// sync starts the informer and waits until it holds the case's first range.
func (r *caseRun) sync(ctx context.Context) error {
	go r.informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), r.informer.HasSynced) {
		return ctx.Err()
	}
	if r.source == nil {
		return nil
	}
	return until(ctx, func() bool { return r.source.Held().Equal(part(r.from)) })
}

// relist changes pods while the watch is cut, and waits until a relist has delivered
// them.
func (r *caseRun) relist(ctx context.Context) error {
	allow := r.meter.cut()
	if err := change(int(r.changed * float64(r.pods))); err != nil {
		return err
	}
	r.startMeasuring()
	allow()
	// A relist updates every object at the handlers, unless it goes object by object.
	return until(ctx, func() bool {
		return r.updates() >= r.pods && (r.source == nil || r.source.Held().Equal(part(r.to)))
	})
}

// changeWhileBlocked changes a tenth of the pods while the handler is blocked, then
// lets it go on.
func (r *caseRun) changeWhileBlocked(ctx context.Context) error {
	block := make(chan struct{})
	r.handler.block.Store(&block)
	old := revision(r.informer.GetStore().LastStoreSyncResourceVersion())
	r.startMeasuring()
	if err := change(r.pods / 10); err != nil {
		return err
	}
	err := until(ctx, func() bool {
		n := 0
		for _, obj := range r.informer.GetStore().List() {
			if revision(obj.(*v1.Pod).ResourceVersion) > old {
				n++
			}
		}
		return n >= r.pods/10
	})
	r.meter.sample()
	r.handler.block.Store(nil)
	close(block)
	if err != nil {
		return err
	}
	return until(ctx, func() bool { return r.updates() >= r.pods/10 })
}

// moveRange has the informer follow the case's second range, and waits until it holds
// that and nothing else.
func (r *caseRun) moveRange(ctx context.Context) error {
	r.startMeasuring()
	r.source.SetRanges(part(r.to))
	return until(ctx, func() bool {
		if !r.source.Held().Equal(part(r.to)) {
			return false
		}
		for _, obj := range r.informer.GetStore().List() {
			if !part(r.to).Contains(metav1.HashKeyOf(obj.(*v1.Pod))) {
				return false
			}
		}
		return true
	})
}

func (r *caseRun) updates() int { return int(r.handler.updates.Load()) }

func (r *caseRun) stored() int { return len(r.informer.GetStore().ListKeys()) }

func (r *caseRun) startMeasuring() {
	r.result.Before, r.result.PodsBefore = live(), r.stored()
	r.meter.reset()
	runtime.ReadMemStats(&r.stats)
	r.begin, r.stopSampling = time.Now(), r.meter.watchHeap()
}

// finish ends the measurement and returns its result.
func (r *caseRun) finish() result {
	r.result.Seconds = time.Since(r.begin).Seconds()
	r.stopSampling()
	r.meter.sample()
	var after runtime.MemStats
	runtime.ReadMemStats(&after)
	r.result.Allocated, r.result.Allocations = after.TotalAlloc-r.stats.TotalAlloc, after.Mallocs-r.stats.Mallocs
	r.meter.mu.Lock()
	r.result.Received, r.result.Peak = r.meter.received, r.meter.peak
	r.meter.mu.Unlock()
	r.result.PeakRSS = peakRSS()
	r.result.After, r.result.PodsAfter = live(), r.stored()
	runtime.KeepAlive(r.informer)
	return r.result
}

// until waits until condition returns true.
func until(ctx context.Context, condition func() bool) error {
	return wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) { return condition(), nil })
}

func revision(resourceVersion string) uint64 {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		panic(err) // the API server's resource versions are numbers
	}
	return n
}

// newInformer returns the case's informer, and its source if it follows a range.
func (c caseOf) newInformer(client kubernetes.Interface, m *meter, pods int) (cache.SharedIndexInformer, *rangewatch.Source, error) {
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (apiruntime.Object, error) {
			return client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
		},
		WatchFuncWithContext: client.CoreV1().Pods(metav1.NamespaceAll).Watch,
	}, client)
	options := cache.SharedIndexInformerOptions{Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}}
	var i cache.SharedIndexInformer
	var source *rangewatch.Source
	if c.ours {
		var err error
		source, err = rangewatch.NewSource(rangewatch.Config{Field: c.field, ListWatch: lw, Object: &v1.Pod{}, IncompleteRelists: c.incomplete})
		if err != nil {
			return nil, nil, err
		}
		source.SetRanges(part(c.from))
		i = source.NewInformer(options)
	} else {
		i = cache.NewSharedIndexInformerWithOptions(lw, &v1.Pod{}, options)
	}
	var transformed atomic.Int64
	return i, source, i.SetTransform(func(obj any) (any, error) {
		// As in kube-controller-manager. Sampling here also covers upstream's informers,
		// which transform a list once it is complete.
		if pod := obj.(*v1.Pod); pod.ManagedFields != nil {
			pod.ManagedFields = nil
		}
		if n := transformed.Add(1); n%int64(pods/10) == 0 {
			m.sample()
		}
		return obj, nil
	})
}

var answers = bufio.NewScanner(os.Stdin)

// change has the parent process change n pods, and waits for that.
func change(n int) error {
	if n == 0 {
		return nil
	}
	fmt.Println(n)
	if !answers.Scan() {
		return fmt.Errorf("the parent process did not change the pods: %w", answers.Err())
	}
	return nil
}
