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
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/test/harness/objects"
	"k8s.io/kubernetes/test/harness/shared"
)

const (
	volumesNamespace = "volumes"
	driver           = "csi.example.com"
	// volumeNodes is the number of nodes to which volumes are attached, and atOnce that of the
	// volumes that go through their cycles at the same time.
	volumeNodes = 20
	atOnce      = 250
)

// attached has the volumes that are attached.
type attached = shared.State[map[string]bool]

func set(a *attached, volume string, is bool) {
	a.Change(func(volumes map[string]bool) error { volumes[volume] = is; return nil })
}

// until waits until a volume is attached, or is not.
func until(ctx context.Context, a *attached, volume string, is bool) error {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	return a.Await(ctx, fmt.Sprintf("%s to be attached (%v)", volume, is), func(volumes map[string]bool) bool { return volumes[volume] == is })
}

// attach does what a CSI driver's attacher does, until ctx ends: it says that what is to be
// attached is.
func (r *run) attach(ctx context.Context, a *attached) error {
	attachments := r.client.StorageV1().VolumeAttachments()
	group, ctx := errgroup.WithContext(ctx)
	take := func(obj any) {
		attachment := obj.(*storage.VolumeAttachment)
		if attachment.Status.Attached {
			set(a, *attachment.Spec.Source.PersistentVolumeName, true)
			return
		}
		group.Go(func() error {
			_, err := attachments.Patch(ctx, attachment.Name, types.MergePatchType, []byte(`{"status":{"attached":true}}`), metav1.PatchOptions{}, "status")
			if ctx.Err() != nil {
				return nil
			}
			return err
		})
	}
	factory := informers.NewSharedInformerFactory(r.client, 0)
	informer := factory.Storage().V1().VolumeAttachments().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    take,
		UpdateFunc: func(_, obj any) { set(a, *obj.(*storage.VolumeAttachment).Spec.Source.PersistentVolumeName, true) },
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			set(a, *obj.(*storage.VolumeAttachment).Spec.Source.PersistentVolumeName, false)
		},
	}); err != nil {
		return err
	}
	group.Go(func() error {
		informer.RunWithContext(ctx)
		return nil
	})
	return group.Wait()
}

// attachVolumes creates volumes, and pods that use them, one after the other.
func (r *run) attachVolumes(ctx context.Context) error {
	if err := r.newNamespace(ctx, volumesNamespace); err != nil {
		return err
	}
	if err := objects.Create(ctx, r.client, "", &storage.CSIDriver{ObjectMeta: objects.Named(driver)}); err != nil {
		return err
	}
	for i := range volumeNodes {
		if err := r.newNode(ctx, nodeFor(i)); err != nil {
			return err
		}
		if err := objects.Create(ctx, r.client, "", &storage.CSINode{
			ObjectMeta: objects.Named(nodeFor(i)),
			Spec:       storage.CSINodeSpec{Drivers: []storage.CSINodeDriver{{Name: driver, NodeID: nodeFor(i)}}},
		}); err != nil {
			return err
		}
	}
	working, end := context.WithCancel(ctx)
	defer end()
	group, working := errgroup.WithContext(working)
	group.Go(func() error { return r.keepAlive(working, func(string) bool { return true }) })
	a := shared.New(map[string]bool{})
	group.Go(func() error { return r.attach(working, a) })
	group.Go(func() error {
		defer end()
		volumes, ctx := errgroup.WithContext(working)
		for i := range min(atOnce, r.cycles) {
			volumes.Go(func() error {
				if err := r.newVolume(ctx, volumeFor(i)); err != nil {
					return err
				}
				for cycle := i; cycle < r.cycles; cycle += atOnce {
					if err := r.cycle(ctx, a, cycle); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return volumes.Wait()
	})
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return ctx.Err()
}

func volumeFor(i int) string { return fmt.Sprintf("volume-%03d", i%atOnce) }

func nodeFor(i int) string { return fmt.Sprintf("attach-%02d", i%volumeNodes) }

// newVolume creates a volume with its claim, and waits until they are bound.
func (r *run) newVolume(ctx context.Context, name string) error {
	size := v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	modes, class := []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, ""
	if err := objects.Create(ctx, r.client, volumesNamespace, &v1.PersistentVolumeClaim{
		ObjectMeta: objects.Named(name),
		Spec:       v1.PersistentVolumeClaimSpec{AccessModes: modes, VolumeName: name, StorageClassName: &class, Resources: v1.VolumeResourceRequirements{Requests: size}},
	}); err != nil {
		return err
	}
	if err := objects.Create(ctx, r.client, "", &v1.PersistentVolume{
		ObjectMeta: objects.Named(name),
		Spec: v1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimRetain,
			ClaimRef:               &v1.ObjectReference{Namespace: volumesNamespace, Name: name},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name}},
		},
	}); err != nil {
		return err
	}
	return r.await(ctx, "volume "+name, func(ctx context.Context) (bool, error) {
		claim, err := r.client.CoreV1().PersistentVolumeClaims(volumesNamespace).Get(ctx, name, metav1.GetOptions{})
		return err == nil && claim.Status.Phase == v1.ClaimBound, nil
	})
}

// cycle has a pod use a volume, and go.
func (r *run) cycle(ctx context.Context, a *attached, i int) error {
	volume, pods := volumeFor(i), r.client.CoreV1().Pods(volumesNamespace)
	pod := newPod(fmt.Sprintf("pod-%05d", i), nodeFor(i/atOnce+i))
	pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: volume}}}}
	if err := create(ctx, pods, pod); err != nil {
		return err
	}
	if err := until(ctx, a, volume, true); err != nil {
		return err
	}
	now := int64(0)
	if err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		return err
	}
	return until(ctx, a, volume, false)
}
