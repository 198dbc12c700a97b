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

	discovery "k8s.io/api/discovery/v1"
	policy "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/test/harness/objects"
	"k8s.io/utils/ptr"
)

var _ = ginkgo.Describe("ring of namespaces", ginkgo.Ordered, func() {
	var namespaces []string

	ginkgo.It("covers the whole key space without overlap", func(ctx context.Context) {
		for _, ring := range []string{catalogue.NamespacesRing, catalogue.ClaimsRing} {
			expectRingNamed(ctx, ring, len(cluster.ControllerManagers()))
		}
	})

	ginkgo.It("brings together what is in a namespace", func(ctx context.Context) {
		for range 8 {
			namespaces = append(namespaces, newNamespace(ctx))
		}
		for _, namespace := range namespaces {
			createService(ctx, namespace, 3)
		}
		for _, namespace := range namespaces {
			expectService(ctx, namespace, 3)
		}
	})

	ginkgo.It("goes on when a controller manager is killed, and when one joins", func(ctx context.Context) {
		n := len(cluster.ControllerManagers())
		gomega.Expect(cluster.Kill(cluster.ControllerManagers()[0])).To(gomega.Succeed())
		for _, namespace := range namespaces {
			scaleService(ctx, namespace, 4)
		}
		expectRingNamed(ctx, catalogue.NamespacesRing, n-1)
		for _, namespace := range namespaces {
			expectService(ctx, namespace, 4)
		}
		must(cluster.AddControllerManager(ctx))
		for _, namespace := range namespaces {
			scaleService(ctx, namespace, 2)
		}
		expectRingNamed(ctx, catalogue.NamespacesRing, n)
		expectRingNamed(ctx, catalogue.WorkloadsRing, n)
		for _, namespace := range namespaces {
			expectService(ctx, namespace, 2)
		}
	})
})

// createService creates a StatefulSet of that many pods with claims, a Service for them, and a
// budget that lets one be missing.
func createService(ctx context.Context, namespace string, replicas int32) {
	ginkgo.GinkgoHelper()
	pods := podTemplate("set")
	create(ctx, namespace, objects.Service("set", pods.Labels), objects.StatefulSet("set", replicas, pods), &policy.PodDisruptionBudget{
		ObjectMeta: objects.Named("set"),
		Spec:       policy.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(1)), Selector: objects.Selector(pods.Labels)},
	})
}

func scaleService(ctx context.Context, namespace string, replicas int32) {
	ginkgo.GinkgoHelper()
	must(client.AppsV1().StatefulSets(namespace).Patch(ctx, "set", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{}))
}

// expectService waits until the set has its pods, the Service all their addresses, in
// EndpointSlices and in Endpoints, and the budget allows one to be missing.
func expectService(ctx context.Context, namespace string, replicas int32) {
	ginkgo.GinkgoHelper()
	gomega.Eventually(ctx, func(g gomega.Gomega) {
		pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "name=set"})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		var addresses, published, legacy []string
		for _, pod := range pods.Items {
			addresses = append(addresses, pod.Status.PodIP)
		}
		g.Expect(addresses).To(gomega.HaveLen(int(replicas)))
		slices, err := client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discovery.LabelServiceName + "=set"})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		for _, slice := range slices.Items {
			for _, endpoint := range slice.Endpoints {
				if endpoint.Conditions.Ready != nil && *endpoint.Conditions.Ready {
					published = append(published, endpoint.Addresses...)
				}
			}
		}
		g.Expect(published).To(gomega.ConsistOf(addresses))
		endpoints, err := client.CoreV1().Endpoints(namespace).Get(ctx, "set", metav1.GetOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		for _, subset := range endpoints.Subsets {
			for _, address := range subset.Addresses {
				legacy = append(legacy, address.IP)
			}
		}
		g.Expect(legacy).To(gomega.ConsistOf(addresses))
		budget, err := client.PolicyV1().PodDisruptionBudgets(namespace).Get(ctx, "set", metav1.GetOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(budget.Status.ExpectedPods).To(gomega.Equal(replicas))
		g.Expect(budget.Status.DisruptionsAllowed).To(gomega.Equal(int32(1)))
	}).WithTimeout(soon).WithPolling(poll).Should(gomega.Succeed())
}
