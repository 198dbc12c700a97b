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

package main

import (
	"context"
	"fmt"
	"log"
	"strings"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/objects"
	"k8s.io/utils/ptr"
)

const (
	namespace = metav1.NamespaceDefault
	// writers is the number of concurrent requests that create pods.
	writers = 16
)

// fill creates the ReplicaSets with all their pods, so the controller has nothing to
// create.
func (b *benchmark) fill(ctx context.Context) error {
	begin := time.Now()
	for i := range b.pods / b.podsPerSet {
		rs := newReplicaSet(fmt.Sprintf("app-%05d", i), b.podsPerSet)
		if err := objects.Create(ctx, b.client, namespace, rs); err != nil {
			return err
		}
		b.sets = append(b.sets, rs)
	}
	var created, bytes atomic.Int64
	if err := harness.Parallel(ctx, writers, len(b.sets), func(ctx context.Context, n int) error {
		rs := b.sets[n]
		for i := range b.podsPerSet {
			pod := objects.PodOf(rs, i)
			if err := objects.Create(ctx, b.client, namespace, pod); err != nil {
				return err
			}
			bytes.Add(int64(pod.Size()))
			if n := created.Add(1); n%5000 == 0 {
				log.Printf("%d of %d pods created", n, b.pods)
			}
		}
		return nil
	}); err != nil {
		return err
	}
	b.podSize = int(bytes.Load() / created.Load())
	log.Printf("%d pods of %d bytes created in %v", b.pods, b.podSize, time.Since(begin).Round(time.Second))
	return nil
}

// newReplicaSet returns a ReplicaSet with unscheduled pods of about 5 KiB.
func newReplicaSet(name string, replicas int) *appsv1.ReplicaSet {
	return objects.ReplicaSet(name, int32(replicas), v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{"app": name, "pod-template-hash": "5d69b4f8c7"},
			Annotations: map[string]string{"example.com/config": strings.Repeat(name, 90)},
		},
		Spec: v1.PodSpec{AutomountServiceAccountToken: ptr.To(false), SchedulerName: "none", Containers: objects.Containers(name, 12)},
	})
}

// observed waits until the controller has worked on every ReplicaSet. It adds an empty
// one for the case that there is no other.
func (b *benchmark) observed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	replicaSets := b.client.AppsV1().ReplicaSets(namespace)
	probe := newReplicaSet("probe", 0)
	if err := objects.Create(ctx, b.client, namespace, probe); err != nil {
		return err
	}
	err := wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		list, err := replicaSets.List(ctx, metav1.ListOptions{ResourceVersion: probe.ResourceVersion})
		if err != nil {
			return false, err
		}
		for _, rs := range list.Items {
			if rs.Status.ObservedGeneration != rs.Generation || rs.Status.Replicas != *rs.Spec.Replicas {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the controller to work on all ReplicaSets: %w", err)
	}
	return replicaSets.Delete(ctx, probe.Name, metav1.DeleteOptions{})
}

// setsIn returns the number of ReplicaSets in the ranges.
func (b *benchmark) setsIn(ranges hashkey.Ranges) int {
	n := 0
	for _, rs := range b.sets {
		if ranges.Contains(metav1.HashKeyOf(rs)) {
			n++
		}
	}
	return n
}

func (b *benchmark) podsIn(ranges hashkey.Ranges) int { return b.setsIn(ranges) * b.podsPerSet }
