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

package podtrim

import (
	"reflect"
	"runtime"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// read returns a pod of a ReplicaSet as if it had just been decoded, so that it shares nothing.
func read(replicaSet, name string) *v1.Pod {
	controller := true
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name), GenerateName: replicaSet + "-",
			Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"of": replicaSet},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: replicaSet, UID: types.UID(replicaSet), Controller: &controller}},
		},
		Spec: v1.PodSpec{
			NodeName:    "node",
			Tolerations: []v1.Toleration{{Key: "gone", Operator: v1.TolerationOpExists}},
			Containers:  []v1.Container{{Name: "c", Image: "image", Env: []v1.EnvVar{{Name: "e"}}}},
		},
		Status: v1.PodStatus{
			Phase:             v1.PodRunning,
			Conditions:        []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, Message: name}},
			ContainerStatuses: []v1.ContainerStatus{{Name: "c", ContainerID: name, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}},
		},
	}
}

const some = NodeName | Tolerations | Resources | Phase | Conditions | ContainerStates

// shared says whether each part of two pods that can be one is one.
func shared(a, b *v1.Pod) (parts map[string]bool) {
	return map[string]bool{
		"labels":      reflect.ValueOf(a.Labels).Pointer() == reflect.ValueOf(b.Labels).Pointer(),
		"annotations": reflect.ValueOf(a.Annotations).Pointer() == reflect.ValueOf(b.Annotations).Pointer(),
		"owners":      unsafe.SliceData(a.OwnerReferences) == unsafe.SliceData(b.OwnerReferences),
		"tolerations": unsafe.SliceData(a.Spec.Tolerations) == unsafe.SliceData(b.Spec.Tolerations),
		"containers":  unsafe.SliceData(a.Spec.Containers) == unsafe.SliceData(b.Spec.Containers),
		"conditions":  unsafe.SliceData(a.Status.Conditions) == unsafe.SliceData(b.Status.Conditions),
		"statuses":    unsafe.SliceData(a.Status.ContainerStatuses) == unsafe.SliceData(b.Status.ContainerStatuses),
	}
}

func expect(t *testing.T, a, b *v1.Pod, want map[string]bool) {
	t.Helper()
	if diff := cmp.Diff(want, shared(a, b)); diff != "" {
		t.Errorf("what %s and %s share (-want, +got):\n%s", a.Name, b.Name, diff)
	}
}

func all() map[string]bool {
	return map[string]bool{"labels": true, "annotations": true, "owners": true, "tolerations": true, "containers": true, "conditions": true, "statuses": true}
}

func TestSiblingsShareWhatIsEqual(t *testing.T) {
	trimmer := NewTrimmer()
	trimmer.Keep(some, nil)
	first, second, other := read("rs", "first"), read("rs", "second"), read("other", "other")
	for _, pod := range []*v1.Pod{first, second, other} {
		want := pod.DeepCopy()
		some.trim(want)
		if trimmer.Transform(pod); !reflect.DeepEqual(pod, want) {
			t.Errorf("sharing has changed the pod:\n%s", cmp.Diff(want, pod))
		}
	}
	expect(t, first, second, all())
	// What has nothing to do with their controllers is shared by all.
	want := all()
	want["annotations"], want["owners"] = false, false
	expect(t, first, other, want)

	third := read("rs", "third")
	third.Status.Conditions[0].Status = v1.ConditionFalse
	third.Labels["color"] = "blue"
	trimmer.Transform(third)
	want = all()
	want["conditions"], want["labels"] = false, false
	expect(t, first, third, want)
	// The trimmer itself keeps none.
	runtime.KeepAlive(second)
	runtime.KeepAlive(other)
}

// The second time is when an informer that has listed by a watch hands over what it got, in any
// order: the sibling may be forgotten by then, and others have what the pod shares in use.
func TestTransformingTwiceKeepsSharing(t *testing.T) {
	trimmer := NewTrimmer()
	trimmer.Keep(some, nil)
	first, second := read("rs", "first"), read("rs", "second")
	trimmer.Transform(first)
	trimmer.Transform(second)
	trimmer.Keep(some, nil)
	trimmer.Transform(second)
	trimmer.Transform(first)
	expect(t, first, second, all())
}

func TestOnlyPodsAreTrimmedAndOnlyWhenTold(t *testing.T) {
	trimmer := NewTrimmer()
	pod := read("rs", "pod")
	if trimmer.Transform(pod); !reflect.DeepEqual(pod, read("rs", "pod")) {
		t.Error("a pod has been trimmed before anybody said what to keep")
	}
	trimmer.Keep(0, nil)
	for _, obj := range []any{nil, &v1.Node{Spec: v1.NodeSpec{PodCIDR: "c"}}, &metav1.PartialObjectMetadata{}, cache.DeletedFinalStateUnknown{Obj: pod}} {
		trimmer.Transform(obj)
	}
	if pod.Spec.NodeName == "" {
		t.Error("what a tombstone holds has been trimmed, which is in use already")
	}
}
