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

package controllerring

import (
	"context"
	"sync"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	shardingclient "k8s.io/client-go/kubernetes/typed/sharding/v1alpha1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// readPeriod is how often the revision of storage is read. An instance that renews
	// every third of its lease is known to be alive all the time as long as readPeriod
	// and the delay of the watch are below half a lease.
	readPeriod = 500 * time.Millisecond
	// keptReadings bounds how late news of a write may come and still be dated.
	keptReadings = 20
)

// reading says that at one instant storage was at most at that revision.
type reading struct {
	at       time.Time
	revision int64
}

// known is what the registry knows of a record besides the record.
type known struct {
	controller string
	lease      time.Duration
	// alive is an instant before the record's last write, or zero: none is known.
	alive time.Time
}

// registry is what this API server has seen of the rings.
type registry struct {
	clock clock.PassiveClock

	lock sync.RWMutex
	// rings holds a view for each controller.
	rings    map[string]*ring.View
	records  map[string]known
	readings []reading
}

func newRegistry(c clock.PassiveClock) *registry {
	return &registry{clock: c, rings: map[string]*ring.View{}, records: map[string]known{}}
}

// trusted returns the ring of the instance, if the instance is known to be alive now.
func (r *registry) trusted(instance fence.Identity) (view *ring.View, alive bool) {
	r.lock.RLock()
	defer r.lock.RUnlock()
	k := r.records[instance.Name]
	if k.alive.IsZero() || r.clock.Since(k.alive) >= fence.Confidence(k.lease) {
		return nil, false
	}
	return r.rings[k.controller], true
}

// read reads the registry with quorum.
func (r *registry) read(ctx context.Context, client shardingclient.ControllerInstanceInterface) (ring.Views, error) {
	at := r.clock.Now()
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return ring.Views{}, err
	}
	views, err := ring.ReadList(list)
	if err != nil {
		return ring.Views{}, err
	}
	r.dated(reading{at: at, revision: views.Revision})
	return views, nil
}

// dated keeps a reading. One that is below the last is of no use: it was begun
// earlier.
func (r *registry) dated(n reading) {
	r.lock.Lock()
	defer r.lock.Unlock()
	if last := len(r.readings) - 1; last >= 0 {
		switch {
		case n.revision < r.readings[last].revision || n.at.Before(r.readings[last].at):
			return
		case n.revision == r.readings[last].revision:
			r.readings[last] = n
			return
		}
	}
	r.readings = append(r.readings, n)
	r.readings = r.readings[max(0, len(r.readings)-keptReadings):]
}

// put takes a record that was created or changed.
func (r *registry) put(instance *shardingv1alpha1.ControllerInstance) error {
	record, err := ring.NewRecord(instance)
	if err != nil {
		return err
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	k := known{controller: instance.Spec.ControllerName, lease: time.Duration(instance.Spec.LeaseDurationSeconds) * time.Second}
	if view, ok := r.rings[k.controller]; ok {
		if before, ok := view.Get(record.Name); ok && before.UID == record.UID {
			k.alive = r.records[record.Name].alive
		}
	} else {
		r.rings[k.controller] = ring.NewView(0)
	}
	// Each write was made after the last reading that is below it.
	for i := len(r.readings) - 1; i >= 0; i-- {
		if r.readings[i].revision < record.Revision {
			k.alive = r.readings[i].at
			break
		}
	}
	r.records[record.Name] = k
	r.rings[k.controller] = r.rings[k.controller].With(record)
	return nil
}

// remove takes the news that the record of that name is gone.
func (r *registry) remove(name string) {
	r.lock.Lock()
	defer r.lock.Unlock()
	if k, ok := r.records[name]; ok {
		delete(r.records, name)
		r.rings[k.controller] = r.rings[k.controller].Without(name)
	}
}

// follow follows the registry until stop is closed. It does not block.
func (r *registry) follow(client shardingclient.ControllerInstanceInterface, stop <-chan struct{}) {
	ctx := wait.ContextForChannel(stop)
	logger := klog.FromContext(ctx).WithName(PluginName)
	put := func(object any) {
		if err := r.put(object.(*shardingv1alpha1.ControllerInstance)); err != nil {
			logger.Error(err, "Could not read a ControllerInstance")
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return client.List(ctx, options)
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return client.Watch(ctx, options)
			},
		},
		ObjectType: &shardingv1alpha1.ControllerInstance{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    put,
			UpdateFunc: func(_, object any) { put(object) },
			DeleteFunc: func(object any) {
				if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
					r.remove(key)
				}
			},
		},
	})
	go informer.RunWithContext(ctx)
	go wait.UntilWithContext(ctx, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, 10*readPeriod)
		defer cancel()
		if _, err := r.read(ctx, client); err != nil {
			logger.V(2).Info("Could not read the registry; each write is checked by a read of its own until it can be read", "err", err)
		}
	}, readPeriod)
}
