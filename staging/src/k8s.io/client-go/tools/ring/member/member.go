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
	"maps"
	"slices"
	"sync/atomic"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/util/wait"
	shardingclient "k8s.io/client-go/kubernetes/typed/sharding/v1alpha1"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/balance"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

const (
	// DefaultLeaseDuration is how long a silent instance stays in the registry: as long as the
	// Lease of a leader that is. It outlives ten seconds without an answer, as a leader does.
	DefaultLeaseDuration = 15 * time.Second
	// DefaultStepLimit bounds each step of a handover that waits for a peer.
	DefaultStepLimit = 30 * time.Second
	// fillSteps is how many steps a donor that works waits for the receiver's caches.
	fillSteps = 10
	// DefaultHungLimit is how long work on an object may be under way until it is said that it may
	// never end. A request has its answer within a minute: that is how long an API server works on
	// one, with all its webhooks. The rest is for a client's own rate limit.
	DefaultHungLimit = 2 * time.Minute
)

// Source is one of the informers that a controller works from. If it is a fmt.Stringer, people see
// it under that name.
type Source interface {
	// SetRanges says which keys the informer should hold and follow from now on.
	// It does not block.
	SetRanges(hashkey.Ranges)
	// Held returns the keys that the informer's store holds completely and
	// follows now.
	Held() hashkey.Ranges
	// HeldChanged returns a channel that gets a token when Held has changed.
	HeldChanged() <-chan struct{}
	// Diverged returns why nothing that the informer's store ever held can be relied on; "" if it can.
	// HeldChanged tells of it.
	Diverged() string
	// Waits says for people what the informer has waited for, for more than ten seconds; "" if there
	// is no such thing.
	Waits() string
	// WaitFor waits until the informer's store holds all objects of these keys as
	// of a moment after the call. It fails only when ctx ends.
	WaitFor(ctx context.Context, ranges hashkey.Ranges) error
	// Keys returns the hash keys in these ranges of the objects in the informer's store, one
	// for each object, in any order.
	Keys(hashkey.Ranges) []int64
}

// Controller is what a member tells a controller. Prepare must not take long. Acquired and Released
// may: they are called beside it, from goroutines of their own, and several calls for different
// ranges may be under way at the same time.
type Controller interface {
	// Prepare is called before the controller's door is opened for these ranges, when all
	// sources hold them. Work on them may go on in what has not been released.
	Prepare(hashkey.Ranges)
	// Acquired is called when the controller's door has been opened for these ranges: all
	// objects in them are to be worked on anew. What the door is shut for by the time an object's
	// turn comes may be left out. It should return soon after ctx has ended.
	Acquired(ctx context.Context, ranges hashkey.Ranges)
	// Released is called when the door has been shut for these ranges and nothing
	// in them is in work any more. What the controller remembers of its own work
	// on them is void: the next owner will do its own. The door stays shut for them until it
	// returns.
	Released(hashkey.Ranges)
}

// Leadership is what an instance has to know of the leader: the process that runs the
// controllers which no ring works on.
type Leadership interface {
	// Leader returns who leads, as far as this process has seen it; false before it has.
	Leader() (ring.Leader, bool)
	// Notify calls changed whenever Leader may have changed, until ctx ends. changed does
	// not block.
	Notify(ctx context.Context, changed func())
	// Read reads with quorum who leads. From then on Leader is at least as new.
	Read(ctx context.Context) (ring.Leader, error)
}

// Config configures a Member.
type Config struct {
	// Client writes and reads the registry. It should be the member's own, with the transport
	// Gate.WrapRegistryTransport, and send no request over a connection on which another is
	// unanswered: then neither other traffic nor a dead connection delays a renewal.
	Client shardingclient.ControllerInstanceInterface
	// Ring is the name of the ring, such as workloads: a DNS label.
	Ring string
	// Controllers are the controllers that the instance runs on the ring, by name. It works
	// on each only while all instances of the ring have it.
	Controllers map[string]Controller
	// Governs says which hash key the instance has to own for each of their writes. It is
	// for the record: the API server's fence reads it there.
	Governs []shardingv1alpha1.Governs
	// Leadership says who leads, where the leader may run controllers of the ring itself:
	// the instance does not work on those. Default: no leader does.
	Leadership Leadership
	// HolderIdentity names host and process. It is for people; it need not be unique.
	HolderIdentity string
	// LeaseDuration is how long the instance stays in the registry after its last
	// renewal; fence.CheckLease says what it may be. Default: DefaultLeaseDuration.
	LeaseDuration time.Duration
	// StepLimit bounds each step of a handover that waits for a peer, at least
	// LeaseDuration. Default: DefaultStepLimit, or LeaseDuration if that is longer.
	StepLimit time.Duration
	// HungLimit is how long work on an object may be under way before it is said that it may never
	// end, and how long it may go on behind a shut door before the instance gives its range up, at
	// least StepLimit. Default: DefaultHungLimit, or StepLimit if that is longer.
	HungLimit time.Duration
	// Exit, if set, is called where work outlives the instance's record by a lease, and where etcd was
	// restored to an earlier state. It should end the process: nothing is registered anew while such
	// work is under way, or after a restore.
	Exit func(reason string)
	// Capacity returns how many objects the process can hold on all its rings; 0: any number. It may
	// be called at any time. Default: any number.
	Capacity func() int64
	// Presences has API servers notice the death of the process at once. The members of a process
	// should share one. Default: a death is noticed when the lease of the record ends.
	Presences Presences
	// Gate is opened and shut by the member.
	Gate *Gate
	// Sources are all informers that the controllers work from. The gate opens for
	// a range only when each of them holds it.
	Sources []Source
	// Describe says for people what has that hash key, as in "namespace a". Default: its digits.
	Describe func(key int64) string
	// Heap knows what the process holds. Its members should share one. Default: one for itself.
	Heap *Heap
	// Workers returns how many objects of a controller are worked on at the same time. It may be
	// called at any time. Default: one.
	Workers func(controller string) int
	// Balance returns how the instance evens out the load of its ring; nil: it does not. It may be
	// called at any time. Default: it does not.
	Balance func() *balance.Config
	// Metrics takes what is counted and measured, Events what is told about the
	// records. Default: nobody.
	Metrics Metrics
	Events  Events
	// Clock is for tests. Default: the real one.
	Clock clock.Clock
}

// Member takes part in a ring for this process.
type Member struct {
	cfg Config
	// controllers are their names, in order.
	controllers []string
	epoch       time.Time
	abandoned   atomic.Bool
	// history is what the registry has had; diverged says that it has another one now.
	history  history
	diverged atomic.Bool
	// drained is what the member's last record said of it, follow what the sources follow, and held
	// what they held when that record was lost.
	drained      bool
	follow, held hashkey.Ranges
	// creating is full while a record is created. created is the last one that was.
	creating chan struct{}
	created  atomic.Pointer[fence.Identity]
	shown    shown
}

// New checks cfg, fills in its defaults and returns a member.
func New(cfg Config) (*Member, error) {
	if cfg.LeaseDuration == 0 {
		cfg.LeaseDuration = DefaultLeaseDuration
	}
	if cfg.StepLimit == 0 {
		cfg.StepLimit = max(DefaultStepLimit, cfg.LeaseDuration)
	}
	if cfg.HungLimit == 0 {
		cfg.HungLimit = max(DefaultHungLimit, cfg.StepLimit)
	}
	if cfg.Heap == nil {
		cfg.Heap = NewHeap()
	}
	if cfg.Capacity == nil {
		cfg.Capacity = func() int64 { return 0 }
	}
	if cfg.Workers == nil {
		cfg.Workers = func(string) int { return 1 }
	}
	if cfg.Balance == nil {
		cfg.Balance = func() *balance.Config { return nil }
	}
	if cfg.Metrics == nil {
		cfg.Metrics = noMetrics{}
	}
	if cfg.Events == nil {
		cfg.Events = noEvents{}
	}
	cfg.Events = printableEvents{cfg.Events}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	switch {
	case cfg.Client == nil, cfg.Gate == nil, len(cfg.Controllers) == 0:
		return nil, errors.New("a ring member needs Client, Gate and Controllers")
	case cfg.Ring == "", cfg.HolderIdentity == "":
		return nil, errors.New("a ring member needs Ring and HolderIdentity")
	case cfg.StepLimit < cfg.LeaseDuration:
		return nil, fmt.Errorf("StepLimit is %v, want at least LeaseDuration (%v): a dead peer is recognised by its lease", cfg.StepLimit, cfg.LeaseDuration)
	case cfg.HungLimit < cfg.StepLimit:
		return nil, fmt.Errorf("HungLimit is %v, want at least StepLimit (%v): a handover that work holds up is called off first", cfg.HungLimit, cfg.StepLimit)
	}
	if err := fence.CheckLease(cfg.LeaseDuration); err != nil {
		return nil, fmt.Errorf("LeaseDuration %w", err)
	}
	cfg.Gate.countRefused(cfg.Metrics.Refused)
	return &Member{cfg: cfg, controllers: slices.Sorted(maps.Keys(cfg.Controllers)), epoch: cfg.Clock.Now(), creating: make(chan struct{}, 1)}, nil
}

// Run takes part in the ring until ctx ends; then it leaves in good order and returns.
// Leaving takes at most LeaseDuration, and as much again if work does not end: then
// Released is called though it is still under way. Run registers again whenever its record
// is lost, or deleted by others, for which it leaves in good order, too. The controllers must
// go on working until Run returns.
func (m *Member) Run(ctx context.Context) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "ring", m.cfg.Ring)
	ctx = klog.NewContext(ctx, logger)
	defer m.cfg.Heap.release(m)
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 6, Cap: 3 * time.Second}
	pause := backoff
	for ctx.Err() == nil && !m.abandoned.Load() && !m.diverged.Load() {
		t, err := m.register(ctx)
		if err != nil {
			logger.Error(err, "Could not register on the ring; will try again")
			select {
			case <-ctx.Done():
			case <-m.cfg.Clock.After(pause.Step()):
			}
			continue
		}
		pause = backoff
		t.run(ctx)
	}
	if m.diverged.Load() {
		<-ctx.Done()
	}
}

// Abandon shuts the gate and deletes the record at once, whatever is in work, so that the
// range waits for no lease: the process is about to end. The API server's fence refuses what
// is still on its way. Run registers no more. A record that is being created is waited for until
// ctx ends; then it stays until its lease does.
func (m *Member) Abandon(ctx context.Context) error {
	m.abandoned.Store(true)
	m.cfg.Gate.expire()
	select {
	case m.creating <- struct{}{}:
		<-m.creating
	case <-ctx.Done():
	}
	self := m.created.Load()
	if self == nil {
		return nil
	}
	if err := m.delete(ctx, *self); err != nil {
		return fmt.Errorf("deleting ControllerInstance %s, which stays until its lease ends: %w", self.Name, err)
	}
	return nil
}

// delete deletes a record of this member at once, if it is there.
func (m *Member) delete(ctx context.Context, self fence.Identity) error {
	err := m.cfg.Client.Delete(ctx, self.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0),
		Preconditions:      &metav1.Preconditions{UID: &self.UID},
	})
	if isGone(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// confidence is until when a renewal that was sent at that instant lets the
// instance believe that it is alive.
func (m *Member) confidence(sent time.Time) time.Time {
	return sent.Add(fence.Confidence(m.cfg.LeaseDuration))
}
