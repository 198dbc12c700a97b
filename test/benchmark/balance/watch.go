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
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
)

// event is a change of a record of the ring, as the watch told it.
type event struct {
	At time.Time `json:"at"`
	// Deleted says that the record is gone; the rest is what it last was.
	Deleted  bool                           `json:"deleted,omitempty"`
	Name     string                         `json:"name"`
	UID      string                         `json:"uid"`
	Key      *int64                         `json:"key,omitempty"`
	Next     *int64                         `json:"next,omitempty"`
	Donor    string                         `json:"donor,omitempty"`
	Phase    shardingv1alpha1.InstancePhase `json:"phase,omitempty"`
	Weight   int64                          `json:"weight"`
	Heaviest int64                          `json:"heaviest"`
	Work     int32                          `json:"work,omitempty"`
	Heap     *shardingv1alpha1.ProcessHeap  `json:"heap,omitempty"`
	// Gives says that it gives something away.
	Gives bool `json:"gives,omitempty"`
	// Asked says that it has been asked to leave.
	Asked bool `json:"asked,omitempty"`
}

// records has all changes of the records of the ring, in order.
type records struct {
	lock   sync.Mutex
	events []event
	file   *json.Encoder
}

// follow watches the records until ctx ends, and writes each change to the file, a line of JSON. It
// calls failed if a change may have been missed.
func follow(ctx context.Context, client kubernetes.Interface, path string, failed func(error)) (*records, error) {
	list, err := client.ShardingV1alpha1().ControllerInstances().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	if len(list.Items) > 0 {
		return nil, errors.New("there are records already, want a new cluster")
	}
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return client.ShardingV1alpha1().ControllerInstances().Watch(ctx, options)
		},
	})
	if err != nil {
		return nil, err
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	r := &records{file: json.NewEncoder(file)}
	go func() {
		defer file.Close()
		for e := range watcher.ResultChan() {
			if err := r.add(e); err != nil {
				failed(err)
				return
			}
		}
		if ctx.Err() == nil {
			failed(errors.New("the watch of the records has ended"))
		}
	}()
	return r, nil
}

func (r *records) add(e watch.Event) error {
	if e.Type == watch.Error {
		return fmt.Errorf("watch of the records: %w", apierrors.FromObject(e.Object))
	}
	i, ok := e.Object.(*shardingv1alpha1.ControllerInstance)
	if !ok || i.Spec.Ring != catalogue.WorkloadsRing {
		return nil
	}
	seen := event{
		At: time.Now(), Deleted: e.Type == watch.Deleted, Name: i.Name, UID: string(i.UID),
		Key: (*int64)(i.Spec.HashKey), Next: (*int64)(i.Spec.NextHashKey), Donor: i.Spec.Donor, Phase: i.Status.Phase,
		Weight: i.Status.Weight, Heaviest: i.Status.Heaviest, Work: i.Status.Work, Heap: i.Status.Heap,
		Gives: i.Status.Gives != nil, Asked: i.DeletionTimestamp != nil,
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	r.events = append(r.events, seen)
	return r.file.Encode(seen)
}

// all returns the changes so far.
func (r *records) all() []event {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.events[:len(r.events):len(r.events)]
}
