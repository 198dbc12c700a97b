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

package siblings

import (
	"fmt"
	"math/rand"
	"reflect"
	"runtime"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// read returns a pod of a ReplicaSet as if it had just been decoded, so that it shares nothing. The
// volume has a name of its own in each pod, as that of a service account's token does.
func read(replicaSet, name string) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name), GenerateName: replicaSet + "-",
			Labels: map[string]string{"of": replicaSet}, Annotations: map[string]string{"name": name},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: replicaSet, UID: types.UID(replicaSet), Controller: ptr.To(true)}},
		},
		Spec: v1.PodSpec{
			Volumes: []v1.Volume{{Name: "token-" + name, VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "token"}}}},
			Containers: []v1.Container{{
				Name: "c", Image: "image", Env: []v1.EnvVar{{Name: "e", Value: "v"}},
				VolumeMounts: []v1.VolumeMount{{Name: "token-" + name, MountPath: "/token"}},
			}},
			TerminationGracePeriodSeconds: ptr.To(int64(30)),
		},
		Status: v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, Message: name}}},
	}
	data, err := pod.Marshal()
	if err != nil {
		panic(err)
	}
	decoded := &v1.Pod{}
	if err := decoded.Unmarshal(data); err != nil {
		panic(err)
	}
	return decoded
}

// parts returns where the parts of a pod are.
func parts(pod *v1.Pod) map[string]unsafe.Pointer {
	c := &pod.Spec.Containers[0]
	return map[string]unsafe.Pointer{
		"labels":        reflect.ValueOf(pod.Labels).UnsafePointer(),
		"annotations":   reflect.ValueOf(pod.Annotations).UnsafePointer(),
		"owners":        unsafe.Pointer(unsafe.SliceData(pod.OwnerReferences)),
		"volumes":       unsafe.Pointer(unsafe.SliceData(pod.Spec.Volumes)),
		"volume's name": unsafe.Pointer(unsafe.StringData(pod.Spec.Volumes[0].Name)),
		"secret":        unsafe.Pointer(pod.Spec.Volumes[0].Secret),
		"containers":    unsafe.Pointer(unsafe.SliceData(pod.Spec.Containers)),
		"image":         unsafe.Pointer(unsafe.StringData(c.Image)),
		"env":           unsafe.Pointer(unsafe.SliceData(c.Env)),
		"mounts":        unsafe.Pointer(unsafe.SliceData(c.VolumeMounts)),
		"mount's path":  unsafe.Pointer(unsafe.StringData(c.VolumeMounts[0].MountPath)),
		"grace period":  unsafe.Pointer(pod.Spec.TerminationGracePeriodSeconds),
		"conditions":    unsafe.Pointer(unsafe.SliceData(pod.Status.Conditions)),
		"ready":         unsafe.Pointer(unsafe.StringData(string(pod.Status.Conditions[0].Type))),
	}
}

// apart are the parts in which siblings differ.
var apart = map[string]bool{"annotations": true, "volumes": true, "volume's name": true, "containers": true, "mounts": true, "conditions": true}

// expectShared expects that a and b share all but some parts.
func expectShared(t *testing.T, a, b *v1.Pod, but map[string]bool) {
	t.Helper()
	of := parts(b)
	for part, at := range parts(a) {
		if shared := at == of[part]; shared == but[part] {
			t.Errorf("%s and %s share their %s: %v, want %v", a.Name, b.Name, part, shared, !but[part])
		}
	}
}

func TestSiblingsShareWhatIsEqual(t *testing.T) {
	sharer := NewSharer[v1.Pod](nil)
	first, second, other := read("rs", "first"), read("rs", "second"), read("other", "other")
	for _, pod := range []*v1.Pod{first, second, other} {
		want := pod.DeepCopy()
		if sharer.Share(pod); !reflect.DeepEqual(pod, want) {
			t.Errorf("sharing has changed the pod:\n%s", cmp.Diff(want, pod))
		}
	}
	expectShared(t, first, second, apart)
	// What has nothing to do with their controllers is shared by all.
	without := map[string]bool{"labels": true, "owners": true}
	for part := range apart {
		without[part] = true
	}
	expectShared(t, first, other, without)

	third := read("rs", "third")
	sharer.Share(third)
	expectShared(t, first, third, apart)
	// The sharer itself keeps none.
	runtime.KeepAlive(second)
	runtime.KeepAlive(other)
}

// Others read what an object shares.
func TestWhatIsSharedStaysAsItIs(t *testing.T) {
	sharer := NewSharer[v1.Pod](nil)
	first := read("rs", "first")
	sharer.Share(first)
	before, at := first.DeepCopy(), parts(first)
	for i := range 10 {
		next := read("rs", fmt.Sprint(i))
		next.Spec.Containers[0].Env = append(next.Spec.Containers[0].Env, v1.EnvVar{Name: fmt.Sprint(i)})
		sharer.Share(next)
		_ = append(next.OwnerReferences, metav1.OwnerReference{Name: "another"})
	}
	if !reflect.DeepEqual(first, before) || !reflect.DeepEqual(parts(first), at) {
		t.Error("a pod that is in use has been written into")
	}
	if owners := first.OwnerReferences[:cap(first.OwnerReferences)]; owners[len(owners)-1].Name == "another" {
		t.Error("who appends to a part of a pod writes into its sibling")
	}
}

// More controllers than a Sharer remembers have pods that change; each keeps what it shares.
func TestAnObjectSharesWithWhatIsStored(t *testing.T) {
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	sharer := NewSharer[v1.Pod](store)
	before := read("rs", "pod")
	sharer.Share(before)
	if err := store.Add(before); err != nil {
		t.Fatal(err)
	}
	var others []*v1.Pod
	for i := range groups {
		others = append(others, read(fmt.Sprint("rs-", i), "other"))
		sharer.Share(others[i])
	}
	after := read("rs", "pod")
	after.Status.Conditions[0].Status = v1.ConditionFalse
	sharer.Share(after)
	got, of := parts(after), parts(before)
	for part := range got {
		// What all pods have alike is shared with the last of them.
		if shared := got[part] == of[part]; shared != (part != "conditions") {
			t.Errorf("two versions share their %s: %v", part, shared)
		}
	}
	runtime.KeepAlive(others)
}

func TestNothingIsKeptAlive(t *testing.T) {
	sharer := NewSharer[v1.Pod](nil)
	func() { sharer.Share(read("rs", "pod")) }()
	// Its memory goes when a collection has found that nobody has it.
	for range 10 {
		if sharer.newestOf("rs") == nil {
			return
		}
		runtime.GC()
	}
	t.Error("the pod is still there")
}

// A deleted object comes once more, and then nobody has it.
func TestADeletedObjectIsNoSibling(t *testing.T) {
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	sharer := NewSharer[v1.Pod](store)
	oldest, newer := read("rs", "oldest"), read("rs", "newer")
	for _, pod := range []*v1.Pod{oldest, newer} {
		sharer.Share(pod)
		if err := store.Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	sharer.Share(read("rs", "oldest"))
	if err := store.Delete(oldest); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	next := read("rs", "next")
	sharer.Share(next)
	expectShared(t, newer, next, apart)
}

func TestTransformerLeavesTheRestAlone(t *testing.T) {
	share := Transformer[v1.Pod](nil)
	pod := read("rs", "pod")
	for _, obj := range []any{nil, &v1.Node{}, cache.DeletedFinalStateUnknown{Obj: pod}, &v1.Pod{}, pod} {
		share(obj)
	}
	if !reflect.DeepEqual(pod, read("rs", "pod")) {
		t.Error("the pod has changed")
	}
}

// Whatever a pod has in any of its fields, and whatever its sibling has, it stays as it is.
func TestRandomPodsStayAsTheyAre(t *testing.T) {
	seed := rand.Int63()
	t.Log("seed", seed)
	filler := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed), serializer.NewCodecFactory(scheme.Scheme))
	sharer := NewSharer[v1.Pod](nil)
	var pods, copies []*v1.Pod
	for range 100 {
		pod := &v1.Pod{}
		filler.Fill(pod)
		twin := pod.DeepCopy()
		filler.Fill(&twin.Spec.Containers)
		for _, p := range []*v1.Pod{pod, twin, pod.DeepCopy()} {
			pods, copies = append(pods, p), append(copies, p.DeepCopy())
			sharer.Share(p)
		}
	}
	for i, pod := range pods {
		if !reflect.DeepEqual(pod, copies[i]) {
			t.Errorf("pod %d has changed:\n%s", i, cmp.Diff(copies[i], pod))
		}
	}
}
