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
	"syscall"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	kubeapiservertesting "k8s.io/kubernetes/cmd/kube-apiserver/app/testing"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/pkg/ringtable"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/integration/framework"
	"k8s.io/kubernetes/test/utils/controllermanager"
	"k8s.io/kubernetes/test/utils/podcreations"
)

// soon bounds the wait for any condition. It is ample even for a slow machine.
const soon = 2 * time.Minute

// ringTest is an API server with controller managers. These are real processes, which
// run only the ReplicaSet controller.
type ringTest struct {
	*testing.T
	client     kubernetes.Interface
	kubeconfig string
	creations  *podcreations.Counter
}

func newRingTest(t *testing.T) *ringTest {
	server := kubeapiservertesting.StartTestServerOrDie(t, nil, []string{"--disable-admission-plugins=ServiceAccount"}, framework.SharedEtcd())
	t.Cleanup(server.TearDownFn)
	config := rest.CopyConfig(server.ClientConfig)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	r := &ringTest{T: t, client: client, kubeconfig: controllermanager.Kubeconfig(t, config)}
	if r.creations, err = podcreations.Start(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.creations.Stop)
	return r
}

// start starts a controller manager, which ends with the test.
func (r *ringTest) start(args ...string) *exec.Cmd {
	r.Helper()
	return controllermanager.Start(r, append([]string{
		"--kubeconfig=" + r.kubeconfig, "--controllers=" + catalogue.ReplicaSetController, "--secure-port=0",
		"--kube-api-qps=500", "--kube-api-burst=500", "--leader-elect=false",
	}, args...)...)
}

// eventually waits until check returns nil.
func (r *ringTest) eventually(check func(ctx context.Context) error) {
	r.Helper()
	var last error
	err := wait.PollUntilContextTimeout(r.Context(), 50*time.Millisecond, soon, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		r.Fatalf("%v: %v", err, last)
	}
}

func (r *ringTest) ring(ctx context.Context) (*ringtable.Ring, error) {
	return ringtable.Get(ctx, r.client, catalogue.WorkloadsRing)
}

// expectRing waits until n instances, all Active, cover all hash keys.
func (r *ringTest) expectRing(n int) {
	r.Helper()
	r.eventually(func(ctx context.Context) error {
		return harness.Settled(ctx, r.client, catalogue.WorkloadsRing, n)
	})
}

func (r *ringTest) createReplicaSets(namespace string, n int, replicas int32) []*apps.ReplicaSet {
	r.Helper()
	var out []*apps.ReplicaSet
	for range n {
		labels := map[string]string{"set": fmt.Sprint(len(out))}
		rs, err := r.client.AppsV1().ReplicaSets(namespace).Create(r.Context(), &apps.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "set-"},
			Spec: apps.ReplicaSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: v1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "image"}}},
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			r.Fatal(err)
		}
		out = append(out, rs)
	}
	return out
}

func (r *ringTest) scale(sets []*apps.ReplicaSet, replicas int32) {
	r.Helper()
	for _, rs := range sets {
		if _, err := r.client.AppsV1().ReplicaSets(rs.Namespace).Patch(r.Context(), rs.Name, types.MergePatchType, []byte(fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)), metav1.PatchOptions{}); err != nil {
			r.Fatal(err)
		}
	}
}

// expectFilled waits until each ReplicaSet has that many pods, and checks that no more
// have ever been created for it.
func (r *ringTest) expectFilled(sets []*apps.ReplicaSet, replicas int32) {
	r.Helper()
	for _, rs := range sets {
		r.eventually(func(ctx context.Context) error {
			now, err := r.client.AppsV1().ReplicaSets(rs.Namespace).Get(ctx, rs.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if now.Status.ObservedGeneration != now.Generation || now.Status.Replicas != replicas {
				return fmt.Errorf("ReplicaSet %s has %d pods of generation %d, want %d of %d", rs.Name, now.Status.Replicas, now.Status.ObservedGeneration, replicas, now.Generation)
			}
			return nil
		})
	}
	if err := r.creations.UpToNow(r.Context()); err != nil {
		r.Fatal(err)
	}
	for _, rs := range sets {
		if got := r.creations.Of(rs.UID); got != int(replicas) {
			r.Errorf("%d pods were created for ReplicaSet %s, want %d", got, rs.Name, replicas)
		}
	}
}

func TestControllerManagersJoinLeaveAndCrash(t *testing.T) {
	r := newRingTest(t)
	ns := framework.CreateNamespaceOrDie(r.client, "join-leave-crash", t)
	first := r.start()
	r.expectRing(1)
	sets := r.createReplicaSets(ns.Name, 30, 1)
	r.expectFilled(sets, 1)

	second, third := r.start(), r.start()
	r.scale(sets, 2)
	r.expectRing(3)
	r.expectFilled(sets, 2)
	r.eventually(func(ctx context.Context) error {
		ring, err := r.ring(ctx)
		if err != nil {
			return err
		}
		for _, i := range ring.Instances {
			if i.Weight == 0 || i.Weight > 45 {
				return fmt.Errorf("%s has %d of 30 ReplicaSets with two pods each, want its share", i.Name, i.Weight)
			}
		}
		return nil
	})

	// An instance that is asked to terminate deletes its record.
	if err := second.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	r.scale(sets, 3)
	_ = second.Wait()
	if ring, err := r.ring(t.Context()); err != nil || len(ring.Instances) != 2 {
		t.Errorf("after one of three has left: %v, %v, want two instances", ring, err)
	}
	r.expectRing(2)
	r.expectFilled(sets, 3)

	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.scale(sets, 4)
	r.expectRing(1)
	r.expectFilled(sets, 4)

	if err := third.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = third.Wait()
	r.expectRing(0)
}

func TestPausedControllerManagerDoesNothingInExcess(t *testing.T) {
	r := newRingTest(t)
	ns := framework.CreateNamespaceOrDie(r.client, "paused", t)
	paused := r.start()
	r.expectRing(1)
	sets := r.createReplicaSets(ns.Name, 20, 1)
	r.expectFilled(sets, 1)
	r.start()
	r.expectRing(2)

	if err := paused.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r.expectRing(1)
	r.scale(sets, 3)
	r.expectFilled(sets, 3)
	if err := paused.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	r.expectRing(2)
	r.scale(sets, 4)
	r.expectFilled(sets, 4)
}

func TestSettingsAreReadAgain(t *testing.T) {
	r := newRingTest(t)
	settings := filepath.Join(t.TempDir(), "ring.yaml")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(settings, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("leaseDuration: 3s\n")
	r.start("--controller-ring-config=" + settings)
	r.expectRing(1)
	list, err := r.client.ShardingV1alpha1().ControllerInstances().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Spec.LeaseDurationSeconds != 3 {
		t.Errorf("got %v, %v, want one instance with a lease of 3 s", list, err)
	}
	write("controllers: []\n")
	r.expectRing(0)
	write("controllers:\n- name: nonsense\n")
	write("controllers:\n- name: replicaset-controller\n  workers: 2\n")
	r.expectRing(1)
}
