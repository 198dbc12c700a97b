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

package app

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/member"
	"k8s.io/utils/ptr"
)

// ringLeadership knows who leads the kube-controller-managers: who holds their Lease. All
// rings of the process share it. It follows a watch, and whatever Read reads.
type ringLeadership struct {
	leases cache.ListerWatcher

	lock   sync.Mutex
	leader ring.Leader
	// version is the resource version that leader is as of, "" before anything was seen.
	version string
	// changed are called when leader changes, by their order of registration.
	changed map[int]func()
	next    int
}

var (
	_ member.Leadership    = &ringLeadership{}
	_ cache.ReflectorStore = &ringLeadership{}
)

func newRingLeadership(client kubernetes.Interface, namespace, name string) *ringLeadership {
	leases := client.CoordinationV1().Leases(namespace)
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	return &ringLeadership{
		leases: cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				options.FieldSelector = selector
				return leases.List(ctx, options)
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				options.FieldSelector = selector
				return leases.Watch(ctx, options)
			},
		}, client),
		changed: map[int]func(){},
	}
}

// leaseBackoff is between tries to read the Lease: until that is known no controller works. With
// the backoff of client-go's reflectors that took half a minute after an API server had been away.
var leaseBackoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 2 * time.Second}

// run follows the Lease until ctx ends.
func (l *ringLeadership) run(ctx context.Context) {
	options := cache.ReflectorOptions{Name: "leader's Lease", Backoff: &leaseBackoff}
	cache.NewReflectorWithOptions(l.leases, &coordinationv1.Lease{}, l, options).RunWithContext(ctx)
}

// Leader implements member.Leadership.
func (l *ringLeadership) Leader() (ring.Leader, bool) {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.leader, l.version != ""
}

// Notify implements member.Leadership.
func (l *ringLeadership) Notify(ctx context.Context, changed func()) {
	l.lock.Lock()
	id := l.next
	l.next++
	l.changed[id] = changed
	l.lock.Unlock()
	// What has changed before is told of, too.
	changed()
	<-ctx.Done()
	l.lock.Lock()
	defer l.lock.Unlock()
	delete(l.changed, id)
}

// Read implements member.Leadership. It lists the one Lease, because a list without a Lease
// has a resource version, too: the watch may be behind the Lease's deletion.
func (l *ringLeadership) Read(ctx context.Context) (ring.Leader, error) {
	listed, err := cache.ToListerWatcherWithContext(l.leases).ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return ring.Leader{}, fmt.Errorf("reading the leader's Lease: %w", err)
	}
	leases, ok := listed.(*coordinationv1.LeaseList)
	if !ok {
		return ring.Leader{}, fmt.Errorf("reading the leader's Lease: got a %T", listed)
	}
	leader := ring.Leader{}
	for i := range leases.Items {
		leader = leaderOf(&leases.Items[i])
	}
	return leader, l.see(leader, leases.ResourceVersion)
}

// see takes in who led as of that resource version, unless something newer is known.
func (l *ringLeadership) see(leader ring.Leader, version string) error {
	l.lock.Lock()
	defer l.lock.Unlock()
	known := l.version != ""
	if known {
		newer, err := resourceversion.CompareResourceVersion(version, l.version)
		if err != nil {
			return fmt.Errorf("the leader's Lease: %w", err)
		}
		if newer < 0 {
			return nil
		}
	}
	if known && leader == l.leader {
		l.version = version
		return nil
	}
	l.leader, l.version = leader, version
	for _, changed := range l.changed {
		changed()
	}
	return nil
}

func leaderOf(lease *coordinationv1.Lease) ring.Leader {
	return ring.Leader{Holder: ptr.Deref(lease.Spec.HolderIdentity, "")}
}

// Add implements cache.ReflectorStore.
func (l *ringLeadership) Add(obj interface{}) error { return l.Update(obj) }

// Update implements cache.ReflectorStore.
func (l *ringLeadership) Update(obj interface{}) error {
	lease, ok := obj.(*coordinationv1.Lease)
	if !ok {
		return fmt.Errorf("the watch of the leader's Lease has a %T", obj)
	}
	return l.see(leaderOf(lease), lease.ResourceVersion)
}

// Delete implements cache.ReflectorStore. A deleted Lease has the resource version of its
// deletion.
func (l *ringLeadership) Delete(obj interface{}) error {
	lease, ok := obj.(*coordinationv1.Lease)
	if !ok {
		return fmt.Errorf("the watch of the leader's Lease has a %T", obj)
	}
	return l.see(ring.Leader{}, lease.ResourceVersion)
}

// Replace implements cache.ReflectorStore.
func (l *ringLeadership) Replace(objs []interface{}, version string) error {
	leader := ring.Leader{}
	for _, obj := range objs {
		lease, ok := obj.(*coordinationv1.Lease)
		if !ok {
			return fmt.Errorf("the list of the leader's Lease has a %T", obj)
		}
		leader = leaderOf(lease)
	}
	return l.see(leader, version)
}

// Resync implements cache.ReflectorStore.
func (l *ringLeadership) Resync() error { return nil }
