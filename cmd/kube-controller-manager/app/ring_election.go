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

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	shardinginformers "k8s.io/client-go/informers/sharding/v1alpha1"
	"k8s.io/client-go/kubernetes"
	shardingclient "k8s.io/client-go/kubernetes/typed/sharding/v1alpha1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/member"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
)

// registryPeriod is how often the registry is listed while its news are waited for.
const registryPeriod = 500 * time.Millisecond

// ringElection is this process's part in the election of the leader. It carries out what the
// candidate decides, and signs in its identity which controllers the process runs itself if it
// leads. It is nil with the feature gate ControllerRing off.
type ringElection struct {
	config    *config.CompletedConfig
	host      *ringHost
	candidate *ring.Candidate
	// leadership is what the Lease says.
	leadership member.Leadership
	client     shardingclient.ControllerInstanceInterface
	// leave makes the process leave its rings in good order, and returns when it has.
	leave func()
	// records follows the registry, from when the process first stands. changed gets a token
	// with each change.
	records cache.SharedIndexInformer
	changed chan struct{}

	lock sync.Mutex
	// leader is how this process stands or leads; nobody without an election.
	leader ring.Leader
	// underLease counts what has begun to run under the Lease and not ended in good order.
	underLease int
}

func newRingElection(c *config.CompletedConfig, h *ringHost, leadership member.Leadership, client kubernetes.Interface, leave func()) *ringElection {
	return &ringElection{
		config: c,
		host:   h,
		candidate: &ring.Candidate{
			Holder:  h.HolderIdentity,
			Listed:  c.ComponentConfig.Generic.Controllers,
			Enabled: h.enabled,
			Rings:   ringsOf(catalogue.Rings()),
		},
		leadership: leadership,
		leave:      leave,
		client:     client.ShardingV1alpha1().ControllerInstances(),
		records:    shardinginformers.NewControllerInstanceInformer(client, 0, cache.Indexers{}),
		changed:    make(chan struct{}, 1),
	}
}

// read reads the registry with quorum.
func (e *ringElection) read(ctx context.Context) (ring.Views, error) {
	list, err := e.client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return ring.Views{}, fmt.Errorf("reading the registry of rings: %w", err)
	}
	return ring.ReadList(list)
}

// cached returns the registry as the informer has it; false before it has.
func (e *ringElection) cached() (ring.Views, bool) {
	if !e.records.HasSynced() {
		return ring.Views{}, false
	}
	var records []ring.Record
	for _, obj := range e.records.GetStore().List() {
		instance, ok := obj.(*shardingv1alpha1.ControllerInstance)
		if !ok {
			return ring.Views{}, false
		}
		r, err := ring.NewRecord(instance)
		if err != nil {
			return ring.Views{}, false
		}
		records = append(records, r)
	}
	return ring.NewViews(0, records...), true
}

// leaderElectAndRun is leaderElectAndRun for the Lease that the rings obey. The process
// stands anew when what it has signed no longer fits. A term that no longer fits ends: what
// runs under the Lease stops, then the process leaves its rings, releases the Lease and exits.
func (e *ringElection) leaderElectAndRun(ctx context.Context, c *config.CompletedConfig, process string, electionChecker *leaderelection.HealthzAdaptor, resourceLock string, leaseName string, callbacks leaderelection.LeaderCallbacks) {
	if e == nil {
		leaderElectAndRun(ctx, c, process, electionChecker, resourceLock, leaseName, callbacks)
		return
	}
	defer e.follow(ctx)()
	for {
		set := e.prepare(ctx)
		lock, err := resourcelock.NewFromKubeconfig(resourceLock,
			c.ComponentConfig.Generic.LeaderElection.ResourceNamespace, leaseName,
			resourcelock.ResourceLockConfig{Identity: ring.SignLeader(process, set), EventRecorder: c.EventRecorder},
			c.Kubeconfig, c.ComponentConfig.Generic.LeaderElection.RenewDeadline.Duration)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Error creating lock")
			klog.FlushAndExit(klog.ExitFlushTimeout, 1)
		}
		if !e.stand(ctx, set, &wonLock{Interface: lock}, leaseName, electionChecker, callbacks) {
			return
		}
	}
}

// follow keeps records up to date until end is called.
func (e *ringElection) follow(ctx context.Context) (end func()) {
	ctx, stop := context.WithCancel(ctx)
	if _, err := e.records.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(interface{}) { e.again() },
		UpdateFunc: func(_, _ interface{}) { e.again() },
		DeleteFunc: func(interface{}) { e.again() },
	}); err != nil {
		// Only an informer that has ended refuses a handler.
		klog.FromContext(ctx).Error(err, "Could not follow the registry of rings")
	}
	var wg sync.WaitGroup
	wg.Go(func() { e.records.RunWithContext(ctx) })
	wg.Go(func() {
		// The last event of the first list may come before the list counts as complete.
		if cache.WaitForCacheSync(ctx.Done(), e.records.HasSynced) {
			e.again()
		}
	})
	return func() {
		stop()
		wg.Wait()
	}
}

// ringsOf returns what the candidate has to know of rings.
func ringsOf(rings []catalogue.Ring) []ring.RingControllers {
	var of []ring.RingControllers
	for _, r := range rings {
		of = append(of, ring.RingControllers{Ring: r.Name, Controllers: r.ControllerNames()})
	}
	return of
}

// prepare returns which controllers the process stands with, once the candidate waits no longer.
func (e *ringElection) prepare(ctx context.Context) (set []string) {
	var views *ring.Views
	var failed error
	began := time.Now()
	prepared := func(waited time.Duration) (ready bool) {
		set, ready = e.candidate.Prepare(views, ringsOf(e.host.parts()), waited)
		return ready
	}
	err := wait.PollUntilContextTimeout(ctx, registryPeriod, ring.LateLimit, true, func(ctx context.Context) (bool, error) {
		waited := time.Since(began)
		read, err := e.read(ctx)
		if err == nil {
			views, failed = &read, nil
			return prepared(waited), nil
		}
		if views == nil {
			failed = err
		}
		// What was read before stands, for as long as is waited without.
		prepared(waited)
		return waited >= ring.RegistrationLimit, nil
	})
	if err != nil {
		// The process stands with what it knows then.
		prepared(ring.LateLimit)
	}
	logger := klog.FromContext(ctx)
	if failed != nil && ctx.Err() == nil {
		logger.Error(failed, "Stands for leader as if the rings shared all their controllers")
	}
	logger.Info("Stands for leader", "controllers", set)
	return set
}

func (e *ringElection) again() {
	select {
	case e.changed <- struct{}{}:
	default:
	}
}
