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

package app

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/podtrim"
	controllerring "k8s.io/kubernetes/pkg/controller/ring"
)

// leaderInformers cuts what one set of shared informers holds to what the controllers read that are
// built on it. A nil one, which goes with the feature gate ControllerRing off, cuts nothing.
type leaderInformers struct {
	trimmer *podtrim.Trimmer
	// client may read all pods.
	client kubernetes.Interface
	// metadata has the informers for byMetadata.
	metadata metadatainformer.SharedInformerFactory
	// byMetadata are the resources of which nobody reads more than metadata.
	byMetadata sets.Set[schema.GroupResource]
}

// readByRings are resources that no controller but those of the rings reads whole. For all others
// that read them, the garbage collector and quotas, metadata is enough.
var readByRings = sets.New(
	appsv1.Resource("controllerrevisions"),
	appsv1.Resource("deployments"),
	appsv1.Resource("replicasets"),
	appsv1.Resource("statefulsets"),
	autoscalingv2.Resource("horizontalpodautoscalers"),
	batchv1.Resource("cronjobs"),
	batchv1.Resource("jobs"),
	policyv1.Resource("poddisruptionbudgets"),
	v1.Resource("replicationcontrollers"),
)

func newLeaderInformers(client kubernetes.Interface) *leaderInformers {
	if !utilfeature.DefaultFeatureGate.Enabled(genericfeatures.ControllerRing) {
		return nil
	}
	return &leaderInformers{trimmer: podtrim.NewTrimmer(), client: client}
}

// informerName returns another name for a set of informers where the usual one is taken: ring
// controllers that the leader runs may have informers of their own, beside those of the others.
func (i *leaderInformers) informerName(usual *cache.InformerName, err error) (*cache.InformerName, error) {
	if err != nil && i != nil {
		return cache.NewInformerName("kube-controller-manager-rings")
	}
	return usual, err
}

// transform drops what nobody reads of obj.
func (i *leaderInformers) transform(obj any) {
	if i != nil {
		i.trimmer.Transform(obj)
	}
}

// keepFor says which controllers will be built on the informers of c. It must come before they are.
// It fails if the informers cannot get what these need.
func (i *leaderInformers) keepFor(c ControllerContext, descriptors map[string]*ControllerDescriptor) error {
	if i == nil {
		return nil
	}
	i.byMetadata = readByRings
	var enabled []string
	for name, descriptor := range descriptors {
		if !c.IsControllerEnabled(descriptor) {
			continue
		}
		enabled = append(enabled, name)
		if ringOf(name) != "" {
			i.byMetadata = nil
		}
	}
	fields := podtrim.ReadBy(enabled...)
	var stored cache.Store
	if fields != 0 && fields != podtrim.All {
		// Otherwise perhaps nobody wants pods, and no informer of theirs must be made here.
		stored = c.InformerFactory.Core().V1().Pods().Informer().GetStore()
	}
	i.trimmer.Keep(fields, stored)
	if slices.Contains(enabled, names.TaintEvictionController) {
		// It finds the pods of a Node by an index that it does not add itself: in stock the DaemonSet
		// controller does, and node-lifecycle-controller, which may be off.
		return controller.AddPodNodeNameIndexer(c.InformerFactory.Core().V1().Pods().Informer())
	}
	return nil
}

// wholePods returns an informer of pods whose lister finds them whole.
func (i *leaderInformers) wholePods(ctx context.Context, cached coreinformers.PodInformer) coreinformers.PodInformer {
	if i == nil {
		return cached
	}
	return podtrim.Live(ctx, cached, i.client)
}

// generic returns generic with informers of metadata for byMetadata, and with handlers that hear of
// an object that was made anew under its name during a relist as of another. Else the garbage
// collector never hears that the first one has gone, and keeps its dependents.
func (i *leaderInformers) generic(generic informerfactory.InformerFactory, metadata metadatainformer.SharedInformerFactory) informerfactory.InformerFactory {
	if i == nil {
		return generic
	}
	i.metadata = metadata
	return metadataFirst{generic, i.counting(generic.ForResource)}
}

// counting returns forResource with informers of metadata for byMetadata.
func (i *leaderInformers) counting(forResource forResource) forResource {
	if i == nil {
		return forResource
	}
	return func(resource schema.GroupVersionResource) (informers.GenericInformer, error) {
		if i.byMetadata.Has(resource.GroupResource()) {
			return i.metadata.ForResource(resource), nil
		}
		return forResource(resource)
	}
}

type forResource = func(schema.GroupVersionResource) (informers.GenericInformer, error)

// metadataFirst is an informer factory with another ForResource.
type metadataFirst struct {
	informerfactory.InformerFactory
	forResource forResource
}

func (f metadataFirst) ForResource(resource schema.GroupVersionResource) (informers.GenericInformer, error) {
	informer, err := f.forResource(resource)
	if err != nil {
		return nil, err
	}
	return byUID{informer}, nil
}

// byUID is an informer by the UIDs of its objects.
type byUID struct{ informers.GenericInformer }

// Informer implements informers.GenericInformer.
func (i byUID) Informer() cache.SharedIndexInformer {
	return controllerring.ByUID(i.GenericInformer.Informer())
}
