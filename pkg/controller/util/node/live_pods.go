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
	"k8s.io/apimachinery/pkg/fields"
	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	utilpod "k8s.io/kubernetes/pkg/api/v1/pod"
)

// readBeforeWrite returns, of the cached pods on a node, those that are ready or may be, as the API
// server has them: a cached pod may have been trimmed, and then it must not be written. Pods that
// are gone are left out. With the feature gate ControllerRing off nothing is trimmed, and the
// cached pods are returned as they are.
func readBeforeWrite(ctx context.Context, client clientset.Interface, cached []*v1.Pod, nodeName string) ([]*v1.Pod, error) {
	if !utilfeature.DefaultFeatureGate.Enabled(genericfeatures.ControllerRing) {
		return cached, nil
	}
	var maybeReady []*v1.Pod
	for _, pod := range cached {
		_, ready := utilpod.GetPodCondition(&pod.Status, v1.PodReady)
		if pod.Spec.NodeName == nodeName && ready != nil && ready.Status != v1.ConditionFalse {
			maybeReady = append(maybeReady, pod)
		}
	}
	read := map[cache.ObjectName]*v1.Pod{}
	switch len(maybeReady) {
	case 0:
	case 1:
		pod, err := client.CoreV1().Pods(maybeReady[0].Namespace).Get(ctx, maybeReady[0].Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if err == nil {
			read[cache.MetaObjectToName(pod)] = pod
		}
	default:
		// One list instead of a read of each: the client has a rate, which the writes need.
		list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("spec.nodeName", nodeName).String(),
		})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			read[cache.MetaObjectToName(&list.Items[i])] = &list.Items[i]
		}
	}
	var pods []*v1.Pod
	for _, pod := range maybeReady {
		if now := read[cache.MetaObjectToName(pod)]; now != nil && now.UID == pod.UID {
			// What has changed since it was cached is in conflict: the Node may be ready by now.
			now.ResourceVersion = pod.ResourceVersion
			pods = append(pods, now)
		}
	}
	return pods, nil
}
