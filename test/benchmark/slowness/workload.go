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
	"math/rand/v2"
	"path"
	"strings"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/objects"
	"k8s.io/utils/ptr"
)

const (
	// writers is how many requests create objects at the same time.
	writers = 8
	// namespaces have the ReplicaSets by turns.
	namespaces = 20
	// loadPeriod is between two changes of a ReplicaSet's size under load, and loadStep the most pods
	// that one adds.
	loadPeriod = 100 * time.Millisecond
	loadStep   = 10
)

// workload is ReplicaSets with pods that nothing runs.
type workload struct {
	sets int
	// pods is how many each of them wants.
	pods int
}

func namespaceOf(i int) string { return fmt.Sprintf("space-%02d", i%namespaces) }

func setName(i int) string { return fmt.Sprintf("set-%04d", i) }

// createNamespaces creates the namespaces, with the service account that pods need there: nobody
// else may be at work yet.
func (s *side) createNamespaces(ctx context.Context) error {
	for i := range namespaces {
		name := namespaceOf(i)
		if err := objects.Create(ctx, s.client, "", objects.Namespace(name)); err != nil {
			return err
		}
		if err := objects.Create(ctx, s.client, name, &v1.ServiceAccount{ObjectMeta: objects.Named("default")}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// createSets creates the ReplicaSets.
func (s *side) createSets(ctx context.Context, w workload) error {
	return harness.Parallel(ctx, writers, w.sets, func(ctx context.Context, i int) error {
		return objects.Create(ctx, s.client, namespaceOf(i), newSet(i, w.pods))
	})
}

// createAll creates the ReplicaSets and their pods, before any controller manager is there to do
// that.
func (s *side) createAll(ctx context.Context, w workload) error {
	if err := s.createNamespaces(ctx); err != nil {
		return err
	}
	return harness.Parallel(ctx, writers, w.sets, func(ctx context.Context, i int) error {
		return objects.CreateWithPods(ctx, s.client, namespaceOf(i), newSet(i, w.pods))
	})
}

// newSet returns a ReplicaSet whose pods have about 2 KiB, and need no node.
func newSet(i, replicas int) *apps.ReplicaSet {
	pods := objects.Pods(map[string]string{"set": setName(i)})
	pods.Annotations = map[string]string{"example.com/config": strings.Repeat(setName(i), 60)}
	pods.Spec = v1.PodSpec{
		SchedulerName: "none", AutomountServiceAccountToken: ptr.To(false),
		Containers: []v1.Container{{Name: "main", Image: "registry.example.com/some/team/image:v1.2.3"}},
	}
	return objects.ReplicaSet(setName(i), int32(replicas), pods)
}

// touch changes each ReplicaSet, so that its controller has to write that it has seen the change.
// No two touches may have the same number.
func (s *side) touch(ctx context.Context, sets, number int) error {
	patch := fmt.Appendf(nil, `{"spec":{"minReadySeconds":%d}}`, number)
	return harness.Parallel(ctx, writers, sets, func(ctx context.Context, i int) error {
		set, err := s.client.AppsV1().ReplicaSets(namespaceOf(i)).Patch(ctx, setName(i), types.MergePatchType, patch, metav1.PatchOptions{})
		if err == nil {
			s.registry.See(func(l *ledger) { l.want(path.Join(set.Namespace, set.Name), set.Generation) })
		}
		return err
	})
}

// seen waits until the controllers have seen what touch has changed, and returns when the last did.
func (s *side) seen(ctx context.Context) (last time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	err = s.registry.Await(ctx, s.name+": the controllers of all ReplicaSets", func(l *ledger) (all bool) {
		last, all = l.last()
		return all
	})
	return last, err
}

// load changes the sizes of ReplicaSets at random, until ctx ends.
func (s *side) load(ctx context.Context, w workload) {
	for ctx.Err() == nil {
		i, pods := rand.IntN(w.sets), w.pods+rand.IntN(loadStep)
		patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, pods)
		if _, err := s.client.AppsV1().ReplicaSets(namespaceOf(i)).Patch(ctx, setName(i), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil && ctx.Err() == nil {
			log.Printf("%s: load: %v", s.name, err)
		}
		_ = harness.Sleep(ctx, loadPeriod)
	}
}
