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
	"sync"

	"golang.org/x/sync/errgroup"

	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

const (
	volumesNamespace = "volumes"
	driver           = "csi.example.com"
	// volumeNodes is the number of nodes to which volumes are attached, and atOnce that of the
	// volumes that go through their cycles at the same time.
	volumeNodes = 20
	atOnce      = 250
)

// attacher does what a CSI driver's attacher does: it says that what is to be attached is.
type attacher struct {
	lock sync.Mutex
	// attached has the volumes that are attached.
	attached map[string]bool
	// changed is closed and replaced after each change.
	changed chan struct{}
}

func (a *attacher) set(volume string, attached bool) {
	a.lock.Lock()
	defer a.lock.Unlock()
	if attached {
		a.attached[volume] = true
	} else {
		delete(a.attached, volume)
	}
	close(a.changed)
	a.changed = make(chan struct{})
}

// until waits until a volume is attached, or is not.
func (a *attacher) until(ctx context.Context, volume string, attached bool) error {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	for {
		a.lock.Lock()
		is, changed := a.attached[volume], a.changed
		a.lock.Unlock()
		if is == attached {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s is attached (%v): %w", volume, attached, context.Cause(ctx))
		}
	}
}

// attach attaches what is to be attached, until ctx ends.
func (r *run) attach(ctx context.Context, a *attacher) error {
	attachments := r.client.StorageV1().VolumeAttachments()
	group, ctx := errgroup.WithContext(ctx)
	take := func(obj any) {
		attachment := obj.(*storage.VolumeAttachment)
		if attachment.Status.Attached {
			a.set(*attachment.Spec.Source.PersistentVolumeName, true)
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
		UpdateFunc: func(_, obj any) { a.set(*obj.(*storage.VolumeAttachment).Spec.Source.PersistentVolumeName, true) },
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			a.set(*obj.(*storage.VolumeAttachment).Spec.Source.PersistentVolumeName, false)
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
	if _, err := r.client.StorageV1().CSIDrivers().Create(ctx, &storage.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driver}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	for i := range volumeNodes {
		if err := r.newNode(ctx, nodeFor(i)); err != nil {
			return err
		}
		if _, err := r.client.StorageV1().CSINodes().Create(ctx, &storage.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: nodeFor(i)},
			Spec:       storage.CSINodeSpec{Drivers: []storage.CSINodeDriver{{Name: driver, NodeID: nodeFor(i)}}},
		}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	working, end := context.WithCancel(ctx)
	defer end()
	group, working := errgroup.WithContext(working)
	group.Go(func() error { return r.keepAlive(working, func(string) bool { return true }) })
	a := &attacher{attached: map[string]bool{}, changed: make(chan struct{})}
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
	claims := r.client.CoreV1().PersistentVolumeClaims(volumesNamespace)
	if _, err := claims.Create(ctx, &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.PersistentVolumeClaimSpec{AccessModes: modes, VolumeName: name, StorageClassName: &class, Resources: v1.VolumeResourceRequirements{Requests: size}},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := r.client.CoreV1().PersistentVolumes().Create(ctx, &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimRetain,
			ClaimRef:               &v1.ObjectReference{Namespace: volumesNamespace, Name: name},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name}},
		},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	return r.await(ctx, "volume "+name, func(ctx context.Context) (bool, error) {
		claim, err := claims.Get(ctx, name, metav1.GetOptions{})
		return err == nil && claim.Status.Phase == v1.ClaimBound, nil
	})
}

// cycle has a pod use a volume, and go.
func (r *run) cycle(ctx context.Context, a *attacher, i int) error {
	volume, pods := volumeFor(i), r.client.CoreV1().Pods(volumesNamespace)
	pod := newPod(fmt.Sprintf("pod-%05d", i), nodeFor(i/atOnce+i))
	pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: volume}}}}
	if err := create(ctx, pods, pod); err != nil {
		return err
	}
	if err := a.until(ctx, volume, true); err != nil {
		return err
	}
	now := int64(0)
	if err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		return err
	}
	return a.until(ctx, volume, false)
}
