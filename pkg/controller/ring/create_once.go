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
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
)

const (
	// createOnceRetry is the time to wait before a creation of unknown outcome is sent again.
	createOnceRetry = 100 * time.Millisecond
	// createOnceAbsent is how often in a row a pod may be said to exist and not be there.
	createOnceAbsent = 3
)

// createOnce is a client that creates a pod once even if the answer gets lost. Otherwise
// the controller would take the creation for a failure, and create another pod before its
// cache shows the first. The client chooses the name, not the server, and sends a creation
// of unknown outcome again under the same name until an answer settles it. It gives up when
// the gate has shut: the next owner finds out for itself.
type createOnce struct {
	kubernetes.Interface
	gate Gate
}

// CoreV1 implements kubernetes.Interface.
func (c createOnce) CoreV1() corev1.CoreV1Interface {
	return createOnceCore{c.Interface.CoreV1(), c.gate}
}

type createOnceCore struct {
	corev1.CoreV1Interface
	gate Gate
}

// Pods implements corev1.PodsGetter.
func (c createOnceCore) Pods(namespace string) corev1.PodInterface {
	return createOncePods{c.CoreV1Interface.Pods(namespace), c.gate}
}

type createOncePods struct {
	corev1.PodInterface
	gate Gate
}

// Create implements corev1.PodInterface for pods that have a controller and no name.
func (c createOncePods) Create(ctx context.Context, pod *v1.Pod, options metav1.CreateOptions) (*v1.Pod, error) {
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
		select {
		case <-time.After(createOnceRetry):
		case <-ctx.Done():
		}
		if ctx.Err() != nil || !c.gate.Serves(metav1.HashKeyOfOwner(owner)) {
			return nil, err
		}
	}
}

// Refused says whether the server has answered that it will not carry out the request.
func Refused(err error) bool {
	return apierrors.ReasonForError(err) != metav1.StatusReasonUnknown && !serverFailed(err)
}

// serverFailed says whether the server has answered that it failed, before or after it
// stored the pod.
func serverFailed(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= http.StatusInternalServerError
}
