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
	"errors"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/klog/v2"
)

const (
	// onceRetry is the time to wait before a request of unknown outcome is sent again.
	onceRetry = 100 * time.Millisecond
	// createOnceAbsent is how often in a row a pod may be said to exist and not be there.
	createOnceAbsent = 3
	// deleteOnceRefused is how often the server may answer that it failed, or refuse to delete a pod
	// of which it is unknown whether it was deleted.
	deleteOnceRefused = 10
)

// once is a client that creates and deletes a pod once even if the answer gets lost. Otherwise
// the controller would take the request for a failure, and create or delete another pod before
// its cache shows what became of the first. The client chooses the names of pods, not the server,
// and sends a request of unknown outcome again for the same pod until an answer settles it. It
// gives up when the gate has shut: the next owner finds out for itself.
type once struct {
	kubernetes.Interface
	gate Gate
	// pods are those that the controller reads, and path is that of their keys; nil: it reads none.
	pods cache.Store
	path sharding.KeyPath
}

// CoreV1 implements kubernetes.Interface.
func (c once) CoreV1() corev1.CoreV1Interface { return onceCore{c.Interface.CoreV1(), c} }

type onceCore struct {
	corev1.CoreV1Interface
	client once
}

// Pods implements corev1.PodsGetter.
func (c onceCore) Pods(namespace string) corev1.PodInterface {
	return oncePods{c.CoreV1Interface.Pods(namespace), c.client, namespace}
}

type oncePods struct {
	corev1.PodInterface
	client    once
	namespace string
}

// Create implements corev1.PodInterface for pods that have a controller and no name.
func (c oncePods) Create(ctx context.Context, pod *v1.Pod, options metav1.CreateOptions) (*v1.Pod, error) {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || pod.Name != "" || pod.GenerateName == "" {
		return c.PodInterface.Create(ctx, pod, options)
	}
	pod = pod.DeepCopy()
	pod.Name = names.SimpleNameGenerator.GenerateName(pod.GenerateName)
	absent := 0
	for unknown := false; ; {
		created, err := c.PodInterface.Create(ctx, pod, options)
		if err == nil {
			return created, nil
		}
		exists, failed := apierrors.IsAlreadyExists(err), serverFailed(err)
		if Refused(err) && !exists && !unknown {
			return nil, err
		}
		if Refused(err) || failed {
			// The server has answered. The pods show what became of earlier attempts, and
			// of this one if the server failed. The controller may list pods, but not get them.
			found, listErr := c.PodInterface.List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", pod.Name).String()})
			switch {
			case listErr != nil:
				// A server that has just started may refuse even the list.
			case len(found.Items) == 0 && !exists:
				return nil, err
			case len(found.Items) == 0:
				// The pod is gone again, or a webhook has said of something else that it exists.
				if absent++; absent == createOnceAbsent {
					return nil, err
				}
			case (unknown || failed) && metav1.IsControlledBy(&found.Items[0], &metav1.ObjectMeta{UID: owner.UID}):
				return &found.Items[0], nil
			default:
				// Another owner's pod has the name.
				pod.Name = names.SimpleNameGenerator.GenerateName(pod.GenerateName)
				unknown = false
				continue
			}
		}
		unknown = true
		klog.FromContext(ctx).V(2).Info("No answer to the creation of a pod; trying again under the same name", "pod", klog.KObj(pod), "err", err)
		if !c.client.again(ctx, metav1.HashKeyOfOwner(owner)) {
			return nil, err
		}
	}
}

// Delete implements corev1.PodInterface. A pod that the controller does not read is deleted by a
// single request.
func (c oncePods) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	pod, key := c.client.read(c.namespace, name)
	refused := 0
	for unknown := false; ; unknown = true {
		err := c.PodInterface.Delete(ctx, name, options)
		switch {
		case err == nil, pod == nil, fence.IsFenced(err):
			return err
		case apierrors.IsNotFound(err):
			// An earlier attempt has deleted it. While the cache has it, its end is still to be told of.
			if held, _ := c.client.read(c.namespace, name); unknown && held != nil && held.UID == pod.UID {
				return nil
			}
			return err
		case Refused(err) && !unknown, Refused(err) && apierrors.IsConflict(err):
			return err
		case Refused(err), serverFailed(err):
			if refused++; refused == deleteOnceRefused {
				return err
			}
		}
		klog.FromContext(ctx).V(2).Info("No answer to the deletion of a pod; trying again", "pod", klog.KRef(c.namespace, name), "err", err)
		if options.Preconditions == nil {
			// Another of that name is not meant.
			options.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
		}
		if !c.client.again(ctx, key) {
			return err
		}
	}
}

// again waits until a request of unknown outcome is to be sent again, and says whether it still is:
// neither has ctx ended, nor has the gate shut for key.
func (c once) again(ctx context.Context, key int64) bool {
	select {
	case <-time.After(onceRetry):
	case <-ctx.Done():
	}
	return ctx.Err() == nil && c.gate.Serves(key)
}

// read returns a pod that the controller reads, and its key; nil if the cache has none of that
// name.
func (c once) read(namespace, name string) (*v1.Pod, int64) {
	if c.pods == nil {
		return nil, 0
	}
	found, _, err := c.pods.GetByKey(cache.NewObjectName(namespace, name).String())
	pod, ok := found.(*v1.Pod)
	if err != nil || !ok {
		return nil, 0
	}
	key, has, err := c.path.KeyOf(pod)
	if err != nil || !has {
		return nil, 0
	}
	return pod, key
}

// Refused says whether the server has answered that it will not carry out the request.
func Refused(err error) bool {
	return apierrors.ReasonForError(err) != metav1.StatusReasonUnknown && !serverFailed(err)
}

// serverFailed says whether the server has answered that it failed, before or after it
// carried out the request.
func serverFailed(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= http.StatusInternalServerError
}
