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
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/host"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

const (
	testRS = catalogue.ReplicaSetController
	testRC = catalogue.ReplicationControllerController
)

// ofBoth leaves out of a signature what it says of other ring controllers: a test enables these
// two at most.
func ofBoth(signed []string) []string {
	return slices.DeleteFunc(slices.Clone(signed), func(s string) bool {
		name, left := strings.CutPrefix(s, "-")
		return left && !slices.Contains(both, name) && slices.Contains(catalogue.ControllerNames(), name)
	})
}

func TestALeaderRunsWhatTheRingsDoNotShare(t *testing.T) {
	for name, tc := range map[string]struct {
		listed, enabled, shared []string
		want                    []string
		// runs are the ring controllers of the leader that signs it.
		runs []string
	}{
		"all, all shared":         {listed: []string{"*"}, enabled: []string{testRS, testRC}, shared: []string{testRS, testRC}, want: []string{"*", "-" + testRS, "-" + testRC}},
		"all, none shared":        {listed: []string{"*"}, enabled: []string{testRS, testRC}, want: []string{"*"}, runs: []string{testRS, testRC}},
		"all, one shared":         {listed: []string{"*"}, enabled: []string{testRS, testRC}, shared: []string{testRC}, want: []string{"*", "-" + testRC}, runs: []string{testRS}},
		"one disabled":            {listed: []string{"*", "-" + testRS, "-ttl-controller"}, enabled: []string{testRC}, want: []string{"*", "-ttl-controller", "-" + testRS}, runs: []string{testRC}},
		"only named, none shared": {listed: []string{testRS, "ttl-controller"}, enabled: []string{testRS}, want: []string{"ttl-controller", testRS}, runs: []string{testRS}},
		"only named, shared":      {listed: []string{testRS}, enabled: []string{testRS}, shared: []string{testRS}},
		"said twice":              {listed: []string{"-" + testRS, testRS, "*"}, enabled: []string{testRC}, want: []string{"*", "-" + testRS}, runs: []string{testRC}},
	} {
		t.Run(name, func(t *testing.T) {
			candidate := &ring.Candidate{Listed: tc.listed, Enabled: tc.enabled, Rings: ringsOf(catalogue.Rings())}
			views := ring.NewViews(0, ring.Record{Name: "workloads-a", Ring: "workloads", Controllers: tc.shared})
			got, _ := candidate.Prepare(&views, nil, 0)
			if !slices.Equal(ofBoth(got), tc.want) {
				t.Errorf("signs %q, want %q", got, tc.want)
			}
			leader := ring.Leader{Holder: ring.SignLeader("p", got)}
			all := slices.Sorted(maps.Keys(NewControllerDescriptors()))
			now, later := candidate.Begin(leader, all, nil)
			if len(later) != len(tc.runs) || slices.Contains(now, testRS) || slices.Contains(now, testRC) {
				t.Errorf("ring controllers are not held apart: %q are, want %q", later, tc.runs)
			}
			controllers := only(NewControllerDescriptors(), append(now, later...))
			for _, c := range []string{testRS, testRC} {
				if runs := slices.Contains(tc.runs, c); leader.Runs(c) != runs || (controllers[c] != nil) != runs {
					t.Errorf("says that it runs %s: %t, and runs it: %t; want %t", c, leader.Runs(c), controllers[c] != nil, runs)
				}
			}
			if len(controllers) != len(all)-len(catalogue.ControllerNames())+len(tc.runs) {
				t.Errorf("%d controllers of %d", len(controllers), len(all))
			}
		})
	}
	// A process that elects no leader leaves its ring controllers to its rings.
	candidate := &ring.Candidate{Rings: ringsOf(catalogue.Rings())}
	if now, later := candidate.Begin(ring.Leader{}, []string{testRS, testRC, testOther}, nil); !slices.Equal(now, []string{testOther}) || len(later) > 0 {
		t.Error("a process without an election runs ring controllers itself")
	}
}

// electionTest is a process that stands for leader on a fake cluster.
type electionTest struct {
	*testing.T
	*ringElection
	client     *fake.Clientset
	leadership *ringLeadership

	lock sync.Mutex
	// instances is the registry, refusal why it cannot be read.
	instances []shardingv1alpha1.ControllerInstance
	refusal   error
	// ending says that the work under the Lease has been told to end.
	ending bool
	log    []string
}

func newElectionTest(t *testing.T) *electionTest {
	e := &electionTest{T: t, client: fake.NewClientset()}
	e.client.PrependReactor("list", "controllerinstances", func(core.Action) (bool, runtime.Object, error) {
		e.lock.Lock()
		defer e.lock.Unlock()
		return true, &shardingv1alpha1.ControllerInstanceList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: slices.Clone(e.instances)}, e.refusal
	})
	e.client.PrependReactor("update", "leases", func(action core.Action) (bool, runtime.Object, error) {
		lease := action.(core.UpdateAction).GetObject().(*coordinationv1.Lease)
		e.lock.Lock()
		ending := e.ending
		e.lock.Unlock()
		if ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
			e.note("released")
		} else if ending {
			e.note("renewed")
		}
		return false, nil, nil
	})
	c := testRingConfig()
	election := &c.ComponentConfig.Generic.LeaderElection
	// An odd retry period: a renewal in the same instant as another event could come on either
	// side of it.
	election.LeaseDuration.Duration, election.RenewDeadline.Duration, election.RetryPeriod.Duration = 15*time.Second, 10*time.Second, 2001*time.Millisecond
	settings, err := host.NewSettingsFile("", map[string]int{testRS: 1, testRC: 1})
	if err != nil {
		t.Fatal(err)
	}
	h := &ringHost{Process: host.NewProcess(host.ProcessConfig{HolderIdentity: "me", Settings: settings}), config: c, enabled: []string{testRS, testRC}}
	e.leadership = newRingLeadership(e.client, "kube-system", "kube-controller-manager")
	e.ringElection = newRingElection(c, h, e.leadership, e.client, func() { e.note("left") })
	return e
}

// note remembers what has happened, in its order and once in a row.
func (e *electionTest) note(what string) {
	e.lock.Lock()
	defer e.lock.Unlock()
	if len(e.log) == 0 || e.log[len(e.log)-1] != what {
		e.log = append(e.log, what)
	}
}

func (e *electionTest) expectLog(want ...string) {
	e.Helper()
	e.lock.Lock()
	defer e.lock.Unlock()
	if !slices.Equal(e.log, want) {
		e.Errorf("happened:\n  %s\nwant:\n  %s", strings.Join(e.log, "\n  "), strings.Join(want, "\n  "))
	}
}

func (e *electionTest) set(instances ...shardingv1alpha1.ControllerInstance) {
	e.lock.Lock()
	defer e.lock.Unlock()
	e.instances = instances
}

func testInstance(holder string, controllers []string, working ...string) shardingv1alpha1.ControllerInstance {
	i := shardingv1alpha1.ControllerInstance{
		ObjectMeta: metav1.ObjectMeta{Name: "workloads-" + holder, ResourceVersion: "1"},
		Spec:       shardingv1alpha1.ControllerInstanceSpec{Ring: "workloads", HolderIdentity: holder, Controllers: controllers},
	}
	for _, c := range working {
		i.Status.Controllers = append(i.Status.Controllers, shardingv1alpha1.ControllerState{Name: c, Working: true})
	}
	return i
}

func (e *electionTest) leaseLock(set []string) *wonLock {
	return &wonLock{Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-controller-manager"},
		Client:     e.client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: ring.SignLeader("p", set)},
	}}
}

// callbacks are those of a process whose work under the Lease ends with its context, after
// that time.
func (e *electionTest) callbacks(lasting time.Duration, err error) leaderelection.LeaderCallbacks {
	run := e.led(func(ctx context.Context, _ map[string]*ControllerDescriptor) error {
		e.note("works")
		<-ctx.Done()
		e.lock.Lock()
		e.ending = true
		e.lock.Unlock()
		time.Sleep(lasting)
		e.note("works no more")
		return err
	})
	return leaderelection.LeaderCallbacks{
		OnStartedLeading: func(ctx context.Context) { _ = run(ctx, NewControllerDescriptors()) },
		OnStoppedLeading: func() { e.note("stopped") },
	}
}

// follow follows the registry, and makes an exit an entry of the log.
func (e *electionTest) follow(ctx context.Context) (end func()) {
	exit := klog.OsExit
	klog.OsExit = func(code int) { e.note(fmt.Sprint("exit ", code)) }
	unfollow := e.ringElection.follow(ctx)
	return func() {
		unfollow()
		klog.OsExit = exit
	}
}

var both = []string{testRS, testRC}

func TestAProcessStandsWithWhatTheRegistrySays(t *testing.T) {
	shared, all := []string{"*", "-" + testRS, "-" + testRC}, []string{"*"}
	for name, tc := range map[string]struct {
		instances []shardingv1alpha1.ControllerInstance
		refusal   error
		want      []string
		took      time.Duration
	}{
		"its own record":           {instances: []shardingv1alpha1.ControllerInstance{testInstance("me", both)}, want: shared},
		"not registered":           {want: all, took: ring.LateLimit},
		"only another's record":    {instances: []shardingv1alpha1.ControllerInstance{testInstance("other", both)}, want: shared, took: ring.RegistrationLimit},
		"one does not list both":   {instances: []shardingv1alpha1.ControllerInstance{testInstance("me", both), testInstance("old", []string{testRS})}, want: []string{"*", "-" + testRS}},
		"the registry is not read": {refusal: errors.New("down"), want: shared, took: ring.RegistrationLimit},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, ctx := ktesting.NewTestContext(t)
				e := newElectionTest(t)
				e.set(tc.instances...)
				e.refusal = tc.refusal
				began := time.Now()
				if got := ofBoth(e.prepare(ctx)); !slices.Equal(got, tc.want) {
					t.Errorf("stands with %q, want %q", got, tc.want)
				}
				if took := time.Since(began); took != tc.took {
					t.Errorf("decided after %v, want %v", took, tc.took)
				}
			})
		})
	}
}

// Only with its record the ring shares a controller, so the process waits for that.
func TestAProcessThatRegistersLateStandsAsIfItHadBeenInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		e := newElectionTest(t)
		time.AfterFunc(ring.LateLimit-time.Second, func() { e.set(testInstance("me", both)) })
		if got, want := ofBoth(e.prepare(ctx)), []string{"*", "-" + testRS, "-" + testRC}; !slices.Equal(got, want) {
			t.Errorf("stands with %q, want %q", got, want)
		}
	})
}

func TestATermThatNoLongerFitsEndsInGoodOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		e := newElectionTest(t)
		e.set(testInstance("me", both))
		defer e.follow(ctx)()
		if e.stand(ctx, []string{"*"}, e.leaseLock([]string{"*"}), "l", nil, e.callbacks(3*time.Second, nil)) {
			t.Error("stands again, though it has led")
		}
		e.expectLog("works", "renewed", "works no more", "released", "left", "stopped", "exit 1")
	})
}

func TestALeaseIsNotReleasedWhileWorkGoesOnUnderIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		e := newElectionTest(t)
		e.set(testInstance("me", both))
		defer e.follow(ctx)()
		e.stand(ctx, []string{"*"}, e.leaseLock([]string{"*"}), "l", nil, e.callbacks(0, errors.New("controller shutdown timeout reached")))
		e.expectLog("works", "works no more", "left", "stopped", "exit 1")
	})
}

func TestATermWhoseWorkDoesNotEndIsNotRenewedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		e := newElectionTest(t)
		e.set(testInstance("me", both))
		defer e.follow(ctx)()
		time.AfterFunc(ring.ShareLimit+endLimit+time.Second, func() {
			e.lock.Lock()
			defer e.lock.Unlock()
			if !slices.Contains(e.log, "exit 1") {
				t.Errorf("the process goes on: %q", e.log)
			}
		})
		e.stand(ctx, []string{"*"}, e.leaseLock([]string{"*"}), "l", nil, e.callbacks(2*endLimit, nil))
	})
}

// What nobody works on is urgent, what the rings could share is not: an instance that comes and
// goes must not end one term after the other.
func TestATermThatCouldShareMoreEndsLaterThanOneThatLeavesSomethingUndone(t *testing.T) {
	for name, tc := range map[string]struct {
		set  []string
		want time.Duration
	}{
		"the leader runs more than it has to": {[]string{"*"}, ring.ShareLimit},
		"nobody runs one":                     {[]string{"*", "-" + testRS, "-" + testRC}, ring.UndoneLimit},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, ctx := ktesting.NewTestContext(t)
				e := newElectionTest(t)
				e.set(testInstance("me", both))
				if tc.want == ring.UndoneLimit {
					e.set(testInstance("me", both), testInstance("other", []string{testRC}))
				}
				defer e.follow(ctx)()
				began := time.Now()
				var leads atomic.Bool
				leads.Store(true)
				if !e.untilUnfit(ctx, tc.set, &leads) || time.Since(began).Round(time.Second) != tc.want {
					t.Errorf("ended after %v, want %v", time.Since(began), tc.want)
				}
			})
		})
	}
}

func TestACandidateStandsAnewWhenItsSetNoLongerFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		e := newElectionTest(t)
		e.set(testInstance("me", both))
		defer e.follow(ctx)()
		now := metav1.NowMicro()
		lease := testLease("other", "1")
		lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = ptr.To[int32](3600), &now
		if err := e.client.Tracker().Add(lease); err != nil {
			t.Fatal(err)
		}
		if !e.stand(ctx, []string{"*"}, e.leaseLock([]string{"*"}), "l", nil, e.callbacks(0, nil)) {
			t.Error("does not stand again")
		}
		if e.host.Abandoned() {
			t.Error("a process that did not lead left its rings")
		}
		e.expectLog()
	})
}

func TestATermThatFitsGoesOnUntilTheProcessEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		e := newElectionTest(t)
		e.set(testInstance("me", both))
		defer e.follow(ctx)()
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Minute, cancel)
		set := e.prepare(ctx)
		if e.stand(ctx, set, e.leaseLock(set), "l", nil, e.callbacks(3*time.Second, nil)) {
			t.Error("stands again, though it has led")
		}
		if e.host.Abandoned() {
			t.Error("a process that was asked to end left its rings at once")
		}
		e.expectLog("works", "renewed", "works no more", "released", "stopped")
	})
}

// A process that has lost the Lease must not run on until its work has ended.
func TestAProcessThatHasLostTheLeaseExitsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		e := newElectionTest(t)
		e.set(testInstance("me", both))
		defer e.follow(ctx)()
		set := e.prepare(ctx)
		time.AfterFunc(time.Minute, func() {
			e.client.PrependReactor("*", "leases", func(core.Action) (bool, runtime.Object, error) { return true, nil, errors.New("down") })
		})
		e.stand(ctx, set, e.leaseLock(set), "l", nil, e.callbacks(time.Hour, nil))
		e.expectLog("works", "stopped", "exit 1")
		time.Sleep(2 * time.Hour) // until the work has ended
	})
}

// The elector would notice only at its renew deadline.
func TestAProcessThatSeesAnotherHoldTheLeaseExitsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		e := newElectionTest(t)
		e.set(testInstance("me", both))
		defer e.follow(ctx)()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		set := e.prepare(ctx)
		lock := e.leaseLock(set)
		see := func(after time.Duration, holder, version string) {
			time.AfterFunc(after, func() {
				if err := e.leadership.see(ring.Leader{Holder: holder}, version); err != nil {
					t.Error(err)
				}
			})
		}
		// The watch lags, then the Lease is emptied for a moment.
		see(time.Second, "before", "1")
		see(2*time.Second, lock.Identity(), "2")
		see(3*time.Second, "", "3")
		see(4*time.Second, lock.Identity(), "4")
		time.AfterFunc(5*time.Second, func() { e.expectLog("works") })
		see(6500*time.Millisecond, "another", "5")
		time.AfterFunc(7*time.Second, func() {
			e.expectLog("works", "stopped", "exit 1")
			cancel()
		})
		// It lasts: what is expected at 7 s is looked at only while this test goes on.
		e.stand(ctx, set, lock, "l", nil, e.callbacks(time.Minute, nil))
	})
}

// leading runs what a leader with that set runs, until the test ends. It returns which of these
// controllers have begun.
func (e *electionTest) leading(ctx context.Context, set []string, names ...string) (begun func() []string) {
	e.leader = ring.Leader{Holder: ring.SignLeader("p", set)}
	ctx, cancel := context.WithCancel(ctx)
	var lock sync.Mutex
	var ran []string
	done := make(chan error, 1)
	go func() {
		done <- e.led(func(ctx context.Context, descriptors map[string]*ControllerDescriptor) error {
			lock.Lock()
			for _, c := range names {
				if descriptors[c] != nil {
					ran = append(ran, c)
				}
			}
			lock.Unlock()
			<-ctx.Done()
			return nil
		})(ctx, NewControllerDescriptors())
	}()
	e.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			e.Error(err)
		}
		if !e.isIdle() {
			e.Error("what has ended in good order counts as running")
		}
	})
	return func() []string {
		time.Sleep(time.Minute)
		lock.Lock()
		defer lock.Unlock()
		return slices.Clone(ran)
	}
}

const testOther, testUnknown = "node-lifecycle-controller", "ttl-controller"

func TestALeaderStartsARingControllerOnlyOnceNoInstanceWorksOnIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		e := newElectionTest(t)
		e.set(testInstance("me", both), testInstance("other", both, testRS))
		begun := e.leading(ctx, []string{"*", "-" + testRC}, testRS, testRC, testOther)
		expect := func(when string, want ...string) {
			t.Helper()
			if got := begun(); !slices.Equal(got, want) {
				t.Errorf("%s: began %q, want %q", when, got, want)
			}
		}
		expect("while another works on it", testOther)
		e.lock.Lock()
		e.refusal = errors.New("down")
		e.lock.Unlock()
		e.set(testInstance("me", both))
		expect("while the registry cannot be read", testOther)
		e.lock.Lock()
		e.refusal = nil
		e.lock.Unlock()
		e.set(testInstance("me", both), testInstance("other", both, testRC))
		expect("while another works on what the leader does not run", testOther, testRS)
	})
}

// A later version has controllers on its rings that this one runs as leader.
func TestALeaderWaitsForControllersThatOnlyAnotherVersionHasOnARing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		e := newElectionTest(t)
		later := append(slices.Clone(both), testUnknown)
		e.set(testInstance("me", both), testInstance("later", later, testRS, testUnknown))
		begun := e.leading(ctx, []string{"*", "-" + testRS, "-" + testRC}, testRS, testUnknown, testOther)
		if got, want := begun(), []string{testOther}; !slices.Equal(got, want) {
			t.Errorf("while the other works on it, began %q, want %q", got, want)
		}
		e.set(testInstance("me", both), testInstance("later", later, testRS))
		if got, want := begun(), []string{testOther, testUnknown}; !slices.Equal(got, want) {
			t.Errorf("then began %q, want %q", got, want)
		}
	})
}

func TestALeaderWithoutARegistryStartsAllButRingControllers(t *testing.T) {
	for name, tc := range map[string]struct {
		refusal error
		want    []string
	}{
		"not served": {apierrors.NewNotFound(shardingv1alpha1.Resource("controllerinstances"), ""), []string{testOther}},
		"forbidden":  {apierrors.NewForbidden(shardingv1alpha1.Resource("controllerinstances"), "", errors.New("no")), []string{testOther}},
		"no answer":  {errors.New("down"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, ctx := ktesting.NewTestContext(t)
				e := newElectionTest(t)
				e.refusal = tc.refusal
				if got := e.leading(ctx, []string{"*"}, testRS, testRC, testOther)(); !slices.Equal(got, tc.want) {
					t.Errorf("began %q, want %q", got, tc.want)
				}
			})
		})
	}
}
