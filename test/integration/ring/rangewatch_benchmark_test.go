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
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/rangewatch"
	kubeapiservertesting "k8s.io/kubernetes/cmd/kube-apiserver/app/testing"
	"k8s.io/kubernetes/test/harness/report"
	"k8s.io/kubernetes/test/integration/framework"
)

// BenchmarkWaitFor measures a WaitFor on a quiet collection after a write to another one, and how
// many lists and watches it takes. One after another they wait for the API server, which asks etcd
// for its progress every 100 ms at most.
func BenchmarkWaitFor(b *testing.B) {
	server := kubeapiservertesting.StartTestServerOrDie(b, nil, framework.DefaultTestServerFlags(), framework.SharedEtcd())
	b.Cleanup(server.TearDownFn)
	config := rest.CopyConfig(server.ClientConfig)
	config.QPS = -1
	client := kubernetes.NewForConfigOrDie(config)
	secrets := client.CoreV1().Secrets(metav1.NamespaceDefault)
	for range 10 {
		if _, err := secrets.Create(b.Context(), &v1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "quiet-"}}, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	var lists, watches atomic.Int64
	source, err := rangewatch.NewSource(rangewatch.Config{Field: sharding.HashKeyPath, Object: &v1.Secret{}, ListWatch: &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			lists.Add(1)
			return secrets.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			watches.Add(1)
			return secrets.Watch(ctx, options)
		},
	}})
	if err != nil {
		b.Fatal(err)
	}
	source.SetRanges(hashkey.All())
	go source.NewInformer(cache.SharedIndexInformerOptions{}).RunWithContext(b.Context())
	var took []time.Duration
	waitFor := func() {
		if _, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(b.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "elsewhere-"}}, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		if err := source.WaitFor(b.Context(), hashkey.All()); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	waitFor() // until the first list
	for _, pace := range []time.Duration{0, 200 * time.Millisecond} {
		b.Run("pace="+pace.String(), func(b *testing.B) {
			took = nil
			lists.Store(0)
			watches.Store(0)
			for b.Loop() {
				b.StopTimer()
				time.Sleep(pace)
				b.StartTimer()
				waitFor()
			}
			median, late := report.Percentiles(took)
			b.ReportMetric(float64(lists.Load())/float64(b.N), "lists/op")
			b.ReportMetric(float64(watches.Load())/float64(b.N), "watches/op")
			b.ReportMetric(float64(median.Microseconds())/1000, "ms-p50")
			b.ReportMetric(float64(late.Microseconds())/1000, "ms-p99")
		})
	}
}
