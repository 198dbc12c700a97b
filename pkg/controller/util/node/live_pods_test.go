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

package node

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

// podOn returns a pod as the API server has it, and as much of it as a trimmed cache keeps.
func podOn(name string, uid types.UID, ready v1.ConditionStatus) (whole, cached *v1.Pod) {
	meta := metav1.ObjectMeta{Namespace: "ns", Name: name, UID: uid}
	whole = &v1.Pod{
		ObjectMeta: *meta.DeepCopy(),
		Spec:       v1.PodSpec{NodeName: "node", Containers: []v1.Container{{Name: "c"}}},
		Status: v1.PodStatus{
			Phase: v1.PodRunning, PodIP: "10.0.0.1",
			Conditions:        []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue}, {Type: v1.PodReady, Status: ready, Reason: "r"}},
			ContainerStatuses: []v1.ContainerStatus{{Name: "c", ContainerID: "id"}},
		},
	}
	cached = &v1.Pod{
		ObjectMeta: meta,
		Spec:       v1.PodSpec{NodeName: "node"},
		Status:     v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodScheduled}, {Type: v1.PodReady, Status: ready}}},
	}
	// The one in the cache is older.
	whole.ResourceVersion, cached.ResourceVersion = "2", "1"
	return whole, cached
}

func TestMarkPodsNotReadyLosesNothingThatACacheLacks(t *testing.T) {
	for _, ready := range []int{0, 1, 3} {
		t.Run(fmt.Sprintf("%d ready", ready), func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, genericfeatures.ControllerRing, true)
			var objects []runtime.Object
			var cached []*v1.Pod
			add := func(whole, kept *v1.Pod) {
				objects, cached = append(objects, whole), append(cached, kept)
			}
			for i := range ready {
				add(podOn(fmt.Sprintf("ready-%d", i), types.UID(fmt.Sprint(i)), v1.ConditionTrue))
			}
			add(podOn("not-ready", "n", v1.ConditionFalse))
			// One is gone, another has been made anew.
			_, gone := podOn("gone", "g", v1.ConditionTrue)
			anew, _ := podOn("anew", "second", v1.ConditionTrue)
			_, before := podOn("anew", "first", v1.ConditionTrue)
			objects, cached = append(objects, anew), append(cached, gone, before)
			client := fake.NewClientset(objects...)
			if err := MarkPodsNotReady(context.Background(), client, record.NewFakeRecorder(10), cached, "node"); err != nil {
				t.Fatal(err)
			}
			updated := 0
			for _, action := range client.Actions() {
				if action.GetVerb() == "update" {
					updated++
				}
			}
			if updated != ready {
				t.Errorf("%d pods were updated, want %d: %v", updated, ready, client.Actions())
			}
			for i := range ready {
				got, err := client.CoreV1().Pods("ns").Get(context.Background(), fmt.Sprintf("ready-%d", i), metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				want, before := podOn(got.Name, got.UID, v1.ConditionFalse)
				// A real server would refuse it: the pod has changed since.
				want.ResourceVersion = before.ResourceVersion
				got.Status.Conditions[1].LastTransitionTime = metav1.Time{}
				if got.ManagedFields = nil; !reflect.DeepEqual(got, want) {
					t.Errorf("the pod has become\n%+v, want\n%+v", got, want)
				}
			}
		})
	}
}

func TestMarkPodsNotReadyReportsWhatItCannotRead(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, genericfeatures.ControllerRing, true)
	_, first := podOn("first", "1", v1.ConditionTrue)
	_, second := podOn("second", "2", v1.ConditionTrue)
	refused := apierrors.NewTooManyRequests("slow down", 1)
	for _, cached := range [][]*v1.Pod{{first}, {first, second}} {
		client := fake.NewClientset()
		client.PrependReactor("*", "pods", func(core.Action) (bool, runtime.Object, error) { return true, nil, refused })
		if err := MarkPodsNotReady(context.Background(), client, record.NewFakeRecorder(10), cached, "node"); !errors.Is(err, refused) {
			t.Errorf("with %d pods: %v, want %v", len(cached), err, refused)
		}
	}
}
