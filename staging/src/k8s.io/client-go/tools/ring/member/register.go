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

package member

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/balance"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/klog/v2"
)

// firstViewInterval is how long a member waits before it lists the registry again for its first
// view.
const firstViewInterval = time.Second

// maxHeld is how many ranges spec.held of a record may have.
const maxHeld = 64

// register creates a new instance and reads the log up to its creation.
func (m *Member) register(ctx context.Context) (*term, error) {
	sent, known := m.cfg.Clock.Now(), m.history.asks()
	created, err := m.create(ctx)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("the API server does not serve %s: it is a stock one, or its feature gate ControllerRing is off. Nothing is worked on here until it does: %w", shardingv1alpha1.SchemeGroupVersion, err)
	}
	if err != nil {
		return nil, fmt.Errorf("creating a ControllerInstance: %w", err)
	}
	// What was collected before says nothing of what this registration holds.
	_, collections := m.cfg.Heap.live()
	t := &term{
		Member:   m,
		self:     *m.created.Load(),
		follow:   m.follow,
		heard:    sent,
		answered: sent,
		renewNow: make(chan struct{}, 1),
		duties:   duties{roster: ring.NewRoster(m.controllers), releasing: map[string]bool{}},
		queueing: map[string]*queueing{},
		turns:    make(chan struct{}, 1),
		news:     news{collections: collections},
		kick:     make(chan struct{}, 1),
		events:   make(chan func(), 64),
	}
	m.cfg.Gate.begin(t.self, m.confidence(sent), m.cfg.LeaseDuration-fence.Confidence(m.cfg.LeaseDuration))
	view, err := t.firstView(ctx, known, created.ResourceVersion)
	if err != nil {
		// It might be the oldest, for which others wait.
		t.remove(ctx)
		m.cfg.Gate.expire()
		return nil, err
	}
	t.observer = newObserver(created.Name, view, m.cfg.LeaseDuration, m.cfg.Metrics, m.cfg.Events)
	limits := ring.Limits{Step: m.cfg.StepLimit, Fill: fillSteps * m.cfg.StepLimit, Leave: m.cfg.LeaseDuration / 2}
	machine := ring.NewMachine(created.Name, view, limits)
	t.machine = ring.Decider{Machine: machine, Policy: balance.New(created.Name, m.cfg.Balance), Recording: ring.NewRecording(machine)}
	return t, nil
}

// firstView returns the registry exactly as of the creation of the record, which tells an instance
// who is older: the oldest may take everything when nobody owns anything. Meanwhile it renews the
// record, which would not outlive a list that takes long.
func (t *term) firstView(ctx context.Context, known *history, created string) (*ring.View, error) {
	ctx, cancel := context.WithTimeout(ctx, min(3*t.cfg.LeaseDuration, 2*DefaultStepLimit))
	var renewing sync.WaitGroup
	defer renewing.Wait()
	defer cancel()
	renewing.Go(func() { t.renew(ctx) })
	var view *ring.View
	var last error
	err := wait.PollUntilContextCancel(ctx, firstViewInterval, true, func(ctx context.Context) (bool, error) {
		view, last = t.list(ctx, known, metav1.ListOptions{ResourceVersion: created, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
		// Another answer would be the same; none may come later.
		if apierrors.IsResourceExpired(last) || apierrors.IsForbidden(last) || errors.Is(last, errDiverged) {
			return false, last
		}
		return last == nil, nil
	})
	if err != nil && last != nil {
		err = last
	}
	return view, err
}

// create creates a record. Abandon does not let it begin, and waits for it to end.
func (m *Member) create(ctx context.Context) (*shardingv1alpha1.ControllerInstance, error) {
	m.creating <- struct{}{}
	defer func() { <-m.creating }()
	if m.abandoned.Load() {
		return nil, errAbandoned
	}
	ctx, cancel := context.WithTimeout(ctx, m.cfg.LeaseDuration)
	defer cancel()
	created, err := m.cfg.Client.Create(ctx, &shardingv1alpha1.ControllerInstance{
		ObjectMeta: metav1.ObjectMeta{GenerateName: m.cfg.Ring + "-"},
		Spec: shardingv1alpha1.ControllerInstanceSpec{
			Ring:                 m.cfg.Ring,
			HolderIdentity:       m.cfg.HolderIdentity,
			LeaseDurationSeconds: int32(m.cfg.LeaseDuration / time.Second),
			Controllers:          m.controllers,
			Governs:              m.cfg.Governs,
			Drained:              m.drained,
			Held:                 m.hint(),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	m.created.Store(&fence.Identity{Ring: m.cfg.Ring, Name: created.Name, UID: created.UID})
	if m.abandoned.Load() {
		return nil, errAbandoned
	}
	return created, nil
}

// hint returns what the next record is to say that the caches hold.
func (m *Member) hint() []shardingv1alpha1.HashKeyRange {
	if m.held.Empty() {
		return nil
	}
	held := ring.StatusCached(m.held)
	return held[:min(len(held), maxHeld)]
}

// turnBalanceOff has the new record say, as others do, that the load of the ring is not to be
// evened out: they may go before it. If that fails, they say it still.
func (m *Member) turnBalanceOff(ctx context.Context, self fence.Identity) {
	// The connection may be dead.
	ctx, cancel := context.WithTimeout(ctx, m.cfg.LeaseDuration)
	defer cancel()
	if _, err := m.patch(ctx, self.Name, []operation{
		{"test", "/metadata/uid", self.UID},
		{"add", "/spec/balance", shardingv1alpha1.BalanceDisabled},
	}); err != nil {
		klog.FromContext(ctx).Error(err, "Could not say in the new record that the load of the ring is not to be evened out, as others do", "instance", self.Name)
	}
}

var errAbandoned = errors.New("the process is about to end")
