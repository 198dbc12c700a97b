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

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
)

// ReadImages fills in the images of a cached Node from the API server if they were dropped when it
// was cached: then it must not be written. forget drops them again. A Node that is gone, or
// another's by now, is an error. Its resource version stays, so that what else has changed since it
// was cached is in conflict.
func ReadImages(ctx context.Context, client clientset.Interface, node *v1.Node) (forget func(), err error) {
	dropped := node.Status.Images
	if dropped == nil || len(dropped) > 0 {
		return func() {}, nil
	}
	now, err := client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if now.UID != node.UID {
		return nil, apierrors.NewNotFound(v1.Resource("nodes"), node.Name)
	}
	node.Status.Images = now.Status.Images
	return func() { node.Status.Images = dropped }, nil
}
