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
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
)

// namesInArchive returns the names of the files in a .tar.gz, without their folder.
func namesInArchive(name string) (names []string) {
	ginkgo.GinkgoHelper()
	f := must(os.Open(name))
	defer f.Close()
	compressed := must(gzip.NewReader(f))
	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		_, file, _ := strings.Cut(header.Name, "/")
		names = append(names, file)
	}
}

var _ = ginkgo.Describe("kubectl ring, to steer a ring", ginkgo.Ordered, func() {
	ginkgo.BeforeAll(func(ctx context.Context) {
		expectRing(ctx, len(cluster.ControllerManagers()))
	})

	ginkgo.It("says what would even out the load, and turns that off and on", func(ctx context.Context) {
		says(ctx, 0, gomega.And(gomega.ContainSubstring("workloads: balance is on, unless"), gomega.ContainSubstring("claims: balance is on, unless"), gomega.ContainSubstring("SHOULD HAVE")), "balance")
		says(ctx, 0, gomega.ContainSubstring("maxToMean:"), "balance", "workloads", "-o", "yaml")

		says(ctx, 0, gomega.Equal("workloads: balance is off\n"), "balance", "off", "workloads")
		says(ctx, 0, gomega.Equal("workloads: balance is off already\n"), "balance", "off", "workloads")
		says(ctx, 0, gomega.ContainSubstring("; balance off (by workloads-"), "workloads")
		says(ctx, 0, gomega.ContainSubstring("workloads: balance is off, by workloads-"), "balance", "workloads")
		var states struct {
			Rings []struct {
				OffBy     string
				Instances []any
			}
		}
		gomega.Expect(json.Unmarshal([]byte(says(ctx, 0, gomega.Not(gomega.BeEmpty()), "balance", "workloads", "-o", "json")), &states)).To(gomega.Succeed())
		gomega.Expect(states.Rings).To(gomega.HaveLen(1))
		gomega.Expect(states.Rings[0].OffBy).To(gomega.HavePrefix("workloads-"))
		gomega.Expect(states.Rings[0].Instances).To(gomega.HaveLen(len(cluster.ControllerManagers())))

		says(ctx, 0, gomega.And(gomega.ContainSubstring("claims: balance is off\n"), gomega.ContainSubstring("workloads: balance is off already\n")), "balance", "off")
		says(ctx, 0, gomega.And(gomega.ContainSubstring("claims: balance is on\n"), gomega.ContainSubstring("workloads: balance is on\n")), "balance", "on")
		list := must(client.ShardingV1alpha1().ControllerInstances().List(ctx, metav1.ListOptions{}))
		for _, i := range list.Items {
			gomega.Expect(i.Spec.Balance).To(gomega.BeEmpty(), i.Name)
		}
	})

	ginkgo.It("pins a boundary that it moves, and releases it", func(ctx context.Context) {
		holdStill(ctx)
		ring := must(ringNow(ctx))
		self, owned := ring.Instances[1].Name, ring.Instances[1].Owned[0]
		to := int64(owned.Start + (owned.End-owned.Start)/2)
		says(ctx, 0, gomega.ContainSubstring("The boundary is pinned there"), "move", self, hashkey.Format(to))
		gomega.Eventually(ctx, func(g gomega.Gomega) {
			now, err := ringNow(ctx)
			g.Expect(err).NotTo(gomega.HaveOccurred())
			record, _ := now.View().Get(self)
			g.Expect(hashkey.FormatOptional(record.Key)).To(gomega.Equal(hashkey.Format(to)))
			g.Expect(record.Pinned()).To(gomega.BeTrue())
		}).WithTimeout(soon).WithPolling(poll).Should(gomega.Succeed())
		says(ctx, 0, gomega.ContainSubstring("] pinned "), "workloads")
		says(ctx, 0, gomega.ContainSubstring("the end of the range of "+self+" is pinned"), "balance", "workloads")
		says(ctx, 0, gomega.ContainSubstring("is released: it was pinned to "+hashkey.Format(to)), "release", self)
		says(ctx, 0, gomega.ContainSubstring("is not pinned"), "release", self)
		says(ctx, 0, gomega.Equal("workloads: no boundary is pinned\n"), "release", "--ring=workloads")
	})

	ginkgo.It("drains instances but the last, and undrains them", func(ctx context.Context) {
		undrain := regexp.MustCompile(`kubectl ring undrain (\S+)`)
		namespace := newNamespace(ctx)
		var during []*appsv1.ReplicaSet
		var old, anew []string
		all := len(cluster.ControllerManagers())
		for n := range all - 1 {
			i := expectRingOf(ctx, all-n)[0]
			for m := range 5 {
				during = append(during, createReplicaSet(ctx, namespace, fmt.Sprintf("drained-%d-%d", n, m), 3))
			}
			output := says(ctx, 0, gomega.ContainSubstring(i.Name+" is gone; its process is "), "drain", i.Name, "--wait", "--timeout=3m")
			found := undrain.FindStringSubmatch(output)
			gomega.Expect(found).NotTo(gomega.BeNil())
			old, anew = append(old, i.Name), append(anew, found[1])
			record := must(client.ShardingV1alpha1().ControllerInstances().Get(ctx, found[1], metav1.GetOptions{}))
			gomega.Expect(record.Spec.Drained).To(gomega.BeTrue())
			gomega.Expect(record.Spec.HashKey).To(gomega.BeNil())
			gomega.Expect(record.Spec.HolderIdentity).To(gomega.Equal(i.Spec.HolderIdentity))
		}
		says(ctx, 0, gomega.ContainSubstring("every hash key"), "status", "workloads", "--wait", "--timeout=3m")
		expectFilled(ctx, during)

		last := expectRingOf(ctx, 1)[0].Name
		says(ctx, 1, gomega.ContainSubstring("its range would have no owner; start another one first, or undrain one of "), "drain", last)
		says(ctx, 0, gomega.ContainSubstring("Init (drained)"), "workloads")
		says(ctx, 0, gomega.And(gomega.ContainSubstring("is drained already"), gomega.ContainSubstring("kubectl ring undrain "+anew[0])), "drain", anew[0], "--wait")
		says(ctx, 1, gomega.ContainSubstring("no ControllerInstance"), "drain", old[0])
		says(ctx, 1, gomega.And(gomega.ContainSubstring("one that is drained gets another name"), gomega.ContainSubstring(anew[0])), "undrain", old[0])
		says(ctx, 0, gomega.ContainSubstring("is not drained; drained: "), "undrain", last)

		for _, name := range anew {
			says(ctx, 0, gomega.ContainSubstring("is not drained any more"), "undrain", name)
		}
		expectRing(ctx, len(cluster.ControllerManagers()))
		says(ctx, 0, gomega.ContainSubstring("every hash key"), "status", "--wait", "--timeout=3m")
		expectFilled(ctx, during)
		gomega.Expect(decideAgain(ctx)).To(gomega.BeNumerically(">", 0), "handovers are recorded")
	})

	ginkgo.It("collects what a bug report needs", func(ctx context.Context) {
		file := filepath.Join(ginkgo.GinkgoT().TempDir(), "ring.tar.gz")
		says(ctx, 0, gomega.ContainSubstring("Wrote "+file), "bundle", "--output="+file)
		gomega.Expect(namesInArchive(file)).To(gomega.ContainElements("version.json", "metrics-of-api-server.txt", "controllerinstances.yaml", "lease.yaml", "events.yaml",
			"rings.txt", "status.txt", "balance.txt", "history-of-workloads.txt", "history-of-claims.txt", gomega.HavePrefix("ringz-of-")))
		says(ctx, 1, gomega.ContainSubstring("exists already"), "bundle", "--output="+file)
		// Anybody may ask for the version.
		partly := filepath.Join(ginkgo.GinkgoT().TempDir(), "partly.tar.gz")
		says(ctx, 1, gomega.And(gomega.ContainSubstring("errors.txt says why"), gomega.ContainSubstring("could not be read")), "bundle", "--output="+partly, "--as=nobody")
		gomega.Expect(namesInArchive(partly)).To(gomega.ConsistOf("version.json", "errors.txt"))
	})

	ginkgo.It("refuses what makes no sense", func(ctx context.Context) {
		for _, command := range []string{"drain", "release"} {
			says(ctx, 1, gomega.And(gomega.ContainSubstring(`no ControllerInstance "nobody"`), gomega.ContainSubstring("workloads-")), command, "nobody")
		}
		says(ctx, 1, gomega.ContainSubstring("no instance is drained"), "undrain", "nobody")
		says(ctx, 1, gomega.ContainSubstring("there is no ring nobody"), "balance", "nobody")
		says(ctx, 1, gomega.ContainSubstring("ring nobody has no instance; rings with instances: "), "balance", "off", "nobody")
		says(ctx, 1, gomega.ContainSubstring("ring nobody has no instance; rings with instances: "), "release", "--ring=nobody")
		says(ctx, 1, gomega.ContainSubstring("give either INSTANCE, or --ring"), "release")
		says(ctx, 1, gomega.ContainSubstring("give both"), "drain", "nobody", "--timeout=1m")
		says(ctx, 1, gomega.ContainSubstring("want json or yaml"), "balance", "-o", "xml")
		says(ctx, 1, gomega.ContainSubstring("ends with .tar.gz"), "bundle", "--output=x.zip")
	})

	ginkgo.It("says that no server answers, or what somebody may not do", func(ctx context.Context) {
		right := func(resource, name string, verbs ...string) rbacv1.PolicyRule {
			rule := rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{shardingv1alpha1.GroupName}, Resources: []string{resource}}
			if name != "" {
				rule.ResourceNames = []string{name}
			}
			return rule
		}
		for user, rules := range map[string][]rbacv1.PolicyRule{
			// It may look at instances, and change nothing.
			"reader": {right("controllerinstances", "", "get", "list", "watch")},
			// It may change instances, but those of one ring only.
			"steward": {right("controllerinstances", "", "get", "list", "watch", "patch"), right("rings", "claims", "steer")},
		} {
			meta := metav1.ObjectMeta{Name: "ring-" + user}
			must(client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{}))
			must(client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
				ObjectMeta: meta,
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
			}, metav1.CreateOptions{}))
			gomega.Eventually(ctx, func(g gomega.Gomega) {
				_, code := kubectlRing(ctx, "workloads", "--as="+user)
				g.Expect(code).To(gomega.Equal(0))
			}).WithTimeout(soon).WithPolling(poll).Should(gomega.Succeed())
		}
		says(ctx, 0, gomega.ContainSubstring("SHOULD HAVE"), "balance", "--as=reader")

		self := expectRing(ctx, len(cluster.ControllerManagers())).Instances[0].Name
		for _, args := range [][]string{{"drain", self}, {"drain", self, "--wait"}, {"balance", "off"}} {
			says(ctx, 1, gomega.ContainSubstring("forbidden"), append(args, "--as=reader")...)
		}
		for _, args := range [][]string{{"drain", self}, {"balance", "off", "workloads"}} {
			says(ctx, 1, gomega.ContainSubstring(`user "steward" may not write records of ring "workloads": it needs the verb "work" or "steer" on rings.sharding.k8s.io "workloads"`), append(args, "--as=steward")...)
		}
		says(ctx, 0, gomega.ContainSubstring("balance is off"), "balance", "off", "claims", "--as=steward")
		says(ctx, 0, gomega.ContainSubstring("balance is on"), "balance", "on", "claims", "--as=steward")
		for _, args := range [][]string{{"drain", self}, {"undrain", self}, {"release", self}, {"release", "--ring=workloads"}, {"balance"}, {"balance", "on"}, {"balance", "off"}} {
			says(ctx, 1, gomega.ContainSubstring("forbidden"), append(args, "--as=nobody")...)
			says(ctx, 1, gomega.ContainSubstring("refused"), append(args, "--server=https://127.0.0.1:1")...)
		}
		none := filepath.Join(ginkgo.GinkgoT().TempDir(), "none.tar.gz")
		says(ctx, 1, gomega.And(gomega.ContainSubstring("nothing could be read"), gomega.ContainSubstring("refused")), "bundle", "--server=https://127.0.0.1:1", "--output="+none)
		gomega.Expect(none).NotTo(gomega.BeAnExistingFile())
		expectRing(ctx, len(cluster.ControllerManagers()))
	})
})

// holdStill keeps the instances of the ring of workloads from moving boundaries for the rest of
// this spec, and waits until none moves.
func holdStill(ctx context.Context) {
	ginkgo.GinkgoHelper()
	says(ctx, 0, gomega.ContainSubstring("balance is off"), "balance", "off", "workloads")
	ginkgo.DeferCleanup(func(ctx context.Context) {
		says(ctx, 0, gomega.ContainSubstring("balance is on"), "balance", "on", "workloads")
	})
	gomega.Eventually(ctx, func(g gomega.Gomega) {
		ring, err := ringNow(ctx)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(ring.Moves).To(gomega.BeEmpty())
		g.Expect(ring.Problems()).To(gomega.BeEmpty())
	}).WithTimeout(soon).WithPolling(poll).Should(gomega.Succeed())
}

// expectRingOf waits until so many instances own a range of the ring of workloads, all Active, and
// the others are drained, and returns the owners.
func expectRingOf(ctx context.Context, owners int) (found []shardingv1alpha1.ControllerInstance) {
	ginkgo.GinkgoHelper()
	gomega.Eventually(ctx, func(g gomega.Gomega) {
		list, err := client.ShardingV1alpha1().ControllerInstances().List(ctx, metav1.ListOptions{FieldSelector: "spec.ring=workloads"})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(list.Items).To(gomega.HaveLen(len(cluster.ControllerManagers())))
		found = nil
		for _, i := range list.Items {
			if i.Spec.HashKey != nil {
				g.Expect(i.Status.Phase).To(gomega.Equal(shardingv1alpha1.InstanceActive))
				found = append(found, i)
			} else {
				g.Expect(i.Spec.Drained).To(gomega.BeTrue())
			}
		}
		g.Expect(found).To(gomega.HaveLen(owners))
	}).WithTimeout(soon).WithPolling(poll).Should(gomega.Succeed())
	return found
}
