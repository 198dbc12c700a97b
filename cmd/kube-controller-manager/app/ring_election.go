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
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
)

const (
	// registrationLimit is how long a process waits for its own records before it stands.
	registrationLimit = 5 * time.Second
	// registryPeriod is how often the registry is listed while its news are waited for.
	registryPeriod = 500 * time.Millisecond
	// unfitLimit is how long a leader's set may differ from what its process would decide now.
	unfitLimit = 2 * time.Second
	// releaseLimit bounds the release of the Lease.
	releaseLimit = 2 * time.Second
	// waitLogPeriod is how often the log says whom a leader waits for.
	waitLogPeriod = 5 * time.Second
)

// errUnfit is why a term ends whose set of controllers no longer fits.
var errUnfit = errors.New("the leader would run other controllers now")

// ringElection is this process's part in the election of the leader. It decides which
// controllers the process runs itself if it leads, and signs them in its identity: all that
// --controllers enables but the ring controllers that the rings share. It is nil with the
// feature gate ControllerRing off.
type ringElection struct {
	config *config.CompletedConfig
	host   *ringHost
	client shardingclient.ControllerInstanceInterface
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

func newRingElection(c *config.CompletedConfig, h *ringHost, client kubernetes.Interface) *ringElection {
	return &ringElection{
		config:  c,
		host:    h,
		client:  client.ShardingV1alpha1().ControllerInstances(),
		records: shardinginformers.NewControllerInstanceInformer(client, 0, cache.Indexers{}),
		changed: make(chan struct{}, 1),
	}
}

// leaderControllers returns which controllers a leader runs itself, in the notation of
// --controllers, which listed is the value of: all that it enables, but the ring controllers
// that are shared. enabled are the ring controllers among them.
func leaderControllers(listed, enabled []string, shared func(controller string) bool) []string {
	onRings := ringControllers()
	var list []string
	for _, entry := range listed {
		if !slices.Contains(onRings, entry) && !(entry[0] == '-' && slices.Contains(onRings, entry[1:])) {
			list = append(list, entry)
		}
	}
	all := slices.Contains(list, "*")
	for _, name := range onRings {
		switch runs := slices.Contains(enabled, name) && !shared(name); {
		case runs && !all:
			list = append(list, name)
		case !runs && all:
			list = append(list, "-"+name)
		}
	}
	return list
}

// decide returns which controllers this process runs itself if it leads. Without views it
// takes for shared what it has on its rings.
func (e *ringElection) decide(views *ring.Views) []string {
	var hosted []string
	for _, part := range e.host.parts() {
		hosted = append(hosted, part.ControllerNames()...)
	}
	return leaderControllers(e.config.ComponentConfig.Generic.Controllers, e.host.enabled, func(name string) bool {
		if views == nil {
			return slices.Contains(hosted, name)
		}
		return views.Ring(ringOf(name)).Shares(name)
	})
}

// registered says whether the registry has this process's record on each of its rings.
func (e *ringElection) registered(views ring.Views) bool {
	for _, part := range e.host.parts() {
		if !slices.ContainsFunc(views.Ring(part.Name).Records(), func(r ring.Record) bool { return r.Holder == e.host.identity }) {
			return false
		}
	}
	return true
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

// prepare waits until this process's records are in the registry, at most registrationLimit,
// and decides which controllers it stands with.
func (e *ringElection) prepare(ctx context.Context) []string {
	var views *ring.Views
	var failed error
	// The limit is no error: the process stands with what it knows then.
	_ = wait.PollUntilContextTimeout(ctx, registryPeriod, registrationLimit, true, func(ctx context.Context) (bool, error) {
		read, err := e.read(ctx)
		if err != nil {
			failed = err
			return false, nil
		}
		views, failed = &read, nil
		return e.registered(read), nil
	})
	logger := klog.FromContext(ctx)
	if failed != nil && ctx.Err() == nil {
		logger.Error(failed, "Stands for leader as if its rings shared all that this process has on them")
		views = nil
	}
	set := e.decide(views)
	logger.Info("Stands for leader", "controllers", set)
	return set
}

// stand stands for leader with that set, and leads if it is elected. It returns whether to
// stand again, with another set.
func (e *ringElection) stand(ctx context.Context, set []string, lock *wonLock, leaseName string, electionChecker *leaderelection.HealthzAdaptor, callbacks leaderelection.LeaderCallbacks) (again bool) {
	logger := klog.FromContext(ctx)
	fits, unfit := context.WithCancelCause(ctx)
	defer unfit(nil)
	// The Lease is renewed until nothing runs under it, also when ctx ends.
	electing, resign := context.WithCancel(context.WithoutCancel(ctx))
	defer resign()
	context.AfterFunc(fits, func() {
		if !lock.won.Load() {
			resign()
		}
	})
	ended := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          lock,
		LeaseDuration: e.config.ComponentConfig.Generic.LeaderElection.LeaseDuration.Duration,
		RenewDeadline: e.config.ComponentConfig.Generic.LeaderElection.RenewDeadline.Duration,
		RetryPeriod:   e.config.ComponentConfig.Generic.LeaderElection.RetryPeriod.Duration,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(lease context.Context) {
				defer resign()
				defer close(ended)
				work, stop := context.WithCancel(lease)
				defer stop()
				defer context.AfterFunc(fits, stop)()
				callbacks.OnStartedLeading(work)
			},
			// It is called below, where it is known whether the process ever led.
			OnStoppedLeading: func() {},
			OnNewLeader:      callbacks.OnNewLeader,
		},
		WatchDog: electionChecker,
		Name:     leaseName,
	})
	if err != nil {
		panic(err) // as leaderelection.RunOrDie does
	}
	if electionChecker != nil {
		electionChecker.SetLeaderElection(elector)
	}
	e.lock.Lock()
	e.leader = ring.Leader{Holder: lock.Identity()}
	e.lock.Unlock()
	go func() {
		if e.untilUnfit(fits, set) {
			logger.Info("The controllers to run as leader have changed", "before", set)
			unfit(errUnfit)
		}
	}()

	go func() {
		if by := e.untilDeposed(fits, lock.Identity()); by != "" {
			// The elector would let everything run on until its renew deadline.
			logger.Error(nil, "Another has taken the Lease", "lock", lock.Describe(), "holder", by)
			callbacks.OnStoppedLeading()
			klog.FlushAndExit(klog.ExitFlushTimeout, 1)
		}
	}()

	elector.Run(electing)
	changed := errors.Is(context.Cause(fits), errUnfit)
	switch {
	case !lock.won.Load():
		if changed {
			return true
		}
		callbacks.OnStoppedLeading()
		return false
	case electing.Err() == nil:
		// The Lease is lost: another may lead, so nothing may run on.
		callbacks.OnStoppedLeading()
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
		return false
	}
	<-ended
	if changed {
		e.host.abandonRings(context.WithoutCancel(ctx))
	}
	if e.isIdle() {
		if err := release(lock); err != nil {
			logger.Error(err, "Could not release the Lease, which stays until it expires", "lock", lock.Describe())
		}
	} else {
		logger.Info("Not releasing the Lease: what runs under it has not ended in good order", "lock", lock.Describe())
	}
	callbacks.OnStoppedLeading()
	if changed {
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
	return false
}

// untilUnfit returns true when what this process would decide now has differed from set for
// unfitLimit, false when ctx ends. It decides nothing while the registry cannot be read, or
// does not have this process's records.
func (e *ringElection) untilUnfit(ctx context.Context, set []string) bool {
	differs := func(views ring.Views) bool {
		return e.registered(views) && !slices.Equal(e.decide(&views), set)
	}
	var since time.Time
	for {
		var due <-chan time.Time
		if views, ok := e.cached(); !ok || !differs(views) {
			since = time.Time{}
		} else {
			if since.IsZero() {
				since = time.Now()
			}
			if time.Since(since) >= unfitLimit {
				// The informer may be behind.
				now, err := e.read(ctx)
				if err == nil && differs(now) {
					return true
				}
				if err != nil && ctx.Err() == nil {
					klog.FromContext(ctx).Error(err, "Does not know whether its controllers as leader still fit; will try again")
				}
				since = time.Now()
			}
			due = time.After(unfitLimit - time.Since(since))
		}
		select {
		case <-ctx.Done():
			return false
		case <-e.changed:
		case <-due:
		}
	}
}

// untilDeposed returns who holds the Lease after this process has, or "" when ctx ends. What
// the watch shows from before is no news.
func (e *ringElection) untilDeposed(ctx context.Context, self string) string {
	ctx, done := context.WithCancel(ctx)
	defer done()
	changed := make(chan struct{}, 1)
	go e.host.leadership.Notify(ctx, func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	held := false
	for {
		select {
		case <-ctx.Done():
			return ""
		case <-changed:
		}
		switch leader, _ := e.host.leadership.Leader(); {
		case leader.Holder == self:
			held = true
		case held && leader.Holder != "":
			return leader.Holder
		}
	}
}

func (e *ringElection) again() {
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

// led returns run for what this process runs outside its rings: without the ring controllers
// that are not in its set as leader, and not before no instance works on those that are.
func (e *ringElection) led(run func(context.Context, map[string]*ControllerDescriptor) error) func(context.Context, map[string]*ControllerDescriptor) error {
	if e == nil {
		return run
	}
	return func(ctx context.Context, descriptors map[string]*ControllerDescriptor) error {
		e.lock.Lock()
		leader := e.leader
		e.lock.Unlock()
		if err := e.untilLeft(ctx, leader); err != nil {
			return err
		}
		e.count(1)
		err := run(ctx, withoutSharedControllers(descriptors, leader))
		if err == nil {
			e.count(-1)
		}
		return err
	}
}

// withoutSharedControllers takes out the ring controllers that the leader does not run.
func withoutSharedControllers(controllers map[string]*ControllerDescriptor, leader ring.Leader) map[string]*ControllerDescriptor {
	for _, name := range ringControllers() {
		if !leader.Runs(name) {
			delete(controllers, name)
		}
	}
	return controllers
}

// untilLeft waits until no instance works on a controller that the leader, this process, is
// about to run. It fails only when ctx ends.
func (e *ringElection) untilLeft(ctx context.Context, leader ring.Leader) error {
	names := slices.DeleteFunc(ringControllers(), func(name string) bool { return !leader.Runs(name) })
	if len(names) == 0 {
		return ctx.Err()
	}
	logger := klog.FromContext(ctx)
	var logged time.Time
	return wait.PollUntilContextCancel(ctx, registryPeriod, true, func(ctx context.Context) (bool, error) {
		views, err := e.read(ctx)
		var working []string
		if err == nil {
			if working = workingOn(views, names); len(working) == 0 {
				return true, nil
			}
		}
		if time.Since(logged) < waitLogPeriod || ctx.Err() != nil {
			return false, nil
		}
		logged = time.Now()
		if err != nil {
			logger.Error(err, "Leads, and starts nothing until it knows that no ring works on its controllers", "controllers", names)
		} else {
			logger.Info("Leads, and starts nothing while rings work on its controllers", "controllers", names, "instances", working)
		}
		return false, nil
	})
}

// workingOn returns the instances that may be working on any of these controllers.
func workingOn(views ring.Views, controllers []string) []string {
	var working []string
	for _, name := range controllers {
		working = append(working, views.Ring(ringOf(name)).WorkingOn(name)...)
	}
	slices.Sort(working)
	return slices.Compact(working)
}

func (e *ringElection) count(n int) {
	e.lock.Lock()
	defer e.lock.Unlock()
	e.underLease += n
}

func (e *ringElection) isIdle() bool {
	e.lock.Lock()
	defer e.lock.Unlock()
	return e.underLease == 0
}

// wonLock knows whether the Lease has been its own at any time.
type wonLock struct {
	resourcelock.Interface
	won atomic.Bool
}

// Create implements resourcelock.Interface.
func (l *wonLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Create(ctx, record)
	if err == nil {
		l.won.Store(true)
	}
	return err
}

// Update implements resourcelock.Interface.
func (l *wonLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Update(ctx, record)
	if err == nil {
		l.won.Store(true)
	}
	return err
}

// release gives the Lease up if it is still lock's own. Nobody may be renewing it any more.
func release(lock resourcelock.Interface) error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	record, _, err := lock.Get(ctx)
	if err != nil || record.HolderIdentity != lock.Identity() {
		return err
	}
	now := metav1.Now()
	// As leaderelection does: it leaves the holder out.
	return lock.Update(ctx, resourcelock.LeaderElectionRecord{
		LeaderTransitions:    record.LeaderTransitions,
		LeaseDurationSeconds: 1,
		RenewTime:            now,
		AcquireTime:          now,
	})
}
