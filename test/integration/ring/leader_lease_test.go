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
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/test/integration/framework"
	"k8s.io/utils/ptr"
)

const (
	leaderLease = "kube-controller-manager"
	stock       = "stock_1"
)

// ours is the identity of a leader with rings.
var ours = ring.SignLeader("host_1", []string{"*", "-" + replicaSetController})

// leaderServer is a kube-apiserver and its leader's Lease.
type leaderServer struct {
	*fenceServer
}

// eachLeaderServer runs the test with leases in the etcd of the registry, and in another one.
func eachLeaderServer(t *testing.T, test func(leaderServer)) {
	t.Run("in one etcd", func(t *testing.T) {
		test(leaderServer{startFenceServer(t).on(t)})
	})
	t.Run("in another etcd", func(t *testing.T) {
		url, stop, err := framework.RunCustomEtcd(klog.Background(), "leases-etcd", nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
		test(leaderServer{startFenceServer(t, "--etcd-servers-overrides=coordination.k8s.io/leases#"+url).on(t)})
	})
}

func (s leaderServer) leases() coordinationclient.LeaseInterface {
	return s.client.CoordinationV1().Leases(metav1.NamespaceSystem)
}

func newLease(holder string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leaderLease}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
}

// registerAs creates a record of the ring.
func (s leaderServer) registerAs(ringName, name string) {
	s.t.Helper()
	record := newRecord(name)
	record.Spec.Ring = ringName
	s.create(record)
}

func (s leaderServer) unregister(name string) {
	s.t.Helper()
	s.must(s.instances().Delete(s.t.Context(), name, *metav1.NewDeleteOptions(0)))
}

// reset leaves the Lease to that holder, and nobody registered. No holder means no Lease.
func (s leaderServer) reset(holder string) {
	s.t.Helper()
	ctx := s.t.Context()
	s.must(s.instances().DeleteCollection(ctx, *metav1.NewDeleteOptions(0), metav1.ListOptions{}))
	if err := s.leases().Delete(ctx, leaderLease, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		s.t.Fatal(err)
	}
	if holder == "" {
		return
	}
	if _, err := s.leases().Create(ctx, newLease(holder), metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// version returns the resource version of the Lease, "" if there is none.
func (s leaderServer) version() string {
	s.t.Helper()
	lease, err := s.leases().Get(s.t.Context(), leaderLease, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		s.t.Fatal(err)
	}
	return lease.ResourceVersion
}

// patch has the holder take the Lease, or renew it, without a look at it.
func (s leaderServer) patch(holder string) (*coordinationv1.Lease, error) {
	patch := fmt.Appendf(nil, `{"spec":{"holderIdentity":%q,"renewTime":%q}}`, holder, time.Now().UTC().Format(metav1.RFC3339Micro))
	return s.leases().Patch(s.t.Context(), leaderLease, types.MergePatchType, patch, metav1.PatchOptions{})
}

func (s leaderServer) update(holder string) error {
	lease, err := s.leases().Get(s.t.Context(), leaderLease, metav1.GetOptions{})
	if err == nil {
		lease.Spec.HolderIdentity = &holder
		lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
		_, err = s.leases().Update(s.t.Context(), lease, metav1.UpdateOptions{})
	}
	return err
}

func (s leaderServer) apply(holder string) error {
	lease := newLease(holder)
	lease.TypeMeta = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
	lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
	data, err := json.Marshal(lease)
	if err == nil {
		_, err = s.leases().Patch(s.t.Context(), leaderLease, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: "test", Force: ptr.To(true)})
	}
	return err
}

func (s leaderServer) wantKept(what string, err error, record string) {
	s.t.Helper()
	message := fmt.Sprintf("ControllerInstance %s is registered: kube-controller-managers with rings are running. ", record)
	if !apierrors.IsConflict(err) || !fence.IsRingsRunning(err) || !strings.Contains(err.Error(), message) {
		s.t.Errorf("%s: got %v, want a conflict with %q", what, err, message)
	}
}

// TestALeaderWithoutRingsIsRefusedWhileAnInstanceIsRegistered: whichever way it writes the
// Lease.
func TestALeaderWithoutRingsIsRefusedWhileAnInstanceIsRegistered(t *testing.T) {
	eachLeaderServer(t, func(s leaderServer) {
		for what, way := range map[string]struct {
			// before holds the Lease before; "": there is none.
			before string
			take   func() error
		}{
			"create": {"", func() error {
				_, err := s.leases().Create(s.t.Context(), newLease(stock), metav1.CreateOptions{})
				return err
			}},
			"update":            {ours, func() error { return s.update(stock) }},
			"merge patch":       {ours, func() error { _, err := s.patch(stock); return err }},
			"apply":             {ours, func() error { return s.apply(stock) }},
			"apply anew":        {"", func() error { return s.apply(stock) }},
			"another stock one": {"stock_2", func() error { return s.update(stock) }},
			// Where nobody holds the Lease the rings begin, beside the one that has just lost it.
			"release by stock": {stock, func() error { return s.update("") }},
			"delete under stock": {stock, func() error {
				return s.leases().Delete(s.t.Context(), leaderLease, metav1.DeleteOptions{})
			}},
			"delete of many under stock": {stock, func() error {
				return s.leases().DeleteCollection(s.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
			}},
		} {
			s.reset(way.before)
			s.registerAs(catalogue.WorkloadsRing, "workloads-a")
			version := s.version()
			s.wantKept(what, way.take(), "workloads-a")
			if got := s.version(); got != version {
				s.t.Errorf("%s: the Lease has changed from version %q to %q", what, version, got)
			}
			s.unregister("workloads-a")
			s.wantPassed(what+" when the record is gone", way.take())
		}

		s.reset(ours)
		s.registerAs(catalogue.WorkloadsRing, "workloads-a")
		s.must(s.leases().Delete(s.t.Context(), leaderLease, metav1.DeleteOptions{}))
		_, err := s.leases().Create(s.t.Context(), newLease(stock), metav1.CreateOptions{})
		s.wantKept("delete and create", err, "workloads-a")
	})
}

// TestAllElseOfTheLeadersLeaseIsAsInAStockCluster: renewals, releases and leaders with rings.
func TestAllElseOfTheLeadersLeaseIsAsInAStockCluster(t *testing.T) {
	eachLeaderServer(t, func(s leaderServer) {
		hold := func(what, holder string) {
			s.t.Helper()
			_, err := s.patch(holder)
			s.wantPassed(what, err)
			s.wantPassed(what+", by update", s.update(holder))
			s.wantPassed(what+", by apply", s.apply(holder))
		}
		s.reset("")
		s.registerAs(testRing, "operators")
		s.wantPassed("a stock leader beside an operator's ring", s.apply(stock))
		for _, name := range ring.ManagerRings {
			s.registerAs(name, name+"-a")
		}
		hold("a stock leader renews", stock)
		hold("one of ours takes over", ours)
		hold("another of ours", ring.SignLeader("host_2", []string{"*"}))
		hold("it releases", "")
		s.wantKept("stock after the release", s.update(stock), "claims-a")

		lease := newLease(stock)
		lease.Name = "kube-scheduler"
		_, err := s.leases().Create(s.t.Context(), lease, metav1.CreateOptions{})
		s.wantPassed("another Lease", err)
		lease.Name = leaderLease
		_, err = s.client.CoordinationV1().Leases(metav1.NamespaceDefault).Create(s.t.Context(), lease, metav1.CreateOptions{})
		s.wantPassed("a Lease of that name elsewhere", err)
	})
}

// TestALeaderWithoutRingsAndAnInstanceNeverMissEachOther: where they come at the same time,
// either the Lease is taken first and the instance sees it, or the record is there first and
// the Lease is refused.
func TestALeaderWithoutRingsAndAnInstanceNeverMissEachOther(t *testing.T) {
	const rounds, instances, leaders = 40, 3, 4
	s := leaderServer{startFenceServer(t).on(t)}
	ctx := t.Context()
	revision := func(version string) int64 {
		n, err := strconv.ParseInt(version, 10, 64)
		if err != nil {
			t.Error(err)
		}
		return n
	}
	taken, refused := 0, 0
	for round := range rounds {
		s.reset(ours)
		var lock sync.Mutex
		var registered, took []int64
		var saw []string
		var registering, all sync.WaitGroup
		first := make(chan struct{})
		for i := range instances {
			registering.Add(1)
			all.Go(func() {
				defer registering.Done()
				if round%4 == 0 {
					<-first
				}
				record := newRecord(fmt.Sprintf("workloads-%d", i))
				record.Spec.Ring = catalogue.WorkloadsRing
				created, err := s.instances().Create(ctx, record, metav1.CreateOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				lease, err := s.leases().Get(ctx, leaderLease, metav1.GetOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				lock.Lock()
				defer lock.Unlock()
				registered = append(registered, revision(created.ResourceVersion))
				saw = append(saw, *lease.Spec.HolderIdentity)
			})
		}
		done := make(chan struct{})
		go func() { registering.Wait(); close(done) }()
		met := sync.OnceFunc(func() { close(first) })
		for i := range leaders {
			all.Go(func() {
				// Each tries once more after all have registered.
				for try, last := 0, false; !last; try++ {
					select {
					case <-done:
						last = true
					default:
					}
					lease, err := s.patch(fmt.Sprintf("stock_%d_%d", i, try))
					met()
					lock.Lock()
					switch {
					case err == nil:
						taken++
						took = append(took, revision(lease.ResourceVersion))
					case fence.IsRingsRunning(err):
						refused++
					default:
						t.Errorf("the Lease was refused with %v", err)
					}
					lock.Unlock()
				}
			})
		}
		all.Wait()
		for _, at := range took {
			for _, created := range registered {
				if at > created {
					t.Fatalf("round %d: the Lease was taken at revision %d, though an instance was registered at %d", round, at, created)
				}
			}
		}
		for _, holder := range saw {
			if stock := !(ring.Leader{Holder: holder}).Signed(); stock != (len(took) > 0) {
				t.Fatalf("round %d: an instance read the holder %q after it had registered, and the Lease was taken %d times", round, holder, len(took))
			}
		}
	}
	t.Logf("the Lease was taken %d times, and refused %d times", taken, refused)
	if taken == 0 || refused == 0 {
		t.Errorf("the Lease was taken %d times and refused %d times, want both", taken, refused)
	}
}

// TestAStockLeaderElectorWaitsForTheRecordsToGo: it says why, and keeps trying.
func TestAStockLeaderElectorWaitsForTheRecordsToGo(t *testing.T) {
	s := leaderServer{startFenceServer(t).on(t)}
	for what, before := range map[string]string{"without a Lease": "", "where ours has died": ours} {
		t.Run(what, func(t *testing.T) {
			s := leaderServer{s.on(t)}
			s.reset(before)
			s.registerAs(catalogue.WorkloadsRing, "workloads-a")
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			refusals := make(chan struct{}, 1000)
			logger := funcr.New(func(_, args string) {
				if strings.Contains(args, "ControllerInstance workloads-a is registered") {
					select {
					case refusals <- struct{}{}:
					default:
					}
				}
			}, funcr.Options{})
			ctx = klog.NewContext(ctx, logger)
			leads := make(chan struct{})
			elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
				Lock: &resourcelock.LeaseLock{
					LeaseMeta:  metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: leaderLease},
					Client:     s.client.CoordinationV1(),
					LockConfig: resourcelock.ResourceLockConfig{Identity: stock},
				},
				LeaseDuration: 2 * time.Second, RenewDeadline: time.Second, RetryPeriod: 100 * time.Millisecond,
				Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { close(leads) }, OnStoppedLeading: func() {}},
			})
			if err != nil {
				t.Fatal(err)
			}
			running, stop := context.WithCancel(ctx)
			var ended sync.WaitGroup
			ended.Go(func() { elector.Run(running) })
			defer ended.Wait()
			defer stop()
			for range 3 {
				select {
				case <-refusals:
				case <-leads:
					t.Fatal("it leads beside an instance")
				case <-ctx.Done():
					t.Fatal("it does not say why it cannot lead")
				}
			}
			s.unregister("workloads-a")
			select {
			case <-leads:
			case <-ctx.Done():
				t.Fatal("it does not lead after the record is gone")
			}
		})
	}
}
