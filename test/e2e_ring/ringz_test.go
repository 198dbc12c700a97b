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
	"net/http"
	"os"
	"path/filepath"
	"syscall"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/ring/member"
	"k8s.io/client-go/util/cert"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
)

// ringzWith returns the code of a process's answer on /ringz to whoever has that token; "": nobody.
func ringzWith(ctx context.Context, process, token string) int {
	ginkgo.GinkgoHelper()
	endpoint := must(cluster.Endpoint(process))
	stranger := must(rest.HTTPClientFor(&rest.Config{BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}))
	request := must(http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"/ringz", nil))
	response := must(stranger.Do(request))
	gomega.Expect(response.Body.Close()).To(gomega.Succeed())
	return response.StatusCode
}

// decideAgain has what all processes have recorded decided again, and returns how many decisions to
// write a record there are among it.
func decideAgain(ctx context.Context) (writes int) {
	ginkgo.GinkgoHelper()
	for _, process := range cluster.ControllerManagers() {
		var shown member.Process
		gomega.Expect(json.Unmarshal(must(cluster.Get(ctx, process, "/ringz?format=json&recording=true")), &shown)).To(gomega.Succeed())
		for _, i := range shown.Instances {
			gomega.Expect(i.Recording).NotTo(gomega.BeNil(), i.Name)
			gomega.Expect(i.Recording.Replay()).To(gomega.Succeed(), i.Name)
			for _, step := range i.Recording.Steps {
				if step.Decision != nil && step.Decision.Write != nil {
					writes++
				}
			}
		}
	}
	return writes
}

var _ = ginkgo.Describe("/ringz", ginkgo.Ordered, func() {
	ginkgo.It("shows what each process knows of its rings", func(ctx context.Context) {
		ring := expectRing(ctx, len(cluster.ControllerManagers()))
		for _, process := range cluster.ControllerManagers() {
			gomega.Eventually(ctx, func(g gomega.Gomega) {
				page, err := cluster.Get(ctx, process, "/ringz?format=json")
				g.Expect(err).NotTo(gomega.HaveOccurred())
				var shown member.Process
				g.Expect(json.Unmarshal(page, &shown)).To(gomega.Succeed())
				g.Expect(shown.Instances).To(gomega.HaveLen(len(catalogue.Rings())))
				for _, i := range shown.Instances {
					g.Expect(i.BelievesForSeconds).To(gomega.BeNumerically(">", 0))
					g.Expect(i.RoundAgeSeconds).To(gomega.BeNumerically("<", 3))
					g.Expect(i.Open).To(gomega.Equal(i.Owned))
					g.Expect(i.Doors).NotTo(gomega.BeEmpty())
					for _, d := range i.Doors {
						g.Expect(d.Working).To(gomega.BeTrue(), "%s: %s", d.Controller, d.Reason)
					}
					for _, s := range i.Sources {
						g.Expect(s.Lacks).To(gomega.Equal("nothing"), s.Name)
					}
					g.Expect(i.Decided).NotTo(gomega.BeEmpty())
					if i.Ring == catalogue.WorkloadsRing {
						g.Expect(i.Records).To(gomega.HaveLen(len(ring.Instances)))
					}
				}
			}).WithTimeout(soon).WithPolling(poll).Should(gomega.Succeed())
			page := must(cluster.Get(ctx, process, "/ringz"))
			ginkgo.GinkgoWriter.Printf("%s\n%s\n", process, page)
			gomega.Expect(string(page)).To(gomega.And(gomega.HavePrefix("\nkube-controller-manager ringz\nWarning:"),
				gomega.ContainSubstring("==== ring workloads ===="), gomega.ContainSubstring("pods by object.metadata.")))
			paths := must(cluster.Get(ctx, process, "/statusz"))
			gomega.Expect(string(paths)).To(gomega.ContainSubstring("/ringz"))
		}
	})

	ginkgo.It("is for those who may get it", func(ctx context.Context) {
		token := must(client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{}))
		for _, process := range cluster.ControllerManagers() {
			gomega.Expect(ringzWith(ctx, process, "")).To(gomega.BeElementOf(http.StatusUnauthorized, http.StatusForbidden))
			gomega.Expect(ringzWith(ctx, process, token.Status.Token)).To(gomega.Equal(http.StatusForbidden))
		}
	})
})

var _ = ginkgo.Describe("kubectl ring views", ginkgo.Ordered, func() {
	ginkgo.It("says that all instances agree", func(ctx context.Context) {
		expectRing(ctx, len(cluster.ControllerManagers()))
		gomega.Eventually(ctx, func(g gomega.Gomega) {
			output, code := kubectlRing(ctx, "views")
			g.Expect(code).To(gomega.Equal(0), output)
			g.Expect(output).To(gomega.And(gomega.MatchRegexp(`workloads-\w+ .* 0 +Active .* yes\n`), gomega.ContainSubstring("All instances agree with the registry")))
			output, code = kubectlRing(ctx, "views", "workloads", "-o", "json")
			g.Expect(code).To(gomega.Equal(0), output)
			g.Expect(output).To(gomega.ContainSubstring(`"agrees": true`))
		}).WithTimeout(soon).WithPolling(poll).Should(gomega.Succeed())
	})

	ginkgo.It("says who cannot be asked, and why", func(ctx context.Context) {
		output, code := kubectlRing(ctx, "views", "nobodys")
		gomega.Expect(code).To(gomega.Equal(1))
		gomega.Expect(output).To(gomega.ContainSubstring("there is no ring nobodys"))

		certificate, _, err := cert.GenerateSelfSignedCertKey("another", nil, nil)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		other := filepath.Join(ginkgo.GinkgoT().TempDir(), "ca.crt")
		gomega.Expect(os.WriteFile(other, certificate, 0o600)).To(gomega.Succeed())
		output, code = kubectlRing(ctx, "views", "--controllers-ca", other)
		gomega.Expect(code).To(gomega.Equal(1))
		gomega.Expect(output).To(gomega.ContainSubstring("not known: tls: failed to verify certificate"))

		paused := cluster.ControllerManagers()[0]
		gomega.Eventually(ctx, func(g gomega.Gomega) {
			g.Expect(cluster.Signal(paused, syscall.SIGSTOP)).To(gomega.Succeed())
			// Its record is there until its lease ends. kubectl may be slower than that.
			output, code := kubectlRing(ctx, "views", "workloads", "--timeout=500ms")
			g.Expect(cluster.Signal(paused, syscall.SIGCONT)).To(gomega.Succeed())
			expectRing(ctx, len(cluster.ControllerManagers()))
			g.Expect(code).To(gomega.Equal(1), output)
			g.Expect(output).To(gomega.And(gomega.ContainSubstring("not known: no answer within 500ms"), gomega.ContainSubstring("do not agree with the registry, or could not be asked")))
		}).WithTimeout(soon).WithPolling(poll).Should(gomega.Succeed())
	})
})
