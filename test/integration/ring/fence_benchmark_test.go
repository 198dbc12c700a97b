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
	"math"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// BenchmarkCreatePodFenced creates pods through a kube-apiserver and etcd. Requests
// alternate with and without the name of an instance that owns the pods, so the state of
// the machine affects both alike. "extra-%" is what the fence adds to the median.
// "µs-unknown" is a creation by an instance that is not known to be alive, for which the
// fence reads the registry with quorum.
func BenchmarkCreatePodFenced(b *testing.B) {
	s := startFenceServer(b)
	instance := newInstance("a")
	instance.Spec.LeaseDurationSeconds = 6
	instance.Spec.HashKey = new(int64)
	*instance.Spec.HashKey = math.MaxInt64
	created, err := s.instances().Create(b.Context(), instance, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	go wait.UntilWithContext(b.Context(), func(ctx context.Context) {
		patch := []byte(`{"status":{"renewTime":"` + time.Now().UTC().Format(metav1.RFC3339Micro) + `"}}`)
		if _, err := s.instances().Patch(ctx, "a", types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil && ctx.Err() == nil {
			b.Error(err)
		}
	}, 2*time.Second)

	silent := newInstance("b")
	silent.Spec.HashKey = new(int64)
	*silent.Spec.HashKey = lowEnd
	unknown, err := s.instances().Create(b.Context(), silent, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}

	clients := []kubernetes.Interface{s.as(b, ""), s.as(b, identityOf("a", created.UID)), s.as(b, identityOf("b", unknown.UID))}
	pods := []*v1.Pod{newPod(controllerIn(lowEnd, highEnd)), newPod(controllerIn(lowEnd, highEnd)), newPod(controllerIn(-1, lowEnd))}
	create := func(which int) time.Duration {
		begin := time.Now()
		if _, err := clients[which].CoreV1().Pods(s.namespace).Create(b.Context(), pods[which], metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
		return time.Since(begin)
	}
	for begin := time.Now(); time.Since(begin) < 5*time.Second; {
		// Warm up: open connections, and let the fence see the instance.
		create(0)
		create(1)
	}

	var times [3][]time.Duration
	reads := s.metric(b, quorumReads)
	b.ResetTimer()
	for i := range b.N {
		for _, which := range [2]int{i % 2, 1 - i%2} {
			times[which] = append(times[which], create(which))
		}
	}
	b.StopTimer()
	reads = s.metric(b, quorumReads) - reads
	for range 100 {
		times[2] = append(times[2], create(2))
	}
	var median [3]float64
	for which := range times {
		slices.Sort(times[which])
		median[which] = float64(times[which][len(times[which])/2].Microseconds())
	}
	b.ReportMetric(median[0], "µs-without")
	b.ReportMetric(median[1], "µs-fenced")
	b.ReportMetric(100*(median[1]/median[0]-1), "extra-%")
	b.ReportMetric(float64(reads), "quorum-reads")
	b.ReportMetric(median[2], "µs-unknown")
}
