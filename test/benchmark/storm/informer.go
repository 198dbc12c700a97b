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
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/rangewatch"
)

// kind is a kind of informers.
type kind struct {
	name string
	// start makes an informer of a part of the pods. It is nil for no informers.
	start func(cache.ListerWatcher, hashkey.Ranges) (cache.SharedIndexInformer, error)
	// selector is what a kind that does not select by itself selects by, or nil.
	selector func(hashkey.Ranges) string
}

var kinds = []kind{
	{name: "ours", start: func(lists cache.ListerWatcher, r hashkey.Ranges) (cache.SharedIndexInformer, error) {
		source, err := rangewatch.NewSource(rangewatch.Config{Field: sharding.HashKeyPath, ListWatch: lists, Object: &v1.Pod{}})
		if err != nil {
			return nil, err
		}
		source.SetRanges(r)
		return source.NewInformer(cache.SharedIndexInformerOptions{}), nil
	}},
	{name: "upstream's", start: func(lists cache.ListerWatcher, _ hashkey.Ranges) (cache.SharedIndexInformer, error) {
		return cache.NewSharedIndexInformerWithOptions(lists, &v1.Pod{}, cache.SharedIndexInformerOptions{}), nil
	}, selector: func(r hashkey.Ranges) string {
		// The hash of a UID is twice its hash key.
		end := fmt.Sprintf("%016x", 2*r[0].End)
		if r[0].End == hashkey.Limit {
			end = "10000000000000000"
		}
		return fmt.Sprintf("shardRange(object.metadata.uid, '0x%016x', '0x%s')", 2*r[0].Start, end)
	}},
	{name: "none"},
}

// part returns part i of n of all keys.
func part(i, n uint64) hashkey.Ranges {
	width := hashkey.Limit / n
	r := hashkey.Range{Start: i * width, End: (i + 1) * width}
	if i+1 == n {
		r.End = hashkey.Limit
	}
	return hashkey.NewRanges(r)
}

// informer follows a part of the pods.
type informer struct {
	cache.SharedIndexInformer
	stop func()
	// marked is a pod of its part.
	marked string
}

func newInformer(ctx context.Context, kind kind, config *rest.Config, r hashkey.Ranges) (*informer, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	pods := client.CoreV1().Pods(metav1.NamespaceAll)
	selected := func(options metav1.ListOptions) metav1.ListOptions {
		if kind.selector != nil {
			options.ShardSelector = kind.selector(r)
		}
		return options
	}
	lists := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return pods.List(ctx, selected(options))
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return pods.Watch(ctx, selected(options))
		},
	}, client)
	i := &informer{}
	if i.SharedIndexInformer, err = kind.start(lists, r); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	stopped := make(chan struct{})
	i.stop = func() {
		cancel()
		<-stopped
	}
	go func() {
		defer close(stopped)
		i.RunWithContext(ctx)
	}()
	return i, nil
}

// choose chooses the pod to mark, once the informer has any.
func (i *informer) choose(ctx context.Context) error {
	if i.marked != "" {
		return nil
	}
	if !cache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
		return ctx.Err()
	}
	for _, obj := range i.GetStore().List() {
		i.marked = obj.(*v1.Pod).Name
		return nil
	}
	return errors.New("an informer has no pods: use more of them")
}

// has reports whether the informer has the mark of its pod.
func (i *informer) has(mark string) bool {
	obj, exists, err := i.GetStore().GetByKey(metav1.NamespaceDefault + "/" + i.marked)
	return err == nil && exists && obj.(*v1.Pod).Labels["mark"] == mark
}
