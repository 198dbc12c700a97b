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

package e2e_ring

import (
	"context"
	"fmt"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/ringtable"
	"k8s.io/kubernetes/test/harness/objects"
)

var _ = ginkgo.Describe("ring", ginkgo.Ordered, func() {
	var namespace string
	var before []*appsv1.ReplicaSet

	ginkgo.BeforeAll(func(ctx context.Context) {
		namespace = newNamespace(ctx)
	})

	ginkgo.It("covers the whole key space without overlap", func(ctx context.Context) {
		expectRing(ctx, instances)
	})

	total := func(ring *ringtable.Ring) (weight int64) {
		for _, i := range ring.Instances {
			weight += i.Weight
		}
		return weight
	}

	ginkgo.It("fills each ReplicaSet exactly, every instance taking part", func(ctx context.Context) {
		// Specs that ran before may have left objects.
		left := total(expectRing(ctx, instances))
		for i := range 40 {
			before = append(before, createReplicaSet(ctx, namespace, fmt.Sprintf("first-%02d", i), 5))
		}
		expectFilled(ctx, before)
		gomega.Eventually(ctx, func(g gomega.Gomega) {
			ring, err := ringNow(ctx)
			g.Expect(err).NotTo(gomega.HaveOccurred())
			for _, i := range ring.Instances {
				g.Expect(i.Weight).To(gomega.BeNumerically(">", 0), "the weight of %s", i.Name)
			}
			// Each ReplicaSet has five pods. An instance reports its weight once that has changed by a
			// tenth.
			g.Expect(total(ring) - left).To(gomega.BeNumerically("~", 6*len(before), len(before)))
		}).WithTimeout(soon).WithPolling(poll).Should(gomega.Succeed())
	})

	ginkgo.It("rolls a Deployment across instances, pod for pod", func(ctx context.Context) {
		const replicas = int32(20)
		deployments := client.AppsV1().Deployments(namespace)
		create(ctx, namespace, objects.Deployment("rolling", replicas, podTemplate("rolling")))
		for revision := 1; revision <= 3; revision++ {
			gomega.Eventually(ctx, func(g gomega.Gomega) {
				d, err := deployments.Get(ctx, "rolling", metav1.GetOptions{})
				g.Expect(err).NotTo(gomega.HaveOccurred())
				g.Expect(d.Status.ObservedGeneration).To(gomega.Equal(d.Generation))
				g.Expect(d.Status.UpdatedReplicas).To(gomega.Equal(replicas))
				g.Expect(d.Status.AvailableReplicas).To(gomega.Equal(replicas))
				g.Expect(d.Status.Replicas).To(gomega.Equal(replicas))
			}).WithTimeout(soon).WithPolling(poll).Should(gomega.Succeed())
			if revision < 3 {
				patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"image:%d"}]}}}}`, revision+1)
				must(deployments.Patch(ctx, "rolling", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}))
			}
		}
		gomega.Expect(creations.UpToNow(ctx)).To(gomega.Succeed())
		list := must(client.AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{LabelSelector: "name=rolling"}))
		gomega.Expect(list.Items).To(gomega.HaveLen(3))
		for _, rs := range list.Items {
			gomega.Expect(creations.Of(rs.UID)).To(gomega.Equal(int(replicas)), "pods ever created for %s", rs.Name)
		}
	})

	ginkgo.It("runs Jobs, CronJobs and DaemonSets across instances, pod for pod", func(ctx context.Context) {
		createCronJobs(ctx, namespace, 4)
		jobs, daemonSets := createJobs(ctx, namespace, "job", 20), createDaemonSets(ctx, namespace, 10)
		expectComplete(ctx, jobs)
		expectDaemons(ctx, daemonSets)
		expectSchedules(ctx, namespace)
	})

	ginkgo.It("heals when a controller manager is killed, with not one pod too many", func(ctx context.Context) {
		victim := cluster.ControllerManagers()[0]
		jobs := createJobs(ctx, namespace, "killed", 20)
		gomega.Expect(cluster.Kill(victim)).To(gomega.Succeed())
		var during []*appsv1.ReplicaSet
		for i := range 20 {
			during = append(during, createReplicaSet(ctx, namespace, fmt.Sprintf("killed-%02d", i), 5))
		}
		expectRing(ctx, instances-1)
		expectFilled(ctx, during)
		expectComplete(ctx, jobs)
	})

	ginkgo.It("gives a new instance its share while the others work on", func(ctx context.Context) {
		known := sets.New[string]()
		for _, i := range expectRing(ctx, instances-1).Instances {
			known.Insert(i.Name)
		}
		must(cluster.AddControllerManager(ctx))
		var during []*appsv1.ReplicaSet
		for i := range 20 {
			during = append(during, createReplicaSet(ctx, namespace, fmt.Sprintf("joined-%02d", i), 5))
		}
		for _, i := range expectRing(ctx, instances).Instances {
			if !known.Has(i.Name) {
				gomega.Expect(i.Owned.Empty()).To(gomega.BeFalse())
			}
		}
		expectFilled(ctx, during)
	})

	ginkgo.It("hands over when a controller manager is asked to terminate", func(ctx context.Context) {
		leaver := cluster.ControllerManagers()[0]
		var during []*appsv1.ReplicaSet
		for i := range 10 {
			during = append(during, createReplicaSet(ctx, namespace, fmt.Sprintf("left-%02d", i), 5))
		}
		gomega.Expect(cluster.StopProcess(ctx, leaver)).To(gomega.Succeed())
		expectRing(ctx, instances-1)
		expectFilled(ctx, during)
	})

	ginkgo.It("scales down and up again exactly", func(ctx context.Context) {
		for _, replicas := range []int32{2, 6} {
			for _, rs := range before {
				must(client.AppsV1().ReplicaSets(namespace).Patch(ctx, rs.Name, types.MergePatchType, []byte(fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)), metav1.PatchOptions{}))
			}
			for _, rs := range before {
				gomega.Eventually(ctx, func(g gomega.Gomega) {
					now, err := client.AppsV1().ReplicaSets(namespace).Get(ctx, rs.Name, metav1.GetOptions{})
					g.Expect(err).NotTo(gomega.HaveOccurred())
					g.Expect(now.Status.Replicas).To(gomega.Equal(replicas), "pods of %s", rs.Name)
					g.Expect(now.Status.ReadyReplicas).To(gomega.Equal(replicas), "ready pods of %s", rs.Name)
				}).WithTimeout(soon).WithPolling(poll).Should(gomega.Succeed())
			}
		}
		gomega.Expect(creations.UpToNow(ctx)).To(gomega.Succeed())
		for _, rs := range before {
			gomega.Expect(creations.Of(rs.UID)).To(gomega.Equal(5+4), "pods ever created for %s", rs.Name)
		}
	})
})
