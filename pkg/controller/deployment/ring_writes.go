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

package deployment

import (
	"context"

	apps "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	appsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/util/consistency"
)

// writes has how far the caches have to be before a Deployment is synced again: as far as what
// was last written to its ReplicaSets. A rollout that counts old sizes breaks its limits.
type writes struct {
	*consistency.RealConsistencyStore
}

func newWrites(replicaSets cache.Store) writes {
	return writes{consistency.NewConsistencyStore(map[schema.GroupResource]consistency.LastSyncRVGetter{apps.Resource("replicasets"): replicaSets})}
}

// seen returns an error while the caches lack what was written for the Deployment of that name.
func (w writes) seen(key string) error {
	name, err := cache.ParseObjectName(key)
	if err != nil {
		return err
	}
	return w.EnsureReady(name.AsNamespacedName())
}

// forget forgets what was written for a Deployment.
func (w writes) forget(name cache.ObjectName, uid types.UID) { w.Clear(name.AsNamespacedName(), uid) }

// note notes that a Deployment's ReplicaSet was written.
func (w writes) note(rs *apps.ReplicaSet) {
	if owner := metav1.GetControllerOfNoCopy(rs); owner != nil {
		w.WroteAt(types.NamespacedName{Namespace: rs.Namespace, Name: owner.Name}, owner.UID, apps.Resource("replicasets"), rs.ResourceVersion)
	}
}

// noted returns client, but what is written to ReplicaSets with it is noted.
func (w writes) noted(client kubernetes.Interface) kubernetes.Interface { return noted{client, w} }

type noted struct {
	kubernetes.Interface
	writes writes
}

// AppsV1 implements kubernetes.Interface.
func (c noted) AppsV1() appsv1.AppsV1Interface { return notedApps{c.Interface.AppsV1(), c.writes} }

type notedApps struct {
	appsv1.AppsV1Interface
	writes writes
}

// ReplicaSets implements appsv1.ReplicaSetsGetter.
func (c notedApps) ReplicaSets(namespace string) appsv1.ReplicaSetInterface {
	return notedReplicaSets{c.AppsV1Interface.ReplicaSets(namespace), c.writes}
}

type notedReplicaSets struct {
	appsv1.ReplicaSetInterface
	writes writes
}

// Create implements appsv1.ReplicaSetInterface.
func (c notedReplicaSets) Create(ctx context.Context, rs *apps.ReplicaSet, options metav1.CreateOptions) (*apps.ReplicaSet, error) {
	created, err := c.ReplicaSetInterface.Create(ctx, rs, options)
	if err == nil {
		c.writes.note(created)
	}
	return created, err
}

// Update implements appsv1.ReplicaSetInterface.
func (c notedReplicaSets) Update(ctx context.Context, rs *apps.ReplicaSet, options metav1.UpdateOptions) (*apps.ReplicaSet, error) {
	updated, err := c.ReplicaSetInterface.Update(ctx, rs, options)
	if err == nil {
		c.writes.note(updated)
	}
	return updated, err
}
