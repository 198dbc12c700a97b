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
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// BenchmarkCreatePodFenced creates pods through a kube-apiserver and etcd. Requests
// alternate with and without the name of an instance that owns the pods, so the state of
// the machine affects both alike. "extra-%" is what the fence adds to the median, "anew-%"
// how many of the writes had to be judged anew, as the instance reports once a second.
func BenchmarkCreatePodFenced(b *testing.B) {
	s := startFenceServer(b)
	a := s.owns(b, "a", highEnd)
	stop := make(chan struct{})
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Second):
				patch := fmt.Appendf(nil, `{"status":{"weight":%d}}`, n)
				if _, err := a.registry.Patch(b.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
					b.Error(err)
					return
				}
			}
		}
	}()

	clients := []kubernetes.Interface{s.client, a.writes}
	pod := newPod(controllerIn(-1, highEnd))
	create := func(which int) time.Duration {
		begin := time.Now()
		if _, err := clients[which].CoreV1().Pods(s.namespace).Create(b.Context(), pod, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
		return time.Since(begin)
	}
	for begin := time.Now(); time.Since(begin) < 5*time.Second; {
		// Warm up: open connections, and let the fence see the instance.
		create(0)
		create(1)
	}

	var times [2][]time.Duration
	reads, anew := s.metric(b, quorumReads), s.metric(b, judgedAnew)
	b.ResetTimer()
	for i := range b.N {
		for _, which := range [2]int{i % 2, 1 - i%2} {
			times[which] = append(times[which], create(which))
		}
	}
	b.StopTimer()
	reads, anew = s.metric(b, quorumReads)-reads, s.metric(b, judgedAnew)-anew
	close(stop)
	<-reported
	var median [2]float64
	for which := range times {
		slices.Sort(times[which])
		median[which] = float64(times[which][len(times[which])/2].Microseconds())
	}
	b.ReportMetric(median[0], "µs-without")
	b.ReportMetric(median[1], "µs-fenced")
	b.ReportMetric(100*(median[1]/median[0]-1), "extra-%")
	b.ReportMetric(float64(reads), "quorum-reads")
	b.ReportMetric(100*float64(anew)/float64(b.N), "anew-%")
}
