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
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/kubernetes/pkg/ringtable"
)

// kubectlRing runs kubectl ring, and returns what it prints and its exit code.
func kubectlRing(ctx context.Context, args ...string) (output string, code int) {
	ginkgo.GinkgoHelper()
	command := exec.CommandContext(ctx, filepath.Join(binDir, "kubectl"), append([]string{"ring"}, args...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig(), "PATH="+binDir+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := command.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = nil
	}
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.GinkgoWriter.Printf("$ kubectl ring %s\n%s[exit code %d]\n\n", strings.Join(args, " "), out, command.ProcessState.ExitCode())
	return string(out), command.ProcessState.ExitCode()
}

// says expects that kubectl ring ends with that code, and prints what matches.
func says(ctx context.Context, code int, what types.GomegaMatcher, args ...string) string {
	ginkgo.GinkgoHelper()
	output, got := kubectlRing(ctx, args...)
	gomega.Expect(got).To(gomega.Equal(code), output)
	gomega.Expect(output).To(what)
	return output
}

var _ = ginkgo.Describe("kubectl ring", ginkgo.Ordered, func() {
	var namespace string

	ginkgo.BeforeAll(func(ctx context.Context) {
		namespace = newNamespace(ctx)
		expectFilled(ctx, []*appsv1.ReplicaSet{createReplicaSet(ctx, namespace, "owned", 2)})
	})

	ginkgo.It("waits until every key is worked on, and shows the rings", func(ctx context.Context) {
		says(ctx, 0, gomega.ContainSubstring("workloads: every hash key is owned and worked on"), "status", "--wait", "--timeout=3m")
		says(ctx, 0, gomega.And(gomega.ContainSubstring("claims:\n"), gomega.ContainSubstring("WORK  WORKS ON"), gomega.Not(gomega.ContainSubstring("PODS READY"))))
		says(ctx, 0, gomega.ContainSubstring("pods ready"), "workloads", "--count")
		var states struct{ Rings []ringtable.State }
		gomega.Expect(json.Unmarshal([]byte(says(ctx, 0, gomega.Not(gomega.BeEmpty()), "-o", "json")), &states)).To(gomega.Succeed())
		gomega.Expect(len(states.Rings)).To(gomega.BeNumerically(">=", 3))
		for _, r := range states.Rings {
			gomega.Expect(r.Problems).To(gomega.BeEmpty())
			gomega.Expect(r.Instances).NotTo(gomega.BeEmpty())
		}
		says(ctx, 0, gomega.ContainSubstring("imbalance:"), "workloads", "-o", "yaml")
		says(ctx, 0, gomega.MatchRegexp(`HEAVIEST KEY +HEAP .* HOLDER`), "workloads", "-o", "wide")
		says(ctx, 0, gomega.MatchRegexp(`(Joined|TookOver) .* Works on`), "history", "workloads")
	})

	ginkgo.It("says who works on an object", func(ctx context.Context) {
		holdStill(ctx)
		rs := must(client.AppsV1().ReplicaSets(namespace).Get(ctx, "owned", metav1.GetOptions{}))
		ring := must(ringNow(ctx))
		owner, ok := ring.View().Owner(metav1.HashKeyOf(rs))
		gomega.Expect(ok).To(gomega.BeTrue())
		says(ctx, 0, gomega.MatchRegexp(`workloads +%s +itself +%s .* Active +[0-9a-z]+ +open +replicaset-controller`, hashkey.Format(metav1.HashKeyOf(rs)), owner.Name), "owner", "replicaset/owned", "-n", namespace)
		says(ctx, 0, gomega.ContainSubstring("No ring works on"), "owner", "serviceaccount/default", "-n", namespace)
		says(ctx, 1, gomega.ContainSubstring("not found"), "owner", "replicaset/nobody", "-n", namespace)
	})

	ginkgo.It("moves a boundary", func(ctx context.Context) {
		holdStill(ctx)
		ring := must(ringNow(ctx))
		gomega.Expect(len(ring.Instances)).To(gomega.BeNumerically(">", 1))
		self := ring.Instances[1]
		last := self.Owned
		to := hashkey.Format(int64(last[0].Start + (last[0].End-last[0].Start)/2))
		says(ctx, 0, gomega.ContainSubstring("would move"), "move", self.Name, to, "--dry-run")
		says(ctx, 1, gomega.ContainSubstring("does not move"), "cancel", self.Name)
		says(ctx, 0, gomega.ContainSubstring("will move"), "move", self.Name, to)
		gomega.Eventually(ctx, func(g gomega.Gomega) {
			now, err := ringNow(ctx)
			g.Expect(err).NotTo(gomega.HaveOccurred())
			record, _ := now.View().Get(self.Name)
			g.Expect(hashkey.FormatOptional(record.Key)).To(gomega.Equal(to))
		}).WithTimeout(soon).WithPolling(poll).Should(gomega.Succeed())
		// The receiver's event comes after it has opened its gate.
		gomega.Eventually(ctx, func(g gomega.Gomega) {
			output, code := kubectlRing(ctx, "history", "workloads")
			g.Expect(code).To(gomega.Equal(0), output)
			g.Expect(output).To(gomega.ContainSubstring("a boundary has moved"))
		}).WithTimeout(soon).WithPolling(poll).Should(gomega.Succeed())
		says(ctx, 0, gomega.ContainSubstring("is released"), "release", self.Name)
		says(ctx, 0, gomega.ContainSubstring("every hash key"), "status", "--wait", "--timeout=3m")
	})

	ginkgo.It("refuses what makes no sense, and says what does", func(ctx context.Context) {
		says(ctx, 1, gomega.And(gomega.ContainSubstring(`no ControllerInstance "nobody"`), gomega.ContainSubstring("workloads-")), "move", "nobody", "0000000000000010")
		says(ctx, 1, gomega.ContainSubstring("want 16 hexadecimal digits"), "move", "nobody", "half")
		says(ctx, 1, gomega.ContainSubstring("there is no ring x, and no such command; rings with instances: claims, namespaces, workloads"), "x")
		says(ctx, 1, gomega.ContainSubstring("x: no instance is on the ring"), "status", "x")
		says(ctx, 1, gomega.ContainSubstring("give both"), "status", "--timeout=1m")
		says(ctx, 1, gomega.ContainSubstring("want json, yaml or wide"), "-o", "xml")
		// Nobody answers there.
		says(ctx, 1, gomega.ContainSubstring("refused"), "status", "--server=https://127.0.0.1:1")
	})

	ginkgo.It("says what somebody without rights may not do", func(ctx context.Context) {
		for _, args := range [][]string{{}, {"status"}, {"status", "--wait"}, {"history"}, {"move", "a", "0000000000000010"}, {"cancel", "a"}, {"owner", "pod/a"}} {
			output, code := kubectlRing(ctx, append(args, "--as=nobody")...)
			gomega.Expect(code).To(gomega.Equal(1), fmt.Sprint(args))
			gomega.Expect(output).To(gomega.ContainSubstring("forbidden"), fmt.Sprint(args))
		}
	})
})
