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

package ring

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	shardingclient "k8s.io/client-go/kubernetes/typed/sharding/v1alpha1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/ring/identity"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// DefaultLeaseDuration is how long a silent instance stays in the registry.
	DefaultLeaseDuration = 6 * time.Second
	// DefaultStepLimit bounds each step of a handover that waits for a peer.
	DefaultStepLimit = 30 * time.Second

	// renewalsPerLease leaves room for two lost renewals.
	renewalsPerLease = 3
	// marginPerLease is the part of a lease by which the gate shuts before the
	// lease can end: it pays for clocks that run apart and for what a request
	// takes on its way.
	marginPerLease = 6
)

// Source is one of the informers that a controller works from.
type Source interface {
	// SetRanges says which keys the informer should hold and follow from now on.
	// It does not block.
	SetRanges(hashkey.Ranges)
	// Held returns the keys that the informer's store holds completely and
	// follows now.
	Held() hashkey.Ranges
	// HeldChanged returns a channel that gets a token when Held has changed.
	HeldChanged() <-chan struct{}
	// WaitFor waits until the informer's store holds all objects of these keys as
	// of that revision or a later one. It fails only when ctx ends.
	WaitFor(ctx context.Context, ranges hashkey.Ranges, revision string) error
}

// Controller is what a member tells its controller, and asks it. All methods are
// called from one goroutine, but for Keys, which must be safe for concurrent use.
type Controller interface {
	// Keys returns the hash keys of the objects in these ranges that the
	// controller is responsible for, in any order.
	Keys(hashkey.Ranges) []int64
	// Acquired is called when the gate has been opened for these ranges: all
	// objects in them are to be worked on anew.
	Acquired(hashkey.Ranges)
	// Released is called when the gate has been shut for these ranges and nothing
	// in them is in work any more. What the controller remembers of its own work
	// on them is void: the next owner will do its own.
	Released(hashkey.Ranges)
}

// Config configures a Member.
type Config struct {
	// Client writes and reads the registry. It should be the member's own, so
	// that no other traffic of the process delays a renewal.
	Client shardingclient.ControllerInstanceInterface
	// ControllerName is the controller whose ring this is, such as
	// replicaset-controller.
	ControllerName string
	// HolderIdentity names host and process. It is for people; it need not be unique.
	HolderIdentity string
	// LeaseDuration is how long the instance stays in the registry after its last
	// renewal, in whole seconds, at least 2 s. Default: DefaultLeaseDuration.
	LeaseDuration time.Duration
	// StepLimit bounds each step of a handover that waits for a peer. Default:
	// DefaultStepLimit, or LeaseDuration if that is longer.
	StepLimit time.Duration
	// Gate is opened and shut by the member.
	Gate *Gate
	// Sources are all informers that the controller works from. The gate opens for
	// a range only when each of them holds it.
	Sources []Source
	// Controller is the controller itself.
	Controller Controller
	// RenewalFailed, if set, is called when a renewal was not answered. It should
	// close the connections of Client: where requests get through and answers do not,
	// the record would live on, with its range in nobody's work.
	RenewalFailed func()
	// Metrics takes what is counted and measured, Events what is told of the records.
	// Default: nobody.
	Metrics Metrics
	Events  Events
	// Clock is for tests. Default: the real one.
	Clock clock.Clock
}

// Member takes part in a ring for one controller of this process.
type Member struct {
	cfg   Config
	epoch time.Time
}

// NewMember checks cfg, fills in its defaults and returns a member.
func NewMember(cfg Config) (*Member, error) {
	if cfg.LeaseDuration == 0 {
		cfg.LeaseDuration = DefaultLeaseDuration
	}
	if cfg.StepLimit == 0 {
		cfg.StepLimit = max(DefaultStepLimit, cfg.LeaseDuration)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = noMetrics{}
	}
	if cfg.Events == nil {
		cfg.Events = noEvents{}
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	switch {
	case cfg.Client == nil, cfg.Gate == nil, cfg.Controller == nil:
		return nil, errors.New("a ring member needs Client, Gate and Controller")
	case cfg.ControllerName == "", cfg.HolderIdentity == "":
		return nil, errors.New("a ring member needs ControllerName and HolderIdentity")
	case cfg.LeaseDuration < 2*time.Second, cfg.LeaseDuration%time.Second != 0:
		return nil, fmt.Errorf("LeaseDuration is %v, want whole seconds, 2s or more", cfg.LeaseDuration)
	case cfg.StepLimit < cfg.LeaseDuration:
		return nil, fmt.Errorf("StepLimit is %v, want at least LeaseDuration (%v): a dead peer is recognised by its lease", cfg.StepLimit, cfg.LeaseDuration)
	}
	cfg.Gate.countRefused(cfg.Metrics.Refused)
	return &Member{cfg: cfg, epoch: cfg.Clock.Now()}, nil
}

// Run takes part in the ring until ctx ends; then it leaves in good order, which
// takes at most LeaseDuration, and returns. It registers again whenever its
// record is lost. The controller must go on working until Run returns.
func (m *Member) Run(ctx context.Context) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "controller", m.cfg.ControllerName)
	ctx = klog.NewContext(ctx, logger)
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 6, Cap: 3 * time.Second}
	pause := backoff
	for ctx.Err() == nil {
		t, err := m.join(ctx)
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
}

// join registers a new instance and reads the log up to that registration.
func (m *Member) join(ctx context.Context) (*term, error) {
	sent := m.cfg.Clock.Now()
	created, err := m.cfg.Client.Create(ctx, &shardingv1alpha1.ControllerInstance{
		ObjectMeta: metav1.ObjectMeta{GenerateName: m.cfg.ControllerName + "-"},
		Spec: shardingv1alpha1.ControllerInstanceSpec{
			ControllerName:       m.cfg.ControllerName,
			HolderIdentity:       m.cfg.HolderIdentity,
			LeaseDurationSeconds: int32(m.cfg.LeaseDuration / time.Second),
		},
	}, metav1.CreateOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("the API server does not serve %s; start it with the feature gate ControllerRing on, or this process with it off: %w", shardingv1alpha1.SchemeGroupVersion, err)
	}
	if err != nil {
		return nil, fmt.Errorf("creating a ControllerInstance: %w", err)
	}
	// The registry exactly as of its own creation tells an instance who is older:
	// the oldest may take everything where nobody owns anything.
	view, err := m.list(ctx, metav1.ListOptions{ResourceVersion: created.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if err != nil {
		return nil, err
	}
	t := &term{
		Member:   m,
		name:     created.Name,
		uid:      created.UID,
		observer: newObserver(created.Name, view, m.cfg.Metrics, m.cfg.Events),
		machine:  NewMachine(created.Name, view, Limits{Step: m.cfg.StepLimit, Leave: m.cfg.LeaseDuration / 2}),
		status:   shardingv1alpha1.ControllerInstanceStatus{Phase: shardingv1alpha1.InstanceInit},
		kick:     make(chan struct{}, 1),
		beat:     make(chan struct{}, 1),
		events:   make(chan func(), 64),
	}
	m.cfg.Gate.begin(identity.Identity{Name: t.name, UID: t.uid}, m.confidence(sent))
	return t, nil
}

// confidence is until when a renewal that was sent at that instant lets the
// instance believe that it is alive.
func (m *Member) confidence(sent time.Time) time.Time {
	return sent.Add(Confidence(m.cfg.LeaseDuration))
}

func (m *Member) options(options metav1.ListOptions) metav1.ListOptions {
	options.FieldSelector = fields.OneTermEqualSelector("spec.controllerName", m.cfg.ControllerName).String()
	return options
}

func (m *Member) list(ctx context.Context, options metav1.ListOptions) (*View, error) {
	list, err := m.cfg.Client.List(ctx, m.options(options))
	if err != nil {
		return nil, fmt.Errorf("listing ControllerInstances: %w", err)
	}
	revision, err := strconv.ParseInt(list.ResourceVersion, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("list of ControllerInstances has resourceVersion %q, want a number: %w", list.ResourceVersion, err)
	}
	records := make([]Record, 0, len(list.Items))
	for i := range list.Items {
		r, err := NewRecord(&list.Items[i])
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	return NewView(revision, records...), nil
}

// term is one registration of a member, from its creation to its loss.
type term struct {
	*Member
	name    string
	uid     types.UID
	machine *Machine
	// observer belongs to the deciding goroutine.
	observer *observer

	// events carries what happened to the one goroutine that decides.
	events chan func()
	// kick asks that goroutine to decide again, beat the other one to renew now.
	kick, beat chan struct{}

	lock   sync.Mutex
	status shardingv1alpha1.ControllerInstanceStatus
	owned  hashkey.Ranges

	// The fields below belong to the deciding goroutine.
	phase     shardingv1alpha1.InstancePhase
	follow    hashkey.Ranges
	releasing hashkey.Ranges
	// settled is the revision that the log must have reached before the next
	// write: the instance's own last one.
	settled int64
	writing bool
	retryAt time.Time
	lost    bool
	ready   readiness
}

// readiness says for which keys all sources have been seen to hold everything as
// of a revision, and which question is under way.
type readiness struct {
	ranges hashkey.Ranges
	since  int64
	asked  hashkey.Ranges
	asking func()
}

func (t *term) run(ctx context.Context) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "instance", t.name)
	logger.Info("Registered on the ring", "leaseDuration", t.cfg.LeaseDuration)
	t.cfg.Metrics.Registered()
	defer t.cfg.Metrics.State("", 0)
	// Leaving takes requests of its own, so ctx only starts it.
	work, cancel := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), logger))
	var wg sync.WaitGroup
	defer func() {
		t.cfg.Gate.expire()
		t.drain(ctx)
		cancel()
		t.cfg.Gate.notify(func() {})
		wg.Wait()
		t.cfg.Controller.Released(hashkey.All())
	}()
	t.cfg.Gate.notify(t.again)
	for _, s := range t.cfg.Sources {
		wg.Go(func() { t.forward(work, s.HeldChanged()) })
	}
	wg.Go(func() { t.renew(work) })
	wg.Go(func() { t.readLog(work) })

	leaving := ctx.Done()
	var giveUp <-chan time.Time
	for !t.lost {
		wake := t.decide(work, ctx.Err() != nil)
		if t.lost {
			return
		}
		var timer <-chan time.Time
		if wake > 0 {
			timer = t.cfg.Clock.After(wake)
		}
		select {
		case f := <-t.events:
			f()
			// What is there already is taken before the next decision.
			for len(t.events) > 0 {
				(<-t.events)()
			}
		case <-t.kick:
		case <-timer:
		case <-leaving:
			leaving = nil
			giveUp = t.cfg.Clock.After(t.cfg.LeaseDuration)
		case <-giveUp:
			logger.Info("Could not leave the ring in time; the record will expire")
			return
		}
	}
}

// drain waits for work that is still under way. Without a deadline to believe in
// its requests fail, so it ends soon. However late it ends, it must not see the
// next term, in whose name its requests would be sent; only a member that will
// have none, since ctx has ended, stops waiting after a lease.
func (t *term) drain(ctx context.Context) {
	leaving := ctx.Done()
	var limit <-chan time.Time
	for t.cfg.Gate.Busy(hashkey.All()) > 0 {
		select {
		case <-t.kick:
		case <-leaving:
			leaving, limit = nil, t.cfg.Clock.After(t.cfg.LeaseDuration)
		case <-limit:
			return
		}
	}
}

// again asks for a new decision.
func (t *term) again() {
	select {
	case t.kick <- struct{}{}:
	default:
	}
}

// forward asks for a new decision whenever changed has something.
func (t *term) forward(ctx context.Context, changed <-chan struct{}) {
	for {
		select {
		case <-changed:
			t.again()
		case <-ctx.Done():
			return
		}
	}
}

// post hands f to the deciding goroutine.
func (t *term) post(ctx context.Context, f func()) {
	select {
	case t.events <- f:
	case <-ctx.Done():
	}
}

// decide asks the machine and carries out what it says. It returns when to decide
// again though nothing happens; 0: never.
func (t *term) decide(ctx context.Context, leaving bool) time.Duration {
	logger := klog.FromContext(ctx)
	gate := t.cfg.Gate
	t.release(logger)
	now := t.cfg.Clock.Now()
	d := t.machine.Decide(Input{
		Now:     now.Sub(t.epoch),
		Leaving: leaving,
		Serving: gate.serving(),
		Idle: func(r hashkey.Ranges) bool {
			return gate.serving().Intersect(r).Empty() && t.releasing.Intersect(r).Empty() && gate.Busy(r) == 0
		},
		Keys: t.cfg.Controller.Keys,
	})
	if d.Gone {
		logger.Info("The instance's record is gone; will register anew")
		t.lost = true
		return 0
	}

	serving := gate.serving()
	if shut := serving.Minus(d.Open); !shut.Empty() {
		serving = serving.Intersect(d.Open)
		gate.set(serving)
		t.releasing = t.releasing.Union(shut)
		logger.Info("Shut the gate", "ranges", shut, "revision", t.machine.View().Revision)
		t.again()
	}
	if !d.Follow.Equal(t.follow) {
		t.follow = d.Follow
		t.ready.ranges = t.ready.ranges.Intersect(d.Follow)
		for _, s := range t.cfg.Sources {
			s.SetRanges(d.Follow)
		}
	}
	if gain := d.Open.Minus(serving); !gain.Empty() && t.hold(ctx, gain, d.Since) {
		t.releasing = t.releasing.Minus(gain)
		serving = serving.Union(gain)
		gate.set(serving)
		logger.Info("Opened the gate", "ranges", gain, "revision", d.Since)
		t.cfg.Controller.Acquired(gain)
		// What the phase says of it follows in the next decision.
		t.again()
	}
	if d.Phase != t.phase {
		logger.Info("Changed phase", "from", t.phase, "to", d.Phase, "owned", d.Owned)
		t.phase = d.Phase
	}
	t.report(d)

	var wake time.Duration
	if d.Wake != 0 {
		wake = max(d.Wake-now.Sub(t.epoch), time.Millisecond)
	}
	if d.Write != nil && !t.writing && t.machine.View().Revision >= t.settled {
		if pause := t.retryAt.Sub(now); pause > 0 {
			return pause
		}
		t.write(ctx, *d.Write)
	}
	return wake
}

// release tells the controller of ranges whose last work has ended.
func (t *term) release(logger klog.Logger) {
	if t.releasing.Empty() || t.cfg.Gate.Busy(t.releasing) > 0 {
		return
	}
	t.cfg.Controller.Released(t.releasing)
	logger.Info("Drained", "ranges", t.releasing)
	t.releasing = nil
}

// hold says whether all sources hold ranges as of revision or later. If it is not
// known yet, a decision is asked for when it is.
func (t *term) hold(ctx context.Context, ranges hashkey.Ranges, revision int64) bool {
	r := &t.ready
	if r.since >= revision && r.ranges.Covers(ranges) {
		return true
	}
	if r.asking != nil && r.since == revision && r.asked.Equal(ranges) {
		return false
	}
	if r.asking != nil {
		r.asking()
	}
	ctx, cancel := context.WithCancel(ctx)
	*r = readiness{since: revision, asked: ranges, asking: cancel}
	go func() {
		for _, s := range t.cfg.Sources {
			if err := s.WaitFor(ctx, ranges, strconv.FormatInt(revision, 10)); err != nil {
				return
			}
		}
		t.post(ctx, func() {
			if ctx.Err() == nil {
				r.ranges = ranges.Intersect(t.follow)
				r.asked, r.asking = nil, nil
				cancel()
			}
		})
	}()
	return false
}

// report puts what others should know into the next renewal, and sends it at once
// if they wait for it.
func (t *term) report(d Decision) {
	held := d.Follow
	for _, s := range t.cfg.Sources {
		held = held.Intersect(s.Held())
	}
	t.observer.observe(t.cfg.Clock.Now(), t.machine.View(), d, held, t.cfg.Gate.serving(), t.releasing.Empty())
	cached := apiRanges(held)
	t.lock.Lock()
	urgent := t.status.Phase != d.Phase || !cachedRanges(t.status.Cached).Equal(held) || !t.owned.Equal(d.Owned)
	t.status.Phase = d.Phase
	t.status.Cached = cached
	t.owned = d.Owned
	t.lock.Unlock()
	if urgent {
		select {
		case t.beat <- struct{}{}:
		default:
		}
	}
}

// renew keeps the record alive. Each renewal is a status update, sent every third
// of the lease and whenever others wait for what it says.
func (t *term) renew(ctx context.Context) {
	logger := klog.FromContext(ctx)
	period := t.cfg.LeaseDuration / renewalsPerLease
	for {
		sent := t.cfg.Clock.Now()
		err := t.heartbeat(ctx, period)
		next := period
		switch {
		case err == nil:
			t.cfg.Metrics.Renewed(ResultRenewed)
			if t.cfg.Gate.extend(t.confidence(sent)) {
				t.post(ctx, func() {
					t.observer.fenced("The gate had shut by itself and is open again: the record was renewed late")
					logger.Info("The gate had shut by itself and is open again: the record was renewed late")
					t.cfg.Controller.Acquired(t.cfg.Gate.serving())
				})
			}
		case ctx.Err() != nil:
			return
		case apierrors.IsNotFound(err), apierrors.IsConflict(err):
			t.cfg.Metrics.Renewed(ResultLost)
			t.observer.fenced("The record is gone while the process lives; it joins anew")
			t.post(ctx, func() {
				logger.Info("The instance's record is gone; will register anew", "reason", err.Error())
				t.lost = true
			})
			return
		default:
			logger.Error(err, "Could not renew the ControllerInstance; will try again", "gateOpenUntil", t.cfg.Gate.Deadline())
			next = period / renewalsPerLease
			t.cfg.Metrics.Renewed(ResultFailed)
			if t.cfg.RenewalFailed != nil {
				t.cfg.RenewalFailed()
			}
		}
		select {
		case <-t.cfg.Clock.After(next - min(next, t.cfg.Clock.Since(sent))):
		case <-t.beat:
		case <-ctx.Done():
			return
		}
	}
}

func (t *term) heartbeat(ctx context.Context, timeout time.Duration) error {
	t.lock.Lock()
	status, owned := t.status, t.owned
	t.lock.Unlock()
	status.Workloads = int64(len(t.cfg.Controller.Keys(owned)))
	status.Busy = int64(t.cfg.Gate.Busy(hashkey.All()))
	t.cfg.Metrics.Load(status.Workloads, status.Busy)
	status.RenewTime = &metav1.MicroTime{Time: t.cfg.Clock.Now()}
	if status.Cached == nil {
		status.Cached = []shardingv1alpha1.HashKeyRange{}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// A renewal decides nothing, so it names no resource version, or it would
	// conflict with every write of a donor; the UID keeps it off another's record.
	return t.patch(ctx, t.name, map[string]any{"uid": t.uid}, "status", map[string]any{
		"phase":     status.Phase,
		"cached":    status.Cached,
		"workloads": status.Workloads,
		"busy":      status.Busy,
		"renewTime": status.RenewTime,
	}, func(*shardingv1alpha1.ControllerInstance) {}, "status")
}

func (t *term) patch(ctx context.Context, name string, metadata map[string]any, part string, value map[string]any, done func(*shardingv1alpha1.ControllerInstance), subresources ...string) error {
	body, err := json.Marshal(map[string]any{"metadata": metadata, part: value})
	if err != nil {
		return err
	}
	result, err := t.cfg.Client.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{}, subresources...)
	if err != nil {
		return err
	}
	done(result)
	return nil
}

// write carries out w beside the deciding goroutine and comes back to it with the
// result. It may not be applied after the gate's deadline: by then another may own
// what it gives away.
func (t *term) write(ctx context.Context, w Write) {
	logger := klog.FromContext(ctx)
	t.writing = true
	term := ctx
	ctx, cancel := context.WithDeadline(ctx, t.cfg.Gate.Deadline())
	go func() {
		defer cancel()
		var settled int64
		var err error
		if w.Delete {
			err = t.cfg.Client.Delete(ctx, w.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &w.UID}})
			if apierrors.IsNotFound(err) {
				err = nil
			}
		} else {
			err = t.patch(ctx, w.Name,
				map[string]any{"uid": w.UID, "resourceVersion": strconv.FormatInt(w.Revision, 10)},
				"spec", map[string]any{"hashKey": w.Key, "nextHashKey": w.Next, "donor": w.Donor},
				func(result *shardingv1alpha1.ControllerInstance) {
					settled, err = strconv.ParseInt(result.ResourceVersion, 10, 64)
				})
		}
		t.post(term, func() {
			t.writing = false
			switch {
			case err == nil:
				logger.Info("Wrote to the ring", "reason", w.Reason, "detail", w.Detail, "record", w.Name, "key", w.Key, "nextKey", w.Next, "donor", w.Donor)
				t.settled = settled
				t.lost = t.lost || w.Delete
			case apierrors.IsConflict(err), apierrors.IsNotFound(err):
				logger.V(2).Info("The record has changed since; will decide again", "reason", w.Reason, "record", w.Name)
				t.retryAt = t.cfg.Clock.Now().Add(10 * time.Millisecond)
			default:
				logger.Error(err, "Could not write to the ring; will decide again", "reason", w.Reason, "record", w.Name)
				t.retryAt = t.cfg.Clock.Now().Add(200 * time.Millisecond)
			}
		})
	}()
}

// readLog reads the log into the machine.
func (t *term) readLog(ctx context.Context) {
	logger := klog.FromContext(ctx)
	revision := t.machine.View().Revision
	for ctx.Err() == nil {
		err := t.watch(ctx, revision)
		if ctx.Err() != nil {
			return
		}
		logger.Info("The registry's watch has ended; will list it", "reason", err)
		// A gap in the log: the machine has to be told that it saw only its end.
		err = wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			view, err := t.list(ctx, metav1.ListOptions{})
			if err != nil {
				logger.Error(err, "Could not list the registry; will try again")
				return false, nil
			}
			revision = view.Revision
			t.post(ctx, func() { t.machine.Replace(view) })
			return true, nil
		})
		if err != nil {
			return
		}
	}
}

// watch follows the log from revision until it cannot be continued.
func (t *term) watch(ctx context.Context, revision int64) error {
	w, err := watchtools.NewRetryWatcherWithContext(ctx, strconv.FormatInt(revision, 10), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return t.cfg.Client.Watch(ctx, t.options(options))
		},
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		instance, ok := event.Object.(*shardingv1alpha1.ControllerInstance)
		if !ok {
			return fmt.Errorf("the registry's watch sent a %T", event.Object)
		}
		record, err := NewRecord(instance)
		if err != nil {
			return err
		}
		t.post(ctx, func() {
			if event.Type == watch.Deleted {
				t.machine.Remove(record.Name, record.Revision)
			} else {
				t.machine.Apply(record)
			}
		})
	}
	return errors.New("closed")
}
