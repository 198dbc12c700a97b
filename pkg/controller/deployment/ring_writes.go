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
	"fmt"
	"maps"
	"slices"
	"sync"

	apps "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	appsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/ring"
	"k8s.io/kubernetes/pkg/controller/util/consistency"
)

// writes is a client that notes how far the caches have to be before a Deployment is synced
// again: as far as what was last written to its ReplicaSets. A rollout that counts old sizes breaks
// its limits.
type writes struct {
	kubernetes.Interface
	noted *consistency.RealConsistencyStore

	lock sync.Mutex
	// doubts are the writes that were not answered, by Deployment and ReplicaSet.
	doubts map[types.NamespacedName]map[string]*doubt
}

// doubtFailed is how often the server may answer that it failed where a write is in doubt.
const doubtFailed = 10

// doubt is a write that was not answered. A server may carry it out at any later time, so it is
// sent again until an answer settles it: then the first one changes nothing any more.
type doubt struct {
	owner types.UID
	again func(context.Context) (*apps.ReplicaSet, error)
	// failed is how often the server has answered that it failed.
	failed int
}

func newWrites(client kubernetes.Interface, replicaSets cache.Store) *writes {
	return &writes{
		Interface: client,
		noted:     consistency.NewConsistencyStore(map[schema.GroupResource]consistency.LastSyncRVGetter{apps.Resource("replicasets"): replicaSets}),
		doubts:    map[types.NamespacedName]map[string]*doubt{},
	}
}

// seen returns an error while the caches lack what was written for the Deployment of that name.
func (w *writes) seen(ctx context.Context, key string) error {
	object, err := cache.ParseObjectName(key)
	if err != nil {
		return err
	}
	d := object.AsNamespacedName()
	w.lock.Lock()
	doubts := slices.Sorted(maps.Keys(w.doubts[d]))
	w.lock.Unlock()
	for _, name := range doubts {
		if err := w.settle(ctx, d, name); err != nil {
			return fmt.Errorf("what became of a write of ReplicaSet %s/%s is not known: %w", d.Namespace, name, err)
		}
	}
	return w.noted.EnsureReady(d)
}

// settle settles what has become of a write of that ReplicaSet, and notes it.
func (w *writes) settle(ctx context.Context, d types.NamespacedName, name string) error {
	w.lock.Lock()
	doubt := w.doubts[d][name]
	w.lock.Unlock()
	if doubt == nil {
		return nil
	}
	rs, err := doubt.again(ctx)
	if err != nil {
		if !ring.Refused(err) {
			if apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
				doubt.failed++
			}
			if doubt.failed < doubtFailed {
				return err
			}
		}
		rs, err = w.Interface.AppsV1().ReplicaSets(d.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	if err == nil {
		w.note(rs)
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	if delete(w.doubts[d], name); len(w.doubts[d]) == 0 {
		delete(w.doubts, d)
	}
	return nil
}

// forget forgets what was written for a Deployment.
func (w *writes) forget(name cache.ObjectName, uid types.UID) {
	d := name.AsNamespacedName()
	w.noted.Clear(d, uid)
	w.lock.Lock()
	defer w.lock.Unlock()
	maps.DeleteFunc(w.doubts[d], func(_ string, doubt *doubt) bool { return uid == "" || doubt.owner == uid })
	if len(w.doubts[d]) == 0 {
		delete(w.doubts, d)
	}
}

// note notes that a Deployment's ReplicaSet was written.
func (w *writes) note(rs *apps.ReplicaSet) {
	if owner := metav1.GetControllerOfNoCopy(rs); owner != nil {
		w.noted.WroteAt(types.NamespacedName{Namespace: rs.Namespace, Name: owner.Name}, owner.UID, apps.Resource("replicasets"), rs.ResourceVersion)
	}
}

// write sends a write of sent, and notes what has become of it, by its answer.
func (w *writes) write(ctx context.Context, sent *apps.ReplicaSet, write func(context.Context, *apps.ReplicaSet) (*apps.ReplicaSet, error)) (*apps.ReplicaSet, error) {
	answer, err := write(ctx, sent)
	switch owner := metav1.GetControllerOfNoCopy(sent); {
	case err == nil:
		w.note(answer)
	case owner != nil && !ring.Refused(err):
		d := types.NamespacedName{Namespace: sent.Namespace, Name: owner.Name}
		w.lock.Lock()
		defer w.lock.Unlock()
		if w.doubts[d] == nil {
			w.doubts[d] = map[string]*doubt{}
		}
		sent = sent.DeepCopy()
		w.doubts[d][sent.Name] = &doubt{owner: owner.UID, again: func(ctx context.Context) (*apps.ReplicaSet, error) { return write(ctx, sent) }}
	}
	return answer, err
}

// AppsV1 implements kubernetes.Interface.
func (w *writes) AppsV1() appsv1.AppsV1Interface { return notedApps{w.Interface.AppsV1(), w} }

type notedApps struct {
	appsv1.AppsV1Interface
	writes *writes
}

// ReplicaSets implements appsv1.ReplicaSetsGetter.
func (c notedApps) ReplicaSets(namespace string) appsv1.ReplicaSetInterface {
	return notedReplicaSets{c.AppsV1Interface.ReplicaSets(namespace), c.writes}
}

type notedReplicaSets struct {
	appsv1.ReplicaSetInterface
	writes *writes
}

// Create implements appsv1.ReplicaSetInterface.
func (c notedReplicaSets) Create(ctx context.Context, rs *apps.ReplicaSet, options metav1.CreateOptions) (*apps.ReplicaSet, error) {
	return c.writes.write(ctx, rs, func(ctx context.Context, rs *apps.ReplicaSet) (*apps.ReplicaSet, error) {
		return c.ReplicaSetInterface.Create(ctx, rs, options)
	})
}

// Update implements appsv1.ReplicaSetInterface.
func (c notedReplicaSets) Update(ctx context.Context, rs *apps.ReplicaSet, options metav1.UpdateOptions) (*apps.ReplicaSet, error) {
	return c.writes.write(ctx, rs, func(ctx context.Context, rs *apps.ReplicaSet) (*apps.ReplicaSet, error) {
		return c.ReplicaSetInterface.Update(ctx, rs, options)
	})
}
