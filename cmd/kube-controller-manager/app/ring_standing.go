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
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/ring"
	"k8s.io/klog/v2"
)

const (
	// endLimit is how long a term's work may take to end.
	endLimit = 30 * time.Second
	// leaveLimit is how long the process then takes to leave its rings in good order.
	leaveLimit = 3 * time.Second
	// releaseLimit bounds the release of the Lease.
	releaseLimit = 2 * time.Second
)

var (
	// errUnfit is why a term ends whose set of controllers no longer fits.
	errUnfit = errors.New("the leader would run other controllers now")
	// errDeposed is why a term ends whose Lease another has taken.
	errDeposed = errors.New("another holds the Lease")
)

// standing is a process that stands for leader with one set, and leads if it is elected.
type standing struct {
	*ringElection
	set       []string
	lock      *wonLock
	callbacks leaderelection.LeaderCallbacks
	// fits ends when the set no longer fits, another holds the Lease, or the process is to end.
	fits  context.Context
	unfit context.CancelCauseFunc
	// electing lasts for as long as the Lease is to be renewed: until nothing runs under it, also when
	// the process is to end.
	electing context.Context
	resign   context.CancelFunc
	// ended is closed when the term's work has ended.
	ended chan struct{}
}

// stand stands for leader with that set, and leads if it is elected. It returns whether to
// stand again, with another set.
func (e *ringElection) stand(ctx context.Context, set []string, lock *wonLock, leaseName string, electionChecker *leaderelection.HealthzAdaptor, callbacks leaderelection.LeaderCallbacks) (again bool) {
	s := &standing{ringElection: e, set: set, lock: lock, callbacks: callbacks, ended: make(chan struct{})}
	s.fits, s.unfit = context.WithCancelCause(ctx)
	defer s.unfit(nil)
	s.electing, s.resign = context.WithCancel(context.WithoutCancel(ctx))
	defer s.resign()
	context.AfterFunc(s.fits, func() {
		if !lock.won.Load() {
			s.resign()
		}
	})
	election := e.config.ComponentConfig.Generic.LeaderElection
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          lock,
		LeaseDuration: election.LeaseDuration.Duration,
		RenewDeadline: election.RenewDeadline.Duration,
		RetryPeriod:   election.RetryPeriod.Duration,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: s.lead,
			// It is called by conclude, where it is known whether the process ever led.
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
	go s.endWhenUnfit()
	go s.exitWhenDeposed()
	elector.Run(s.electing)
	return s.conclude(ctx)
}

// lead runs what the leader runs while the set fits, for as long as the Lease is held.
func (s *standing) lead(lease context.Context) {
	defer s.resign()
	defer close(s.ended)
	work, stop := context.WithCancel(lease)
	defer stop()
	defer context.AfterFunc(s.fits, stop)()
	defer context.AfterFunc(work, func() { s.endWithin(s.ended) })()
	s.callbacks.OnStartedLeading(work)
}

func (s *standing) endWhenUnfit() {
	if s.untilUnfit(s.fits, s.set, &s.lock.won) {
		klog.FromContext(s.fits).Info("The controllers to run as leader have changed", "before", s.set)
		s.unfit(errUnfit)
	}
}

// exitWhenDeposed ends the process once another holds the Lease: the elector would let everything
// run on until its renew deadline.
func (s *standing) exitWhenDeposed() {
	if by := s.untilDeposed(s.fits, s.lock.Identity()); by != "" {
		klog.FromContext(s.fits).Error(nil, "Another has taken the Lease", "lock", s.lock.Describe(), "holder", by)
		s.unfit(errDeposed)
		s.callbacks.OnStoppedLeading()
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

// conclude does what is due when the elector has ended. It returns whether to stand again.
func (s *standing) conclude(ctx context.Context) (again bool) {
	logger := klog.FromContext(ctx)
	changed := errors.Is(context.Cause(s.fits), errUnfit)
	switch {
	case !s.lock.won.Load() && changed:
		// The Lease may have been stored for an attempt that was given up.
		if err := release(s.lock); err != nil {
			logger.Error(err, "Could not look whether the Lease has to be released", "lock", s.lock.Describe())
		}
		return true
	case !s.lock.won.Load():
		s.callbacks.OnStoppedLeading()
		return false
	case s.electing.Err() == nil:
		// The Lease is lost: another may lead, so nothing may run on.
		s.callbacks.OnStoppedLeading()
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
		return false
	}
	<-s.ended
	if !s.isIdle() {
		logger.Info("Not releasing the Lease: what runs under it has not ended in good order", "lock", s.lock.Describe())
	} else if err := release(s.lock); err != nil {
		logger.Error(err, "Could not release the Lease, which stays until it expires", "lock", s.lock.Describe())
	}
	if changed {
		s.leaveRings()
	}
	s.callbacks.OnStoppedLeading()
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
