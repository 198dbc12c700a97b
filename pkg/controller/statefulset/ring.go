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

package statefulset

import (
	"context"
	"slices"
	"strconv"
	"strings"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/ring"
	"k8s.io/kubernetes/pkg/controller/statefulset/metrics"
)

// OnRing returns a StatefulSet controller that shares the namespaces with others.
func OnRing(ctx context.Context, env *ring.Env) (*ring.Controller, error) {
	return newOnRing(ctx, env).putOnRing(env)
}

func newOnRing(ctx context.Context, env *ring.Env) *StatefulSetController {
	core, apps := env.Informers.Core().V1(), env.Informers.Apps().V1()
	return NewStatefulSetController(ctx, core.Pods(), apps.StatefulSets(), core.PersistentVolumeClaims(), apps.ControllerRevisions(), env.Client)
}

// putOnRing puts the controller, which was built from env, behind its gate.
func (ssc *StatefulSetController) putOnRing(env *ring.Env) (*ring.Controller, error) {
	core, apps := env.Informers.Core().V1(), env.Informers.Apps().V1()
	for _, dependents := range []cache.SharedIndexInformer{core.Pods().Informer(), apps.ControllerRevisions().Informer()} {
		if _, err := dependents.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: ssc.queueSuccessor}); err != nil {
			return nil, err
		}
	}
	if _, err := core.PersistentVolumeClaims().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: ssc.queueClaimant}); err != nil {
		return nil, err
	}
	return ring.New(env, ring.Config[string]{
		Queue: &ssc.queue, Item: ring.Named, Name: ring.Named, Work: ssc.processNextWorkItem, Run: ssc.Run, Steady: true,
		Forget: func(name cache.ObjectName, uid types.UID) {
			ssc.consistencyStore.Clear(name.AsNamespacedName(), uid)
			forgetMetrics(name)
		},
	})
}

// forgetMetrics takes back what this instance has told of a StatefulSet. Its next owner tells it.
func forgetMetrics(name cache.ObjectName) {
	for _, policy := range []apps.PodManagementPolicyType{apps.OrderedReadyPodManagement, apps.ParallelPodManagement} {
		metrics.UnavailableReplicas.DeleteLabelValues(name.Namespace, name.Name, string(policy))
		metrics.MaxUnavailable.DeleteLabelValues(name.Namespace, name.Name, string(policy))
	}
}

// queueClaimant queues a StatefulSet when a claim with a name for one of its pods is gone: while it
// was being deleted the pod could not be made.
func (ssc *StatefulSetController) queueClaimant(obj any) {
	claim, ok := lastState(obj).(*v1.PersistentVolumeClaim)
	if !ok {
		return
	}
	sets, err := ssc.setLister.StatefulSets(claim.Namespace).List(labels.Everything())
	if err != nil {
		return
	}
	for _, set := range sets {
		if claims(set, claim.Name) {
			ssc.queue.Add(cache.MetaObjectToName(set).String())
		}
	}
}

// claims says whether a pod of the StatefulSet has a claim of that name.
func claims(set *apps.StatefulSet, name string) bool {
	ordinal, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	return err == nil && slices.ContainsFunc(set.Spec.VolumeClaimTemplates, func(template v1.PersistentVolumeClaim) bool {
		return getPersistentVolumeClaimName(set, &template, ordinal) == name
	})
}

// queueSuccessor queues a StatefulSet that was made anew under its name when a pod or a revision of
// its predecessor's is gone: it may have been in the way, as its name follows from the
// StatefulSet's. The controller itself only tries again after ever longer pauses, or not at all.
func (ssc *StatefulSetController) queueSuccessor(obj any) {
	dependent, err := meta.Accessor(lastState(obj))
	if err != nil {
		return
	}
	owner := metav1.GetControllerOfNoCopy(dependent)
	if owner == nil || owner.Kind != controllerKind.Kind {
		return
	}
	if set, err := ssc.setLister.StatefulSets(dependent.GetNamespace()).Get(owner.Name); err == nil && set.UID != owner.UID {
		ssc.queue.Add(cache.MetaObjectToName(set).String())
	}
}

// lastState returns the last known state of what an informer says is gone.
func lastState(obj any) any {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return tombstone.Obj
	}
	return obj
}
