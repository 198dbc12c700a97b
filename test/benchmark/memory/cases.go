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
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/rangewatch"
	"k8s.io/kubernetes/test/benchmark/measure"
)

// caseOf describes a case: an informer, the range it holds at first, and what happens.
type caseOf struct {
	name  string
	as    follower
	field string
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

// follower is what follows the pods in a case.
type follower int

const (
	// upstreams is upstream's informer.
	upstreams follower = iota
	// ours is one that follows a range.
	ours
	// pages is one that lists in pages of 100.
	pages
	// metadataOnly is one of metadata alone.
	metadataOnly
	// stream has no store.
	stream
)

var cases = []caseOf{
	{name: "initial sync, upstream", initial: true, from: 1, to: 1, changed: -1},
	{name: "initial sync", as: ours, initial: true, from: 1, to: 1, changed: -1},
	{name: "interrupted stream, upstream", initial: true, cut: true, from: 1, to: 1, changed: -1},
	{name: "interrupted stream", as: ours, initial: true, cut: true, from: 1, to: 1, changed: -1},
	{name: "relist, 0 % changed, upstream", from: 1, to: 1},
	{name: "relist, 0 % changed", as: ours, from: 1, to: 1},
	{name: "relist, 10 % changed, upstream", from: 1, to: 1, changed: 0.1},
	{name: "relist, 10 % changed", as: ours, from: 1, to: 1, changed: 0.1},
	{name: "relist, 100 % changed, upstream", from: 1, to: 1, changed: 1},
	{name: "relist, 100 % changed", as: ours, from: 1, to: 1, changed: 1},
	{name: "initial sync in pages of 100", as: pages, initial: true, from: 1, to: 1, changed: -1},
	{name: "relist in pages of 100, 100 % changed", as: pages, from: 1, to: 1, changed: 1},
	{name: "growth in pages of 100 by 50 %", as: pages, from: 1 / 1.5, to: 1, changed: -1},
	{name: "initial sync of metadata", as: metadataOnly, initial: true, from: 1, to: 1, changed: -1},
	{name: "relist of metadata, 100 % changed", as: metadataOnly, from: 1, to: 1, changed: 1},
	{name: "growth of metadata by 50 %", as: metadataOnly, from: 1 / 1.5, to: 1, changed: -1},
	{name: "initial sync without a store", as: stream, initial: true, from: 1, to: 1, changed: -1},
	{name: "relist without a store, 100 % changed", as: stream, from: 1, to: 1, changed: 1},
	{name: "growth without a store by 50 %", as: stream, from: 1 / 1.5, to: 1, changed: -1},
	{name: "growth by 10 %", as: ours, from: 1 / 1.1, to: 1, changed: -1},
	{name: "growth by 50 %", as: ours, from: 1 / 1.5, to: 1, changed: -1},
	{name: "shrink by 50 %", as: ours, from: 1, to: 0.5, changed: -1},
	{name: "blocked handler, 10 % changed, upstream", from: 1, to: 1, changed: -1, blocks: true},
	{name: "blocked handler, 10 % changed", as: ours, from: 1, to: 1, changed: -1, blocks: true},
	{name: "a quarter by controller", as: ours, initial: true, field: sharding.ControllerHashKeyPath, from: 0.25, to: 0.25, changed: -1},
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

// handler counts events, and blocks while block is set.
type handler struct {
	added, updates, deleted atomic.Int64
	block                   atomic.Pointer[chan struct{}]
}

func (h *handler) OnAdd(any, bool) { h.added.Add(1) }
func (h *handler) OnDelete(any)    { h.deleted.Add(1) }
func (h *handler) OnUpdate(any, any) {
	if block := h.block.Load(); block != nil {
		<-*block
	}
	h.updates.Add(1)
}

// caseRun is a case under way.
type caseRun struct {
	caseOf
	pods    int
	meter   *meter
	handler *handler
	// informer is nil for a stream, source for upstream's informer.
	informer cache.SharedIndexInformer
	source   *rangewatch.Source

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
		c.field = sharding.HashKeyPath
	}
	const podSize = 5 << 10
	m := &meter{every: int64(float64(pods)*max(c.from, c.to)) * podSize / 50, bodies: map[*body]struct{}{}}
	if c.cut {
		m.cutAfter = int64(pods) * podSize / 2
	}
	r := &caseRun{caseOf: c, pods: pods, meter: m, handler: &handler{}, result: result{Name: c.name}}
	return r, r.newFollower(kubeconfig)
}

// sync starts the informer and waits until it holds the case's first range.
func (r *caseRun) sync(ctx context.Context) error {
	if r.as == stream {
		go r.read(r.source.Stream(ctx))
		return until(ctx, func() bool { return r.source.Held().Equal(part(r.from)) })
	}
	go r.informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), r.informer.HasSynced) {
		return ctx.Err()
	}
	if r.source == nil {
		return nil
	}
	return until(ctx, func() bool { return r.source.Held().Equal(part(r.from)) })
}

// read has the handler take the events of a stream.
func (r *caseRun) read(events watch.Interface) {
	for event := range events.ResultChan() {
		switch event.Type {
		case watch.Added:
			r.handler.OnAdd(event.Object, false)
		case watch.Modified:
			r.handler.OnUpdate(nil, event.Object)
		case watch.Deleted:
			r.handler.OnDelete(event.Object)
		}
	}
}

// relist changes pods while the watch is cut, and waits until a relist has delivered
// them.
func (r *caseRun) relist(ctx context.Context) error {
	allow := r.meter.cut()
	// One change shows that a relist has happened.
	changed := max(1, int(r.changed*float64(r.pods)))
	if err := change(changed); err != nil {
		return err
	}
	complete := r.look()
	r.startMeasuring()
	allow()
	if r.source == nil { // upstream's relist updates every object at the handlers
		return until(ctx, func() bool { return r.updates() >= r.pods })
	}
	if err := r.source.WaitFor(ctx, part(r.to)); err != nil {
		return err
	}
	if err := until(ctx, func() bool { return r.updates() >= changed }); err != nil {
		return err
	}
	return complete()
}

// look looks at all objects of the store again and again, until the function that it returns is
// called. That says whether one was missing.
func (r *caseRun) look() func() error {
	if r.informer == nil {
		return func() error { return nil }
	}
	store := r.informer.GetStore()
	keys := store.ListKeys()
	var looks, missing int
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for ; ; looks++ {
			for _, key := range keys {
				if _, exists, _ := store.GetByKey(key); !exists {
					missing++
				}
			}
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return func() error {
		close(stop)
		<-stopped
		if missing > 0 || looks == 0 {
			return fmt.Errorf("of %d pods, %d were missing in %d looks during a relist", len(keys), missing, looks)
		}
		return nil
	}
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
		if r.informer == nil {
			return true
		}
		for _, obj := range r.informer.GetStore().List() {
			if !part(r.to).Contains(metav1.HashKeyOf(obj.(metav1.Object))) {
				return false
			}
		}
		return true
	})
}

func (r *caseRun) updates() int { return int(r.handler.updates.Load()) }

// stored returns how many pods there are in the store, or were told by the stream.
func (r *caseRun) stored() int {
	if r.informer == nil {
		return int(r.handler.added.Load() - r.handler.deleted.Load())
	}
	return len(r.informer.GetStore().ListKeys())
}

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
	r.result.PeakRSS, _, _ = measure.Usage(os.Getpid())
	r.result.After, r.result.PodsAfter = live(), r.stored()
	runtime.KeepAlive(r.informer)
	runtime.KeepAlive(r.source)
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

// newFollower makes what follows the pods.
func (r *caseRun) newFollower(kubeconfig string) error {
	config, err := configFor(kubeconfig, r.meter)
	if err != nil {
		return err
	}
	lists, object, err := r.listWatch(config)
	if err != nil {
		return err
	}
	options := cache.SharedIndexInformerOptions{Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}}
	if r.as == upstreams {
		r.informer = cache.NewSharedIndexInformerWithOptions(lists, object, options)
	} else {
		r.source, err = rangewatch.NewSource(rangewatch.Config{Field: r.field, ListWatch: lists, Object: object, PageSize: 100})
		if err != nil {
			return err
		}
		r.source.SetRanges(part(r.from))
		if r.as == stream {
			return nil
		}
		r.informer = r.source.NewInformer(options)
	}
	var transformed atomic.Int64
	if err := r.informer.SetTransform(func(obj any) (any, error) {
		// As in kube-controller-manager. Sampling here also covers upstream's informers,
		// which transform a list once it is complete.
		if accessor := obj.(metav1.Object); accessor.GetManagedFields() != nil {
			accessor.SetManagedFields(nil)
		}
		if n := transformed.Add(1); n%int64(r.pods/10) == 0 {
			r.meter.sample()
		}
		return obj, nil
	}); err != nil {
		return err
	}
	_, err = r.informer.AddEventHandler(r.handler)
	return err
}

// listWatch returns what lists and watches the pods, and an example of its objects.
func (r *caseRun) listWatch(config *rest.Config) (cache.ListerWatcher, apiruntime.Object, error) {
	if r.as == metadataOnly {
		client, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, nil, err
		}
		of, err := rangewatch.ForMetadata(client, v1.SchemeGroupVersion.WithResource("pods"), r.field)
		return of.ListWatch, of.Object, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	lists := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (apiruntime.Object, error) {
			return client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
		},
		WatchFuncWithContext: client.CoreV1().Pods(metav1.NamespaceAll).Watch,
	}
	if r.as == pages {
		return inPages{lists}, &v1.Pod{}, nil
	}
	return cache.ToListWatcherWithWatchListSemantics(lists, client), &v1.Pod{}, nil
}

// inPages keeps lists from being streamed.
type inPages struct{ *cache.ListWatch }

func (inPages) IsWatchListSemanticsUnSupported() bool { return true }

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
