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

package ringtable

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestFollow(t *testing.T) {
	ctx := t.Context()
	client := fake.NewClientset(instance("a", key(math.MaxInt64)))
	f, err := Follow(ctx, client, true)
	if err != nil {
		t.Fatal(err)
	}
	rs := replicaSet(quarter, 1, 3)
	rs.Name, rs.Namespace = "rs", "default"
	rs.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c"}}

	// Each step follows once the one before has been seen.
	var seen []string
	step := func(what string, do error) {
		t.Helper()
		seen = append(seen, what)
		if do != nil {
			t.Fatal(do)
		}
	}
	err = f.Each(ctx, 0, func() (bool, error) {
		r, err := f.Ring(workloads)
		if err != nil {
			return false, err
		}
		switch {
		case len(seen) == 0 && len(r.Instances) == 1 && r.Active() == 1:
			_, err := client.AppsV1().ReplicaSets("default").Create(ctx, rs, metav1.CreateOptions{})
			step("one instance", err)
		case len(seen) == 1 && r.Instances[0].Pods.Wanted == 3:
			b := instance("b", key(2*quarter))
			_, err := client.ShardingV1alpha1().ControllerInstances().Create(ctx, b, metav1.CreateOptions{})
			step("a ReplicaSet", err)
		case len(seen) == 2 && len(r.Instances) == 2 && r.Instances[0].Pods.Wanted == 3:
			step("two instances", client.ShardingV1alpha1().ControllerInstances().Delete(ctx, "a", metav1.DeleteOptions{}))
		case len(seen) == 3 && len(r.Instances) == 1:
			return true, nil
		}
		return false, nil
	})
	if err != nil {
		t.Errorf("after %v: %v", seen, err)
	}
	if names, err := f.Names(); err != nil || strings.Join(names, " ") != workloads {
		t.Errorf("Names: %v, %v", names, err)
	}
}

func TestEachEnds(t *testing.T) {
	f := &Follower{}
	ctx, cancel := context.WithCancel(t.Context())
	err := f.Each(ctx, 0, func() (bool, error) { cancel(); return false, nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("with its context: %v", err)
	}
	wrong := errors.New("wrong")
	if err := f.Each(t.Context(), 0, func() (bool, error) { return false, wrong }); !errors.Is(err, wrong) {
		t.Errorf("with an error: %v", err)
	}
}

func TestFollowAClusterWithoutRings(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("list", "controllerinstances", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(shardingv1alpha1.Resource("controllerinstances"), "")
	})
	_, err := Follow(t.Context(), client, false)
	if err == nil || !strings.Contains(err.Error(), "ControllerRing is off") {
		t.Errorf("got %v", err)
	}
}

func TestTrim(t *testing.T) {
	rs := replicaSet(quarter, 1, 3)
	rs.Annotations = map[string]string{"a": "b"}
	rs.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c"}}
	got, err := trim(rs)
	if err != nil {
		t.Fatal(err)
	}
	left := got.(*appsv1.ReplicaSet)
	if len(left.Spec.Template.Spec.Containers) > 0 || len(left.Annotations) > 0 {
		t.Errorf("left: %v", left)
	}
	if left.UID != rs.UID || *left.Spec.Replicas != 3 || left.Status.ReadyReplicas != 1 {
		t.Errorf("gone: %v", left)
	}
}
