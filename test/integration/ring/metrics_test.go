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
	"maps"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics/testutil"
)

// The API server counts the work of its range indexes. With one watcher on each quarter
// of the hash keys, an event is offered to one watcher and spared three.
func TestRangeIndexMetrics(t *testing.T) {
	s := startKeyServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	endpoints := s.client.CoreV1().Endpoints(s.namespace) // nobody else writes these here
	list, err := endpoints.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before := s.rangeIndexMetrics(t, ctx)
	const quarters, objects = 4, 20
	quarter := func(i uint64) string {
		return hashkey.NewRanges(hashkey.Range{Start: i * (hashkey.Limit / quarters), End: (i + 1) * (hashkey.Limit / quarters)}).Selector(sharding.HashKeyPath)
	}
	received := make(chan struct{}, objects)
	for i := range uint64(quarters) {
		w, err := endpoints.Watch(ctx, metav1.ListOptions{ShardSelector: quarter(i), ResourceVersion: list.ResourceVersion})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		go func() {
			for range w.ResultChan() {
				received <- struct{}{}
			}
		}()
	}
	for range objects {
		if _, err := endpoints.Create(ctx, &v1.Endpoints{ObjectMeta: metav1.ObjectMeta{GenerateName: "counted-"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for range objects {
		select {
		case <-received:
		case <-ctx.Done():
			t.Fatal("the watchers did not get all")
		}
	}
	listed := 0
	for i := range uint64(quarters) {
		list, err := endpoints.List(ctx, metav1.ListOptions{ShardSelector: quarter(i)})
		if err != nil {
			t.Fatal(err)
		}
		listed += len(list.Items)
	}
	if listed != objects {
		t.Errorf("the quarters have %d objects, want %d", listed, objects)
	}
	want := map[string]float64{
		"apiserver_watch_cache_range_index_offered_events_total": objects,
		"apiserver_watch_cache_range_index_spared_events_total":  objects * (quarters - 1),
		"apiserver_storage_list_total":                           quarters,
	}
	// An event is counted once it has been offered to all.
	var got map[string]float64
	if err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		got = s.rangeIndexMetrics(t, ctx)
		for name := range got {
			got[name] -= before[name]
		}
		return maps.Equal(got, want), nil
	}); err != nil {
		t.Errorf("counted %v, want %v", got, want)
	}
}

// rangeIndexMetrics returns the counts of the API server's range indexes for endpoints.
func (s *keyServer) rangeIndexMetrics(t *testing.T, ctx context.Context) map[string]float64 {
	t.Helper()
	parsed := scrape(ctx, t, s.client)
	counted := map[string]float64{}
	for _, name := range []string{"apiserver_watch_cache_range_index_offered_events_total", "apiserver_watch_cache_range_index_spared_events_total", "apiserver_storage_list_total"} {
		counted[name] = 0
		for _, sample := range parsed[name] {
			index, listed := sample.Metric["index"]
			if sample.Metric["resource"] == "endpoints" && (!listed || index == model.LabelValue("hashKey")) {
				counted[name] += float64(sample.Value)
			}
		}
	}
	return counted
}

// scrape returns the metrics of the API server.
func scrape(ctx context.Context, t testing.TB, client kubernetes.Interface) testutil.Metrics {
	t.Helper()
	data, err := client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		t.Fatal(err)
	}
	parsed := testutil.NewMetrics()
	if err := testutil.ParseMetrics(string(data), &parsed); err != nil {
		t.Fatal(err)
	}
	if len(parsed) == 0 {
		t.Fatalf("no metrics in %d bytes", len(data))
	}
	return parsed
}
