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
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-base/metrics/testutil"
)

var _ = ginkgo.Describe("observability", func() {
	ginkgo.It("shows the ring on /metrics and in events", func(ctx context.Context) {
		expectRing(ctx, len(cluster.ControllerManagers()))
		receiver := must(cluster.AddControllerManager(ctx))
		ring := expectRing(ctx, len(cluster.ControllerManagers()))

		gomega.Eventually(ctx, func(g gomega.Gomega) {
			owned, received := 0.0, 0.0
			for _, process := range cluster.ControllerManagers() {
				page, err := cluster.Get(ctx, process, "/metrics")
				g.Expect(err).NotTo(gomega.HaveOccurred())
				metrics := testutil.NewMetrics()
				g.Expect(testutil.ParseMetrics(string(page), &metrics)).To(gomega.Succeed())
				value := func(name string, labels map[string]string) float64 {
					labels["ring"] = "workloads"
					total, found := 0.0, false
					for _, sample := range metrics["controller_ring_"+name] {
						matches := true
						for label, want := range labels {
							matches = matches && string(sample.Metric[testutil.LabelName(label)]) == want
						}
						if matches {
							total, found = total+float64(sample.Value), true
						}
					}
					g.Expect(found).To(gomega.BeTrue(), "%s shows %s %v", process, name, labels)
					return total
				}
				g.Expect(value("phase", map[string]string{"phase": "Active"})).To(gomega.Equal(1.0))
				g.Expect(value("phase", map[string]string{"phase": "Locked"})).To(gomega.Equal(0.0))
				g.Expect(value("registrations_total", map[string]string{})).To(gomega.BeNumerically(">", 0))
				g.Expect(value("renewals_total", map[string]string{"result": "renewed"})).To(gomega.BeNumerically(">", 0))
				g.Expect(value("news_total", map[string]string{"result": "stored"})).To(gomega.BeNumerically(">", 0))
				// What is under way elsewhere in its range when a donor raises its epoch is refused.
				g.Expect(value("refused_writes_total", map[string]string{"by": "server"})).To(gomega.BeNumerically(">=", 0))
				g.Expect(value("weight", map[string]string{})).To(gomega.BeNumerically(">=", 0))
				g.Expect(value("heaviest_key_ratio", map[string]string{})).To(gomega.BeNumerically(">=", 0))
				g.Expect(value("busy", map[string]string{})).To(gomega.BeNumerically(">=", 0))
				g.Expect(value("handover_step_seconds_count", map[string]string{"step": "open"})).To(gomega.BeNumerically(">", 0))
				owned += value("owned_ratio", map[string]string{})
				received += value("handovers_total", map[string]string{})
				if process == receiver {
					g.Expect(value("handovers_total", map[string]string{"kind": "join"})).To(gomega.BeNumerically(">", 0))
					g.Expect(value("unserved_seconds_count", map[string]string{"kind": "join"})).To(gomega.BeNumerically(">", 0))
				}
			}
			g.Expect(owned).To(gomega.BeNumerically("~", 1, 1e-9))
			g.Expect(received).To(gomega.BeNumerically(">=", len(cluster.ControllerManagers())))
		}).WithTimeout(soon).WithPolling(poll).Should(gomega.Succeed())

		gomega.Eventually(ctx, func(g gomega.Gomega) {
			// Events of objects without a namespace are in the default namespace.
			events, err := client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=ControllerInstance"})
			g.Expect(err).NotTo(gomega.HaveOccurred())
			told := sets.New[string]()
			for _, event := range events.Items {
				told.Insert(event.InvolvedObject.Name + " " + event.Reason)
				if event.Reason == "Joined" {
					g.Expect(event.Type).To(gomega.Equal(v1.EventTypeNormal))
				}
			}
			for _, i := range ring.Instances {
				g.Expect(told.Has(i.Name+" Joined")).To(gomega.BeTrue(), "%s is not among %s", i.Name, strings.Join(sets.List(told), ", "))
			}
			g.Expect(strings.Join(sets.List(told), ", ")).To(gomega.ContainSubstring(" Granted"))
		}).WithTimeout(soon).WithPolling(poll).Should(gomega.Succeed())

		gomega.Expect(cluster.StopProcess(ctx, receiver)).To(gomega.Succeed())
		expectRing(ctx, len(cluster.ControllerManagers()))
	})
})
