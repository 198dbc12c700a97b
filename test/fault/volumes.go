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
	"math/rand/v2"

	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"
	"k8s.io/kubernetes/test/harness/objects"
	"k8s.io/utils/ptr"
)

const (
	// volumes is how many volumes come and go.
	volumes = 8
	// growing is the class of claims that may ask for more.
	growing = "growing"
	// keptClaim is a claim in each namespace that asks for more again and again.
	keptClaim = "kept"
	// resizer is the annotation that says who is to resize a claim's volume.
	resizer = volumetypes.VolumeResizerKey
)

// createGrowing creates the class.
func (r *run) createGrowing(ctx context.Context) error {
	return objects.Create(ctx, r.client, "", &storage.StorageClass{
		ObjectMeta: objects.Named(growing), Provisioner: "kubernetes.io/no-provisioner", AllowVolumeExpansion: ptr.To(true),
	})
}

// createKept creates a claim with a volume that belong to each other, as the binder would.
func (r *run) createKept(ctx context.Context, namespace string) error {
	spec := claimSpec()
	spec.StorageClassName, spec.VolumeName = ptr.To(growing), "kept-"+namespace
	claim := &v1.PersistentVolumeClaim{ObjectMeta: objects.Named(keptClaim), Spec: spec}
	if err := objects.Create(ctx, r.client, namespace, claim); err != nil {
		return err
	}
	volume := newVolume(spec.VolumeName, growing)
	volume.Spec.ClaimRef = &v1.ObjectReference{Namespace: namespace, Name: keptClaim, UID: claim.UID}
	// Only an external resizer resizes these.
	volume.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "disk"}}
	if err := objects.Create(ctx, r.client, "", volume); err != nil {
		return err
	}
	volume.Status.Phase = v1.VolumeBound
	if _, err := r.client.CoreV1().PersistentVolumes().UpdateStatus(ctx, volume, metav1.UpdateOptions{}); err != nil {
		return err
	}
	bound := []byte(`{"status":{"phase":"Bound","capacity":{"storage":"1Gi"}}}`)
	_, err := r.client.CoreV1().PersistentVolumeClaims(namespace).Patch(ctx, keptClaim, types.MergePatchType, bound, metav1.PatchOptions{}, "status")
	return err
}

func newVolume(name, class string) *v1.PersistentVolume {
	spec := claimSpec()
	return &v1.PersistentVolume{
		ObjectMeta: objects.Named(name),
		Spec: v1.PersistentVolumeSpec{
			Capacity: spec.Resources.Requests, AccessModes: spec.AccessModes, StorageClassName: class, PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/nowhere"}},
		},
	}
}

// changeVolumes takes a volume one step further in its life, or has a claim ask for more. A request
// may fail because of the fault.
func (r *run) changeVolumes(ctx context.Context, random *rand.Rand) {
	if random.IntN(3) == 0 {
		// Nobody has to say again who resizes a volume that already says it.
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}},"spec":{"resources":{"requests":{"storage":"%dMi"}}}}`, resizer, 1025+r.grown.Add(1))
		_, _ = r.client.CoreV1().PersistentVolumeClaims(teamName(random.IntN(teams))).Patch(ctx, keptClaim, types.MergePatchType, patch, metav1.PatchOptions{})
		return
	}
	api := r.client.CoreV1().PersistentVolumes()
	name := fmt.Sprintf("volume-%d", random.IntN(volumes))
	volume, err := api.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_ = objects.Create(ctx, r.client, "", newVolume(name, ""))
	case err != nil:
	case volume.DeletionTimestamp == nil && volume.Status.Phase != v1.VolumeBound:
		volume.Status.Phase = v1.VolumeBound
		_, _ = api.UpdateStatus(ctx, volume, metav1.UpdateOptions{})
	case volume.DeletionTimestamp == nil:
		_ = api.Delete(ctx, name, metav1.DeleteOptions{})
	case volume.Status.Phase == v1.VolumeBound:
		volume.Status.Phase = v1.VolumeReleased
		_, _ = api.UpdateStatus(ctx, volume, metav1.UpdateOptions{})
	}
}

// grows says whether a claim asks for more than it has.
func grows(claim *v1.PersistentVolumeClaim) bool {
	want, have := claim.Spec.Resources.Requests[v1.ResourceStorage], claim.Status.Capacity[v1.ResourceStorage]
	return want.Cmp(have) > 0
}

func claimSpec() v1.PersistentVolumeClaimSpec {
	return v1.PersistentVolumeClaimSpec{
		AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		Resources:   v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
	}
}
