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
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/ring"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/test/integration/framework"
	"k8s.io/utils/ptr"
)

const (
	replicaSets            = catalogue.ReplicaSetController
	replicationControllers = catalogue.ReplicationControllerController
)

// candidate starts a controller manager that stands for leader and runs both controllers.
func (r *ringTest) candidate(args ...string) *exec.Cmd {
	r.Helper()
	return r.candidateWithReplicaSets(append([]string{"--controllers=" + replicationControllers}, args...)...)
}

// candidateWithReplicaSets starts one that runs the ReplicaSet controller, as start does, and
// what other --controllers add.
func (r *ringTest) candidateWithReplicaSets(args ...string) *exec.Cmd {
	r.Helper()
	return r.start(append([]string{
		"--leader-elect=true",
		"--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=1s",
	}, args...)...)
}

// stock starts one that knows no rings.
func (r *ringTest) stock() *exec.Cmd {
	r.Helper()
	return r.candidate("--feature-gates=ControllerRing=false")
}

// leader returns who leads now, and the Lease's resource version.
func (r *ringTest) leader(ctx context.Context) (ring.Leader, string, error) {
	lease, err := r.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, "kube-controller-manager", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ring.Leader{}, "", nil
	}
	if err != nil {
		return ring.Leader{}, "", err
	}
	return ring.Leader{Holder: ptr.Deref(lease.Spec.HolderIdentity, "")}, lease.ResourceVersion, nil
}

// expectLeader waits until somebody leads that is not one of these, and says whether it may
// run each of both controllers.
func (r *ringTest) expectLeader(signed bool, runs []string, not ...ring.Leader) ring.Leader {
	r.Helper()
	var leader ring.Leader
	r.eventually(func(ctx context.Context) (err error) {
		if leader, _, err = r.leader(ctx); err != nil {
			return err
		}
		if leader.Holder == "" || slices.Contains(not, leader) || leader.Signed() != signed {
			return fmt.Errorf("%q leads; want another, signed: %t", leader.Holder, signed)
		}
		for _, c := range []string{replicaSets, replicationControllers} {
			if leader.Runs(c) != slices.Contains(runs, c) {
				return fmt.Errorf("%q runs %s: %t", leader.Holder, c, leader.Runs(c))
			}
		}
		return nil
	})
	return leader
}

// expectWorking waits until the instances of the ring work on exactly these controllers, and
// those that do not say why with these words.
func (r *ringTest) expectWorking(controllers []string, reason string) {
	r.Helper()
	r.eventually(func(ctx context.Context) error {
		list, err := r.client.ShardingV1alpha1().ControllerInstances().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) == 0 {
			return fmt.Errorf("no instances")
		}
		for _, i := range list.Items {
			if len(i.Status.Controllers) != len(i.Spec.Controllers) {
				return fmt.Errorf("%s says %+v of %q", i.Name, i.Status.Controllers, i.Spec.Controllers)
			}
			for _, c := range i.Status.Controllers {
				if want := slices.Contains(controllers, c.Name); c.Working != want || !want && !strings.Contains(c.Reason, reason) {
					return fmt.Errorf("%s: %+v, want working: %t, or a reason with %q", i.Name, c, want, reason)
				}
			}
		}
		return nil
	})
}

// expectExit waits until the process has ended, and checks its exit code.
func (r *ringTest) expectExit(cmd *exec.Cmd, code int) {
	r.Helper()
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	select {
	case <-ended:
		if got := cmd.ProcessState.ExitCode(); got != code {
			r.Errorf("exit code %d, want %d", got, code)
		}
	case <-time.After(soon):
		r.Fatal("the process does not exit")
	}
}

func TestALeaderLeavesToTheRingWhatItShares(t *testing.T) {
	r := newRingTest(t)
	ns := framework.CreateNamespaceOrDie(r.client, "leader", t)
	first := r.candidate()
	r.expectRing(1)
	leads := r.expectLeader(true, nil)
	second := r.candidate()
	r.expectRing(2)
	r.expectWorking([]string{replicaSets, replicationControllers}, "")
	sets := r.createReplicaSets(ns.Name, 10, 1)
	r.expectFilled(sets, 1)

	// One that does not run a controller takes that from the ring. The leader exits, and
	// whoever leads next runs the controller if it can.
	third := r.candidateWithReplicaSets()
	r.expectExit(first, 1)
	if ring, err := r.ring(t.Context()); err != nil || len(ring.Instances) != 2 {
		t.Errorf("%v, %v as the leader has exited; want two instances", ring, err)
	}
	if leader, _, err := r.leader(t.Context()); err != nil || leader == leads {
		t.Errorf("%q holds the Lease though it has ended its term: %v", leader.Holder, err)
	}
	r.eventually(func(ctx context.Context) error {
		leader, _, err := r.leader(ctx)
		if err == nil && (leader.Holder == "" || !leader.Signed() || leader.Runs(replicaSets)) {
			err = fmt.Errorf("%q leads", leader.Holder)
		}
		return err
	})
	r.expectWorking([]string{replicaSets}, "")
	r.scale(sets, 2)
	r.expectFilled(sets, 2)

	// Without it the ring could share the controller again. The leader goes on for a while, and
	// whoever leads after it leaves the controller to the ring.
	if err := third.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = third.Wait()
	r.expectRing(1)
	if err := second.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = second.Wait()
	r.candidate()
	r.expectWorking([]string{replicaSets, replicationControllers}, "")
	r.scale(sets, 3)
	r.expectFilled(sets, 3)
}

func TestAManagerWithoutRingsDoesNotLeadBesideARing(t *testing.T) {
	r := newRingTest(t)
	ns := framework.CreateNamespaceOrDie(r.client, "stock", t)
	stock := r.stock()
	first := r.expectLeader(false, []string{replicaSets, replicationControllers})
	sets := r.createReplicaSets(ns.Name, 10, 1)
	r.expectFilled(sets, 1)

	// The upgrade begins: ours waits for the leader.
	ours := r.candidate()
	r.expectRing(1)
	r.expectWorking(nil, first.Holder)
	r.scale(sets, 2)
	r.expectFilled(sets, 2)
	if err := stock.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.expectLeader(true, nil)
	r.expectWorking([]string{replicaSets, replicationControllers}, "")
	r.scale(sets, 3)
	r.expectFilled(sets, 3)

	// Another stock one never gets the Lease while ours lives, not even one that is deleted.
	r.stock()
	for range 5 {
		if err := r.client.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(r.Context(), "kube-controller-manager", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		r.eventually(func(ctx context.Context) error {
			leader, _, err := r.leader(ctx)
			if leader.Holder != "" && !leader.Signed() {
				t.Fatalf("%q, which knows no rings, leads beside a ring", leader.Holder)
			}
			if err == nil && leader.Holder == "" {
				err = fmt.Errorf("nobody leads")
			}
			return err
		})
	}
	r.scale(sets, 4)
	r.expectFilled(sets, 4)

	// Without ours it leads.
	if err := ours.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = ours.Wait()
	r.expectLeader(false, []string{replicaSets, replicationControllers})
	r.scale(sets, 5)
	r.expectFilled(sets, 5)
}

// settings returns the path of a settings file with that content.
func (r *ringTest) settings(content string) string {
	r.Helper()
	path := filepath.Join(r.TempDir(), "ring.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		r.Fatal(err)
	}
	return path
}

// What ends at once takes its record with it, which would live for an hour.
func TestAProcessThatHasLostTheLeaseLeavesNoRecord(t *testing.T) {
	r := newRingTest(t)
	leads := r.candidate("--controller-ring-config=" + r.settings("leaseDuration: 1h\n"))
	r.expectRing(1)
	leader := r.expectLeader(true, nil)
	r.eventually(func(ctx context.Context) error {
		_, err := r.client.CoordinationV1().Leases(metav1.NamespaceSystem).Patch(ctx, "kube-controller-manager", "application/merge-patch+json",
			[]byte(fmt.Sprintf(`{"spec":{"holderIdentity":%q,"leaseDurationSeconds":3600}}`, ring.SignLeader("another", []string{"*", "-" + replicaSets, "-" + replicationControllers}))), metav1.PatchOptions{})
		return err
	})
	r.expectExit(leads, 1)
	r.expectLeader(true, nil, leader)
	r.expectRing(0)
}

func TestASecondSignalDoesNotWaitAndLeavesNoRecord(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		code int
	}{
		"a process that signals end":  {code: -1},
		"a process that handles them": {args: []string{"--feature-gates=ControllerManagerReleaseLeaderElectionLockOnExit=true"}, code: 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRingTest(t)
			settings := "--controller-ring-config=" + r.settings("leaseDuration: 1h\n")
			leaving := r.candidate(append([]string{settings}, tc.args...)...)
			r.expectRing(1)
			ring, err := r.ring(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			name := ring.Instances[0].Name
			successor := r.candidate(settings)
			r.expectRing(2)
			// Whoever leaves waits for the caches of a successor that lives.
			if err := successor.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			if err := leaving.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			r.eventually(func(ctx context.Context) error {
				instance, err := r.client.ShardingV1alpha1().ControllerInstances().Get(ctx, name, metav1.GetOptions{})
				if err == nil && instance.Status.Phase != shardingv1alpha1.InstanceLeaving {
					err = fmt.Errorf("%s is %s", name, instance.Status.Phase)
				}
				return err
			})
			if err := leaving.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			r.expectExit(leaving, tc.code)
			if _, err := r.client.ShardingV1alpha1().ControllerInstances().Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("the record is still there: %v", err)
			}
		})
	}
}
