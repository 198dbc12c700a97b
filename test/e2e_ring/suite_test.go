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

// Package e2e_ring tests a ring of real kube-controller-managers on a real cluster. It
// starts the cluster itself, from the binaries in RINGMASTER_BIN (default: the fork's
// _output/bin).
package e2e_ring

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/pkg/localcluster"
	"k8s.io/kubernetes/pkg/ringtable"
	"k8s.io/kubernetes/test/harness/objects"
	"k8s.io/kubernetes/test/utils/podcreations"
)

const (
	instances = 3
	nodes     = 5
	// soon bounds the wait for any condition. It is ample even for a slow machine.
	soon = 3 * time.Minute
	poll = 100 * time.Millisecond
)

var (
	cluster   *localcluster.Cluster
	client    kubernetes.Interface
	binDir    string
	creations *podcreations.Counter
)

func TestRing(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "ring of kube-controller-managers")
}

var _ = ginkgo.BeforeSuite(func(ctx context.Context) {
	binDir = os.Getenv("RINGMASTER_BIN")
	if binDir == "" {
		binDir = filepath.Join("..", "..", "..", "bin")
	}
	binDir = must(filepath.Abs(binDir))
	cluster = must(localcluster.Start(ctx, localcluster.Config{
		BinDir: binDir, Dir: ginkgo.GinkgoT().TempDir(), Instances: instances, Nodes: nodes,
		Started: func(what string, after time.Duration) {
			ginkgo.GinkgoWriter.Printf("%6.1fs %s\n", after.Seconds(), what)
		},
	}))
	ginkgo.DeferCleanup(func(ctx context.Context) { gomega.Expect(cluster.Stop(ctx)).To(gomega.Succeed()) })
	client = cluster.Client()
	creations = must(podcreations.Start(context.WithoutCancel(ctx), client))
	ginkgo.DeferCleanup(creations.Stop)
})

// ringNow reads the ring of workloads from the API.
func ringNow(ctx context.Context) (*ringtable.Ring, error) {
	return ringNamed(ctx, catalogue.WorkloadsRing)
}

// ringNamed reads the ring of that name from the API.
func ringNamed(ctx context.Context, name string) (*ringtable.Ring, error) {
	return ringtable.Get(ctx, client, name)
}

// expectRing waits until n instances, all Active, cover all hash keys of the ring of workloads, and
// returns them.
func expectRing(ctx context.Context, n int) *ringtable.Ring {
	ginkgo.GinkgoHelper()
	return expectRingNamed(ctx, catalogue.WorkloadsRing, n)
}

// expectRingNamed does the same with the ring of that name.
func expectRingNamed(ctx context.Context, name string, n int) *ringtable.Ring {
	ginkgo.GinkgoHelper()
	var ring *ringtable.Ring
	gomega.Eventually(ctx, func(g gomega.Gomega) {
		var err error
		ring, err = ringNamed(ctx, name)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(ring.Instances).To(gomega.HaveLen(n))
		g.Expect(ring.Active()).To(gomega.Equal(n))
		g.Expect(ring.Gap).To(gomega.BeEmpty())
	}).WithTimeout(soon).WithPolling(poll).Should(gomega.Succeed())
	for i, a := range ring.Instances {
		for _, b := range ring.Instances[i+1:] {
			gomega.Expect(a.Owned.Intersect(b.Owned)).To(gomega.BeEmpty(), "%s and %s own the same keys", a.Name, b.Name)
		}
	}
	return ring
}

// must returns a value that was to come without an error.
func must[T any](value T, err error) T {
	ginkgo.GinkgoHelper()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return value
}

// create creates objects in a namespace.
func create(ctx context.Context, namespace string, all ...runtime.Object) {
	ginkgo.GinkgoHelper()
	gomega.Expect(objects.Create(ctx, client, namespace, all...)).To(gomega.Succeed())
}

func newNamespace(ctx context.Context) string {
	ginkgo.GinkgoHelper()
	ns := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "ring-"}}
	create(ctx, "", ns)
	return ns.Name
}

func podTemplate(name string) v1.PodTemplateSpec {
	return objects.Pods(map[string]string{"name": name})
}

func createReplicaSet(ctx context.Context, namespace, name string, replicas int32) *appsv1.ReplicaSet {
	ginkgo.GinkgoHelper()
	rs := objects.ReplicaSet(name, replicas, podTemplate(name))
	create(ctx, namespace, rs)
	return rs
}

// expectFilled waits until the pods of each ReplicaSet are ready, and checks that no more
// pods than it wants were ever created for it.
func expectFilled(ctx context.Context, replicaSets []*appsv1.ReplicaSet) {
	ginkgo.GinkgoHelper()
	expectReady(ctx, replicaSets)
	gomega.Expect(creations.UpToNow(ctx)).To(gomega.Succeed())
	for _, rs := range replicaSets {
		gomega.Expect(creations.Of(rs.UID)).To(gomega.Equal(int(*rs.Spec.Replicas)), "pods ever created for %s", rs.Name)
	}
}

// expectReady waits until the pods of each ReplicaSet are ready.
func expectReady(ctx context.Context, replicaSets []*appsv1.ReplicaSet) {
	ginkgo.GinkgoHelper()
	for _, rs := range replicaSets {
		gomega.Eventually(ctx, func(g gomega.Gomega) {
			now, err := client.AppsV1().ReplicaSets(rs.Namespace).Get(ctx, rs.Name, metav1.GetOptions{})
			g.Expect(err).NotTo(gomega.HaveOccurred())
			g.Expect(now.Status.ReadyReplicas).To(gomega.Equal(*rs.Spec.Replicas), "ready pods of %s", rs.Name)
		}).WithTimeout(soon).WithPolling(poll).Should(gomega.Succeed())
	}
}
