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
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/ringtable"
	"k8s.io/kubernetes/test/integration/framework"
)

// move writes nextHashKey, as an administrator would, and waits until the handover is
// closed. It returns the instance's new key.
func (r *ringTest) move(name string, next int64) int64 {
	r.Helper()
	instances := r.client.ShardingV1alpha1().ControllerInstances()
	patch := []byte(fmt.Sprintf(`{"spec":{"nextHashKey":%d}}`, next))
	if _, err := instances.Patch(r.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		r.Fatal(err)
	}
	var key int64
	r.eventually(func(ctx context.Context) error {
		now, err := instances.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if now.Spec.NextHashKey != nil {
			return fmt.Errorf("the move of %s to %d is still open", name, next)
		}
		key = int64(*now.Spec.HashKey)
		return nil
	})
	return key
}

func TestAnAdministratorMovesABoundary(t *testing.T) {
	r := newRingTest(t)
	ns := framework.CreateNamespaceOrDie(r.client, "moves", t)
	r.start()
	r.expectRing(1)
	sets := r.createReplicaSets(ns.Name, 20, 1)
	r.expectFilled(sets, 1)
	r.start()
	r.expectRing(2)
	ring, err := r.ring(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	low, high := ring.Instances[0], ring.Instances[1]
	last := func(i ringtable.Instance) int64 { return int64(i.Owned[0].End - 1) }

	// Up to all keys but one, then down to a quarter, both while the controllers work.
	r.scale(sets, 2)
	if got, want := r.move(low.Name, last(high)-1), last(high)-1; got != want {
		t.Errorf("moved up to %d, want %d", got, want)
	}
	r.expectRing(2)
	r.expectFilled(sets, 2)
	r.scale(sets, 3)
	if got, want := r.move(low.Name, last(low)/2), last(low)/2; got != want {
		t.Errorf("moved down to %d, want %d", got, want)
	}
	r.expectRing(2)
	r.expectFilled(sets, 3)

	// The successor's own key is out of bounds.
	patch := []byte(fmt.Sprintf(`{"spec":{"nextHashKey":%d}}`, last(high)))
	_, err = r.client.ShardingV1alpha1().ControllerInstances().Patch(t.Context(), low.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if !apierrors.IsInvalid(err) {
		t.Errorf("a move that is not allowed got %v, want Invalid", err)
	}
	r.scale(sets, 4)
	r.expectRing(2)
	r.expectFilled(sets, 4)
}
