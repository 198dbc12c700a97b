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

package ringtable

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	shardinglisters "k8s.io/client-go/listers/sharding/v1alpha1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
)

// Follower watches the instances of a cluster and, where pods are to be counted, its ReplicaSets.
type Follower struct {
	instances shardinglisters.ControllerInstanceLister
	// replicaSets is nil where pods are not counted.
	replicaSets appslisters.ReplicaSetLister
	// changed holds a value once any of them has changed.
	changed chan struct{}
}

// Follow returns a Follower that has listed all objects, and watches them until ctx
// ends: the instances and, with count, all ReplicaSets. It fails if the cluster does not serve the
// resources or forbids reading them.
func Follow(ctx context.Context, client kubernetes.Interface, count bool) (*Follower, error) {
	// An informer would retry forever and log each failure.
	if _, err := client.ShardingV1alpha1().ControllerInstances().List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return nil, explain(err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(trim))
	f := &Follower{instances: factory.Sharding().V1alpha1().ControllerInstances().Lister(), changed: make(chan struct{}, 1)}
	followed := []cache.SharedIndexInformer{factory.Sharding().V1alpha1().ControllerInstances().Informer()}
	if count {
		if _, err := client.AppsV1().ReplicaSets("").List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			return nil, err
		}
		f.replicaSets = factory.Apps().V1().ReplicaSets().Lister()
		followed = append(followed, factory.Apps().V1().ReplicaSets().Informer())
	}
	changed := func() {
		select {
		case f.changed <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	}
	for _, informer := range followed {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return nil, err
		}
	}
	factory.StartWithContext(ctx)
	if err := factory.WaitForCacheSyncWithContext(ctx).Err; err != nil {
		return nil, err
	}
	return f, nil
}

// Get returns the ring of that name as it is now. Pods are not counted.
func Get(ctx context.Context, client kubernetes.Interface, name string) (*Ring, error) {
	rings, err := List(ctx, client, name)
	if err != nil {
		return nil, err
	}
	return rings[0], nil
}

// List returns the rings of these names as they are now. Without names, it returns those of
// kube-controller-manager, whether or not they have instances, and all others that have, in order
// of name. Pods are not counted.
func List(ctx context.Context, client kubernetes.Interface, names ...string) ([]*Ring, error) {
	list, err := client.ShardingV1alpha1().ControllerInstances().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, explain(err)
	}
	var instances []*shardingv1alpha1.ControllerInstance
	for i := range list.Items {
		makePrintable(&list.Items[i])
		instances = append(instances, &list.Items[i])
	}
	if len(names) == 0 {
		names = Names(instances)
		for _, described := range catalogue.Rings() {
			names = append(names, described.Name)
		}
		slices.Sort(names)
		names = slices.Compact(names)
	}
	var rings []*Ring
	for _, name := range names {
		r, err := Of(name, instances, nil)
		if err != nil {
			return nil, err
		}
		rings = append(rings, r)
	}
	return rings, nil
}

// explain says what it means that a cluster has no ControllerInstances.
func explain(err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the cluster serves no controllerinstances.%s: it does not run this fork, or the feature gate ControllerRing is off (%w)", shardingv1alpha1.GroupName, err)
	}
	return err
}

// trim drops the fields that no table shows, and makes texts printable. Most of a ReplicaSet is its
// pod template.
func trim(object any) (any, error) {
	switch o := object.(type) {
	case *appsv1.ReplicaSet:
		o.ManagedFields, o.Annotations = nil, nil
		o.Spec.Template = corev1.PodTemplateSpec{}
	case *shardingv1alpha1.ControllerInstance:
		makePrintable(o)
	}
	return object, nil
}

// Ring returns the ring of that name as it is now.
func (f *Follower) Ring(name string) (*Ring, error) {
	instances, err := f.instances.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	var replicaSets []*appsv1.ReplicaSet
	if f.replicaSets != nil {
		if replicaSets, err = f.replicaSets.List(labels.Everything()); err != nil {
			return nil, err
		}
		if replicaSets == nil {
			replicaSets = []*appsv1.ReplicaSet{}
		}
	}
	return Of(name, instances, replicaSets)
}

// Names returns the names of the rings that have instances, in order.
func (f *Follower) Names() ([]string, error) {
	instances, err := f.instances.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	return Names(instances), nil
}

// Each calls look at once, then after each change, at most once per interval. Without
// changes it calls look every second, because the table shows ages. It returns when
// look is done or fails, and with the error of ctx when that ends.
func (f *Follower) Each(ctx context.Context, interval time.Duration, look func() (done bool, err error)) error {
	for {
		if done, err := look(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(interval):
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.changed:
		case <-time.After(max(0, time.Second-interval)):
		}
	}
}
