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
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	kubeapiservertesting "k8s.io/kubernetes/cmd/kube-apiserver/app/testing"
	"k8s.io/kubernetes/test/integration/framework"
)

// BenchmarkRenewals measures what the instances of a ring cost while nothing changes: entries
// of etcd's log, and events delivered to those who watch the registry, each a second. There
// are 100 records with a lease of 6 seconds, written each third of it, and 100 watchers.
// "idle" is without any record, "renewals" with a renewal at each turn, "news" with news of
// the status beside each renewal.
func BenchmarkRenewals(b *testing.B) {
	const (
		instances = 100
		lease     = 6 * time.Second
		phase     = time.Minute
	)
	server := kubeapiservertesting.StartTestServerOrDie(b, nil, framework.DefaultTestServerFlags(), framework.SharedEtcd())
	b.Cleanup(server.TearDownFn)
	config := restclient.CopyConfig(server.ClientConfig)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	registry := client.ShardingV1alpha1().ControllerInstances()
	raftIndex := func() uint64 {
		status, err := server.EtcdClient.Status(b.Context(), server.EtcdClient.Endpoints()[0])
		if err != nil {
			b.Fatal(err)
		}
		return status.RaftIndex
	}

	var delivered, ended atomic.Int64
	for range instances {
		w, err := registry.Watch(b.Context(), metav1.ListOptions{FieldSelector: "spec.ring=" + testRing})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(w.Stop)
		go func() {
			for event := range w.ResultChan() {
				if event.Type != watch.Bookmark {
					delivered.Add(1)
				}
			}
			ended.Add(1)
		}()
	}
	measure := func(name string) {
		begin, entries, events := time.Now(), raftIndex(), delivered.Load()
		time.Sleep(phase)
		seconds := time.Since(begin).Seconds()
		b.ReportMetric(float64(raftIndex()-entries)/seconds, "entries/s-"+name)
		b.ReportMetric(float64(delivered.Load()-events)/seconds, "events/s-"+name)
	}
	var failed atomic.Int64
	patchStatus := func(ctx context.Context, name, patch string) {
		if _, err := registry.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil && ctx.Err() == nil {
			failed.Add(1)
		}
	}

	for range b.N {
		measure("idle")

		var news atomic.Bool
		var renewals, turns atomic.Int64
		ctx, stop := context.WithCancel(b.Context())
		var drivers sync.WaitGroup
		before := delivered.Load()
		for i := range instances {
			instance := newInstance(fmt.Sprintf("instance-%d", i))
			instance.Spec.LeaseDurationSeconds = int32(lease / time.Second)
			created, err := registry.Create(ctx, instance, metav1.CreateOptions{})
			if err != nil {
				b.Fatal(err)
			}
			drivers.Go(func() {
				wait.UntilWithContext(ctx, func(ctx context.Context) {
					patchStatus(ctx, created.Name, fmt.Sprintf(`{"metadata":{"uid":%q}}`, created.UID))
					renewals.Add(1)
					if news.Load() {
						patchStatus(ctx, created.Name, fmt.Sprintf(`{"status":{"weight":%d}}`, turns.Add(1)))
					}
				}, lease/3)
			})
		}
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, wait.ForeverTestTimeout, true, func(context.Context) (bool, error) {
			return delivered.Load()-before == instances*instances, nil
		})
		if err != nil {
			b.Fatalf("the watchers were told %d times of %d creations", delivered.Load()-before, instances)
		}
		first := renewals.Load()
		measure("renewals")
		b.ReportMetric(float64(renewals.Load()-first)/phase.Seconds(), "renewals/s")
		news.Store(true)
		measure("news")
		stop()
		drivers.Wait()

		left, err := registry.List(b.Context(), metav1.ListOptions{})
		if err != nil || len(left.Items) != instances {
			b.Errorf("%d records are left (%v), want %d", len(left.Items), err, instances)
		}
		if err := registry.DeleteCollection(b.Context(), *metav1.NewDeleteOptions(0), metav1.ListOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	if requests, watches := failed.Load(), ended.Load(); requests > 0 || watches > 0 {
		b.Errorf("%d requests failed, and %d watches ended: the machine is too busy to measure", requests, watches)
	}
}
