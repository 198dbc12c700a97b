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

package controller

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "ringmaster.example/virtualmachine/api/v1"
)

func newScheme(t *testing.T) *runtime.Scheme {
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1.AddToScheme} {
		if err := add(kinds); err != nil {
			t.Fatal(err)
		}
	}
	return kinds
}

// The pod and the disk of the earlier one are of another hash key, so their end may be told to
// another replica alone.
func TestAMachineThatIsMadeAnewUnderItsNameTriesAgain(t *testing.T) {
	kinds := newScheme(t)
	disks := []v1.Disk{{Name: "root", Size: resource.MustParse("1Gi")}}
	earlier := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "vm", UID: "1"}}
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "vm", UID: "2"}, Spec: v1.VirtualMachineSpec{Running: true, Disks: disks}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "vm"}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "vm-root"}}
	all := fake.NewClientBuilder().WithScheme(kinds).WithObjects(vm).WithStatusSubresource(vm).Build()
	// The replica's cache has nothing of another key.
	r := &Reconciler{interceptor.NewClient(all, interceptor.Funcs{
		Get: func(ctx context.Context, all client.WithWatch, key client.ObjectKey, obj client.Object, options ...client.GetOption) error {
			err := all.Get(ctx, key, obj, options...)
			if err == nil && metav1.IsControlledBy(obj, earlier) {
				return apierrors.NewNotFound(corev1.Resource("pods"), key.Name)
			}
			return err
		},
	})}
	request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(vm)}
	for _, dependent := range []client.Object{claim, pod} {
		if err := controllerutil.SetControllerReference(earlier, dependent, kinds); err != nil {
			t.Fatal(err)
		}
		if err := all.Create(t.Context(), dependent); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Reconcile(t.Context(), request); !apierrors.IsAlreadyExists(err) {
			t.Errorf("reconciled with %v while %T %s of the earlier machine is there", err, dependent, dependent.GetName())
		}
		if err := all.Delete(t.Context(), dependent); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Reconcile(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	for _, dependent := range []client.Object{claim, pod} {
		if err := all.Get(t.Context(), client.ObjectKeyFromObject(dependent), dependent); err != nil || !metav1.IsControlledBy(dependent, vm) {
			t.Errorf("%T %s is not the machine's (%v)", dependent, dependent.GetName(), err)
		}
	}
}

func TestAMachineHasWhatItWants(t *testing.T) {
	kinds := newScheme(t)
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "vm", UID: "1"}}
	// It is nobody's, and must be left alone.
	foreign := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "foreign", Labels: map[string]string{"virtualmachine": "vm"}}}
	r := &Reconciler{fake.NewClientBuilder().WithScheme(kinds).WithObjects(vm, foreign).WithStatusSubresource(vm).Build()}
	disk := func(name string) v1.Disk { return v1.Disk{Name: name, Size: resource.MustParse("1Gi")} }
	for _, step := range []struct {
		running bool
		disks   []v1.Disk
		phase   string
		claims  []string
	}{
		{running: true, disks: []v1.Disk{disk("root"), disk("data")}, phase: "Starting", claims: []string{"foreign", "vm-data", "vm-root"}},
		{running: false, disks: []v1.Disk{disk("root"), disk("data")}, phase: "Stopped", claims: []string{"foreign", "vm-data", "vm-root"}},
		{running: true, disks: []v1.Disk{disk("root")}, phase: "Starting", claims: []string{"foreign", "vm-root"}},
		{running: false, phase: "Stopped", claims: []string{"foreign"}},
	} {
		key := client.ObjectKeyFromObject(vm)
		if err := r.Get(t.Context(), key, vm); err != nil {
			t.Fatal(err)
		}
		vm.Spec.Running, vm.Spec.Disks = step.running, step.disks
		if err := r.Update(t.Context(), vm); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time there is nothing to do
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Get(t.Context(), key, vm); err != nil {
			t.Fatal(err)
		}
		if vm.Status.Phase != step.phase || vm.Status.Disks != len(step.disks) || vm.Status.ObservedGeneration != vm.Generation {
			t.Errorf("status %+v of generation %d, want %s with %d disks", vm.Status, vm.Generation, step.phase, len(step.disks))
		}
		var pods corev1.PodList
		var claims corev1.PersistentVolumeClaimList
		for _, list := range []client.ObjectList{&pods, &claims} {
			if err := r.List(t.Context(), list); err != nil {
				t.Fatal(err)
			}
		}
		if running := len(pods.Items) == 1 && metav1.IsControlledBy(&pods.Items[0], vm); running != step.running || len(pods.Items) > 1 {
			t.Errorf("%d pods, want one: %v", len(pods.Items), step.running)
		}
		var names []string
		for _, claim := range claims.Items {
			names = append(names, claim.Name)
		}
		if slices.Sort(names); !slices.Equal(names, step.claims) {
			t.Errorf("claims %q, want %q", names, step.claims)
		}
	}
}
