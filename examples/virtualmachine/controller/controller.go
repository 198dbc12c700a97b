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

// Package controller makes of each VirtualMachine a pod, while it is to run, and a claim for each
// of its disks. It knows nothing of rings.
package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "ringmaster.example/virtualmachine/api/v1"
)

// Name is that of the controller.
const Name = "virtualmachine-controller"

// Reconciler reconciles VirtualMachines.
type Reconciler struct {
	client.Client
}

// maxPause is the longest pause before something is tried again: nobody says when a name is free.
const maxPause = 10 * time.Second

// AddTo adds the controller to a manager.
func (r *Reconciler) AddTo(mgr ctrl.Manager, options controller.Options) error {
	options.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](5*time.Millisecond, maxPause)
	return ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&v1.VirtualMachine{}).
		Owns(&corev1.Pod{}).
		Owns(&corev1.PersistentVolumeClaim{}).
		WithOptions(options).
		Complete(r)
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var vm v1.VirtualMachine
	if err := r.Get(ctx, req.NamespacedName, &vm); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if vm.DeletionTimestamp != nil {
		return ctrl.Result{}, nil // what it owns goes with it
	}
	disks, err := r.reconcileDisks(ctx, &vm)
	if err != nil {
		return ctrl.Result{}, err
	}
	phase, err := r.reconcilePod(ctx, &vm)
	if err != nil {
		return ctrl.Result{}, err
	}
	status := v1.VirtualMachineStatus{ObservedGeneration: vm.Generation, Phase: phase, Disks: disks}
	if vm.Status == status {
		return ctrl.Result{}, nil
	}
	vm.Status = status
	return ctrl.Result{}, r.Status().Update(ctx, &vm)
}

// reconcilePod returns the phase of the machine.
func (r *Reconciler) reconcilePod(ctx context.Context, vm *v1.VirtualMachine) (string, error) {
	pod := &corev1.Pod{}
	err := r.Get(ctx, client.ObjectKeyFromObject(vm), pod)
	exists := err == nil && metav1.IsControlledBy(pod, vm)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return "", err
	case !vm.Spec.Running && !exists:
		return "Stopped", nil
	case !vm.Spec.Running:
		return "Stopped", client.IgnoreNotFound(r.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}))
	case exists && pod.Status.Phase == corev1.PodRunning:
		return "Running", nil
	case exists:
		return "Starting", nil
	}
	pod = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: vm.Name, Namespace: vm.Namespace, Labels: map[string]string{"virtualmachine": vm.Name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "machine", Image: vm.Spec.Image}}},
	}
	for _, disk := range vm.Spec.Disks {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: disk.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(vm, disk)},
		}})
	}
	return "Starting", r.create(ctx, vm, pod)
}

// reconcileDisks returns how many disks the machine has.
func (r *Reconciler) reconcileDisks(ctx context.Context, vm *v1.VirtualMachine) (int, error) {
	var claims corev1.PersistentVolumeClaimList
	if err := r.List(ctx, &claims, client.InNamespace(vm.Namespace), client.MatchingLabels{"virtualmachine": vm.Name}); err != nil {
		return 0, err
	}
	have := map[string]*corev1.PersistentVolumeClaim{}
	for i := range claims.Items {
		if claim := &claims.Items[i]; metav1.IsControlledBy(claim, vm) {
			have[claim.Name] = claim
		}
	}
	for _, disk := range vm.Spec.Disks {
		name := claimName(vm, disk)
		if have[name] == nil {
			claim := &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: vm.Namespace, Labels: map[string]string{"virtualmachine": vm.Name}},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: disk.Size}},
				},
			}
			if err := r.create(ctx, vm, claim); err != nil {
				return 0, err
			}
		}
		delete(have, name)
	}
	// What is left is of disks that are not wanted any more.
	for _, claim := range have {
		if err := r.Delete(ctx, claim, client.Preconditions{UID: &claim.UID}); client.IgnoreNotFound(err) != nil {
			return 0, err
		}
	}
	return len(vm.Spec.Disks), nil
}

// create creates an object of the machine. If one of that name is there, which is not the machine's
// or not in the cache yet, that is an error, so that it is tried again: the machine may have been
// made anew under its name, while what the earlier one had goes, and nobody need hear when it has
// gone.
func (r *Reconciler) create(ctx context.Context, vm *v1.VirtualMachine, obj client.Object) error {
	if err := controllerutil.SetControllerReference(vm, obj, r.Scheme()); err != nil {
		return err
	}
	return r.Create(ctx, obj)
}

func claimName(vm *v1.VirtualMachine, disk v1.Disk) string { return vm.Name + "-" + disk.Name }
