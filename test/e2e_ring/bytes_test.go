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
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/kubernetes/pkg/localcluster"
)

// podBytes is a proxy between controller managers and their API server. It counts the
// bytes that their Pods informers receive in response to lists and watches of a range.
type podBytes struct {
	server *httptest.Server
	total  atomic.Int64
}

func newPodBytes(config *rest.Config) *podBytes {
	transport := must(rest.TransportFor(config))
	target := must(url.Parse(config.Host))
	p := &podBytes{}
	p.server = httptest.NewServer(&httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(r *http.Response) error {
			if r.Request.URL.Path == "/api/v1/pods" && strings.Contains(r.Request.URL.Query().Get("shardSelector"), "controllerRef.hashKey") {
				r.Body = &countingBody{ReadCloser: r.Body, total: &p.total}
			}
			return nil
		},
	})
	ginkgo.DeferCleanup(p.server.Close)
	return p
}

type countingBody struct {
	io.ReadCloser
	total *atomic.Int64
}

func (b *countingBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	b.total.Add(int64(n))
	return n, err
}

var _ = ginkgo.Describe("instance of a ring of four", func() {
	ginkgo.It("receives about a quarter of the bytes of pods", func(ctx context.Context) {
		alone := bytesPerInstance(ctx, 1)
		ofFour := bytesPerInstance(ctx, 4)
		ginkgo.AddReportEntry("bytes of pods", ginkgo.ReportEntryVisibilityAlways,
			fmt.Sprintf("one instance of one: %d, one of four on average: %d, ratio %.2f", alone, ofFour, float64(ofFour)/float64(alone)))
		// The number of updates per pod varies between runs, but by far less than this.
		gomega.Expect(float64(ofFour) / float64(alone)).To(gomega.BeNumerically("<", 0.4))
	})
})

// bytesPerInstance starts a cluster with that many instances, lets them fill ReplicaSets,
// and returns the average number of bytes that an instance's Pods informer received.
func bytesPerInstance(ctx context.Context, n int) int64 {
	ginkgo.GinkgoHelper()
	dir := ginkgo.GinkgoT().TempDir()
	kubeconfig := filepath.Join(dir, "through-proxy.kubeconfig")
	c := must(localcluster.Start(ctx, localcluster.Config{
		BinDir: binDir, Dir: filepath.Join(dir, "cluster"), Instances: 0, Nodes: nodes,
		Args: map[localcluster.Component][]string{
			localcluster.KubeControllerManager: {"--kubeconfig=" + kubeconfig, "--use-service-account-credentials=false"},
		},
	}))
	defer func() { gomega.Expect(c.Stop(ctx)).To(gomega.Succeed()) }()
	proxy := newPodBytes(c.RESTConfig())
	config := clientcmdapi.NewConfig()
	config.Clusters["proxy"] = &clientcmdapi.Cluster{Server: proxy.server.URL}
	config.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy"}
	config.CurrentContext = "proxy"
	gomega.Expect(clientcmd.WriteToFile(*config, kubeconfig)).To(gomega.Succeed())
	for range n {
		must(c.AddControllerManager(ctx))
	}

	was := client
	defer func() { client = was }()
	client = c.Client()
	expectRing(ctx, n)
	before := proxy.total.Load()
	namespace := newNamespace(ctx)
	var replicaSets []*appsv1.ReplicaSet
	for i := range 40 {
		replicaSets = append(replicaSets, createReplicaSet(ctx, namespace, fmt.Sprintf("bytes-%02d", i), 10))
	}
	expectReady(ctx, replicaSets)
	return (proxy.total.Load() - before) / int64(n)
}
