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

// caseOf is a case: an informer, what it holds at first, and what then happens.
type caseOf struct {
	name string
	// ours follows a range; otherwise the informer is upstream's.
	ours, incomplete bool
	field            rangewatch.FieldPath
	// from and to are the part of the line that is held before and after.
	from, to float64
	// changed is the part of the pods that changes while the watch is cut; negative for
	// no relist.
	changed float64
	// initial measures the first list, cut cuts its stream half-way.
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

// result is what a case used, in bytes.
type result struct {
	Name string
	// Before and After are live bytes before and after what happens; Peak is the most
	// meanwhile.
	Before, After uint64
	Peak          usage
	PeakRSS       uint64
	Received      int64
	Allocated     uint64
	Allocations   uint64
	// PodsBefore and PodsAfter are how many pods are stored.
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
	return fmt.Errorf("no case %q", name)
}

func part(of float64) hashkey.Ranges {
	if of == 1 {
		return hashkey.All()
	}
	return hashkey.NewRanges(hashkey.Range{Start: 0, End: uint64(of * float64(uint64(hashkey.Limit)))})
}

// handler counts, and blocks if it is told to.
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

func (c caseOf) run(ctx context.Context, kubeconfig string, pods int) (result, error) {
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
		return result{}, err
	}
	h := &handler{}
	i, source, err := c.informer(client, m, pods)
	if err != nil {
		return result{}, err
	}
	if _, err := i.AddEventHandler(h); err != nil {
		return result{}, err
	}
	r := result{Name: c.name}
	var before, after runtime.MemStats
	var begin time.Time
	stop := func() {}
	start := func() {
		r.Before, r.PodsBefore = live(), len(i.GetStore().ListKeys())
		m.reset()
		runtime.ReadMemStats(&before)
		begin, stop = time.Now(), m.watchHeap()
	}

	if c.initial {
		start()
	}
	go i.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
		return result{}, ctx.Err()
	}
	if source != nil {
		if err := source.WaitFor(ctx, part(c.from), ""); err != nil {
			return result{}, err
		}
	}
	switch {
	case c.initial:
	case c.changed >= 0:
		allow := m.cut()
		if err := change(int(c.changed * float64(pods))); err != nil {
			return result{}, err
		}
		start()
		allow()
		// A relist tells handlers of everything, unless it is one object by object.
		err = until(ctx, func() bool {
			return int(h.updates.Load()) >= pods && (source == nil || source.Held().Equal(part(c.to)))
		})
	case c.blocks:
		block := make(chan struct{})
		h.block.Store(&block)
		old := revision(i.GetStore().LastStoreSyncResourceVersion())
		start()
		if err := change(pods / 10); err != nil {
			return result{}, err
		}
		err = until(ctx, func() bool {
			n := 0
			for _, obj := range i.GetStore().List() {
				if revision(obj.(*v1.Pod).ResourceVersion) > old {
					n++
				}
			}
			return n >= pods/10
		})
		m.sample()
		h.block.Store(nil)
		close(block)
		if err == nil {
			err = until(ctx, func() bool { return int(h.updates.Load()) >= pods/10 })
		}
	default:
		start()
		source.SetRanges(part(c.to))
		if err = source.WaitFor(ctx, part(c.to), ""); err == nil {
			err = until(ctx, func() bool {
				for _, obj := range i.GetStore().List() {
					if !part(c.to).Contains(metav1.HashKeyOf(obj.(*v1.Pod))) {
						return false
					}
				}
				return true
			})
		}
	}
	r.Seconds = time.Since(begin).Seconds()
	stop()
	if err != nil {
		return result{}, err
	}
	m.sample()
	runtime.ReadMemStats(&after)
	r.Allocated, r.Allocations = after.TotalAlloc-before.TotalAlloc, after.Mallocs-before.Mallocs
	m.mu.Lock()
	r.Received, r.Peak = m.received, m.peak
	m.mu.Unlock()
	r.PeakRSS = peakRSS()
	r.After, r.PodsAfter = live(), len(i.GetStore().ListKeys())
	runtime.KeepAlive(i)
	return r, nil
}

// until waits for a condition.
func until(ctx context.Context, condition func() bool) error {
	return wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) { return condition(), nil })
}

func revision(resourceVersion string) uint64 {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		panic(err) // an API server gives numbers
	}
	return n
}

func (c caseOf) informer(client kubernetes.Interface, m *meter, pods int) (cache.SharedIndexInformer, *rangewatch.Source, error) {
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
		// As in kube-controller-manager; and a list is transformed when it is complete,
		// which is a point of its own.
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

// change has pods changed.
func change(n int) error {
	if n == 0 {
		return nil
	}
	fmt.Println(n)
	if !answers.Scan() {
		return fmt.Errorf("no answer: %w", answers.Err())
	}
	return nil
}
