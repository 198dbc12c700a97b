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
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

const (
	// registryPeriod is how often the registry is listed while its news are waited for.
	registryPeriod = 500 * time.Millisecond
	// endLimit is how long a term's work may take to end.
	endLimit = 30 * time.Second
	// leaveLimit is how long the process then takes to leave its rings in good order.
	leaveLimit = 3 * time.Second
	// releaseLimit bounds the release of the Lease.
	releaseLimit = 2 * time.Second
	// waitLogPeriod is how often the log says whom a leader waits for.
	waitLogPeriod = 5 * time.Second
)

var (
	// errUnfit is why a term ends whose set of controllers no longer fits.
	errUnfit = errors.New("the leader would run other controllers now")
	// errDeposed is why a term ends whose Lease another has taken.
	errDeposed = errors.New("another holds the Lease")
)

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
	prepared := func() (ready bool) {
		set, ready = e.candidate.Prepare(views, ringsOf(e.host.parts()), time.Since(began))
		return ready
	}
	err := wait.PollUntilContextTimeout(ctx, registryPeriod, ring.LateLimit, true, func(ctx context.Context) (bool, error) {
		read, err := e.read(ctx)
		if err == nil {
			views, failed = &read, nil
		} else if views == nil {
			// What was read before stands: the limit may have cut this off.
			failed = err
		}
		return prepared(), nil
	})
	if err != nil {
		// The process stands with what it knows then.
		prepared()
	}
	logger := klog.FromContext(ctx)
	if failed != nil && ctx.Err() == nil {
		logger.Error(failed, "Stands for leader as if the rings shared all their controllers")
	}
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
				defer context.AfterFunc(work, func() { e.endWithin(ended) })()
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
		if e.untilUnfit(fits, set, &lock.won) {
			logger.Info("The controllers to run as leader have changed", "before", set)
			unfit(errUnfit)
		}
	}()

	go func() {
		if by := e.untilDeposed(fits, lock.Identity()); by != "" {
			// The elector would let everything run on until its renew deadline.
			logger.Error(nil, "Another has taken the Lease", "lock", lock.Describe(), "holder", by)
			unfit(errDeposed)
			callbacks.OnStoppedLeading()
			klog.FlushAndExit(klog.ExitFlushTimeout, 1)
		}
	}()

	elector.Run(electing)
	changed := errors.Is(context.Cause(fits), errUnfit)
	switch {
	case !lock.won.Load():
		if changed {
			// The Lease may have been stored for an attempt that was given up.
			if err := release(lock); err != nil {
				logger.Error(err, "Could not look whether the Lease has to be released", "lock", lock.Describe())
			}
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
	if e.isIdle() {
		if err := release(lock); err != nil {
			logger.Error(err, "Could not release the Lease, which stays until it expires", "lock", lock.Describe())
		}
	} else {
		logger.Info("Not releasing the Lease: what runs under it has not ended in good order", "lock", lock.Describe())
	}
	if changed {
		e.leaveRings()
	}
	callbacks.OnStoppedLeading()
	if changed {
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
	return false
}

// endWithin ends the process without releasing the Lease if the term's work has not ended
// within endLimit: meanwhile the Lease is renewed.
func (e *ringElection) endWithin(ended <-chan struct{}) {
	select {
	case <-ended:
	case <-time.After(endLimit):
		klog.Background().Error(nil, "What runs under the Lease does not end", "limit", endLimit)
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

// leaveRings leaves the rings in good order, and deletes the records if that takes too long.
func (e *ringElection) leaveRings() {
	left := make(chan struct{})
	go func() {
		defer close(left)
		e.leave()
	}()
	select {
	case <-left:
	case <-time.After(leaveLimit):
		abandonAll()
	}
}

// untilUnfit returns true when set no longer fits, false when ctx ends.
func (e *ringElection) untilUnfit(ctx context.Context, set []string, leads *atomic.Bool) bool {
	began := time.Now()
	term := e.candidate.Term(set)
	input := func(views ring.Views) ring.TermInput {
		return ring.TermInput{Now: time.Since(began), Registry: views, Lists: ringsOf(e.host.parts()), Leads: leads.Load()}
	}
	for {
		var decision ring.TermDecision
		if views, ok := e.cached(); ok {
			decision = term.Decide(input(views))
		}
		if decision.Read {
			views, err := e.read(ctx)
			if err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Does not know whether its controllers as leader still fit; will try again")
			}
			decision = term.Answer(input(views), err == nil)
		}
		if decision.Unfit {
			return true
		}
		var due <-chan time.Time
		if decision.Wake > 0 {
			due = time.After(decision.Wake - time.Since(began))
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
	go e.leadership.Notify(ctx, func() {
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
		switch leader, _ := e.leadership.Leader(); {
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
// that are not in its set as leader. Those that are it runs once no instance works on any
// controller that the leader runs; all else does not wait for that.
func (e *ringElection) led(run func(context.Context, map[string]*ControllerDescriptor) error) func(context.Context, map[string]*ControllerDescriptor) error {
	if e == nil {
		return run
	}
	return func(ctx context.Context, descriptors map[string]*ControllerDescriptor) error {
		e.lock.Lock()
		leader := e.leader
		e.lock.Unlock()
		counted := func(ctx context.Context, descriptors map[string]*ControllerDescriptor) error {
			e.count(1)
			err := run(ctx, descriptors)
			if err == nil {
				e.count(-1)
			}
			return err
		}
		var views *ring.Views
		if leader.Holder != "" {
			var err error
			if views, err = e.readIfServed(ctx); err != nil {
				return err
			}
		}
		now, later := e.candidate.Begin(leader, slices.Sorted(maps.Keys(descriptors)), views)
		if len(later) == 0 {
			return counted(ctx, only(descriptors, now))
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var wg sync.WaitGroup
		errs := make([]error, 2)
		wg.Go(func() {
			defer cancel()
			errs[0] = counted(ctx, only(descriptors, now))
		})
		wg.Go(func() {
			defer cancel()
			if e.untilLeft(ctx, leader) == nil {
				errs[1] = counted(ctx, only(descriptors, later))
			}
		})
		wg.Wait()
		return errors.Join(errs...)
	}
}

// readIfServed reads the registry with quorum, and tries again where it could not. It returns
// nil where the API server says that this process will not read it.
func (e *ringElection) readIfServed(ctx context.Context) (views *ring.Views, err error) {
	err = wait.PollUntilContextCancel(ctx, registryPeriod, true, func(ctx context.Context) (bool, error) {
		read, err := e.read(ctx)
		switch {
		case err == nil:
			views = &read
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
			klog.FromContext(ctx).Error(err, "Leads without the registry of rings, so it starts no ring controller")
		default:
			klog.FromContext(ctx).Error(err, "Leads, and starts nothing until it has read which controllers the rings work on")
			return false, nil
		}
		return true, nil
	})
	return views, err
}

func only(descriptors map[string]*ControllerDescriptor, names []string) map[string]*ControllerDescriptor {
	named := make(map[string]*ControllerDescriptor, len(names))
	for _, name := range names {
		named[name] = descriptors[name]
	}
	return named
}

// untilLeft waits until no instance works on a controller that the leader, this process, is
// about to run. It fails only when ctx ends.
func (e *ringElection) untilLeft(ctx context.Context, leader ring.Leader) error {
	logger := klog.FromContext(ctx)
	var logged time.Time
	return wait.PollUntilContextCancel(ctx, registryPeriod, true, func(ctx context.Context) (bool, error) {
		views, err := e.read(ctx)
		var working []string
		if err == nil {
			for _, r := range views.WorkingBeside(leader) {
				working = append(working, r.Name)
			}
			if len(working) == 0 {
				return true, nil
			}
		}
		if time.Since(logged) < waitLogPeriod || ctx.Err() != nil {
			return false, nil
		}
		logged = time.Now()
		if err != nil {
			logger.Error(err, "Leads, and starts no ring controller until it knows that no ring works on it")
		} else {
			logger.Info("Leads, and starts no ring controller while rings work on those that it runs", "instances", working)
		}
		return false, nil
	})
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
