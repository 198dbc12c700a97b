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

package podtrim

import (
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/lru"
)

// siblingGroups is of how many controllers a Trimmer remembers a pod, each in about 1.5 KB if that
// pod is no longer cached. A list comes in the order of names, in which siblings are neighbors.
const siblingGroups = 4096

// A Trimmer is the transform of an informer of pods. It keeps of each pod its metadata and some
// groups of fields, and has pods that are alike share memory. It keeps pods whole until it is told
// what to keep.
type Trimmer struct {
	keeping atomic.Pointer[keeping]
	// siblings has the last pod of each controller, by its UID, and of each namespace the last
	// without a controller, by its name.
	siblings *lru.Cache
	// last is the last pod of all.
	last atomic.Pointer[v1.Pod]
}

type keeping struct {
	fields Fields
	// stored has the pods that the informer holds; it may be nil.
	stored cache.Store
}

// NewTrimmer returns a Trimmer that keeps pods whole.
func NewTrimmer() *Trimmer {
	return &Trimmer{siblings: lru.New(siblingGroups)}
}

// Keep sets what is kept of pods besides metadata. stored, which may be nil, is the store of the
// informer. It must be called before the informer runs.
func (t *Trimmer) Keep(fields Fields, stored cache.Store) {
	t.keeping.Store(&keeping{fields, stored})
}

// Transform trims obj in place if it is a pod. Everything else is left alone.
func (t *Trimmer) Transform(obj any) {
	pod, ok := obj.(*v1.Pod)
	keeping := t.keeping.Load()
	if !ok || keeping == nil || keeping.fields == All {
		return
	}
	// A second time, which comes in another order, the parts are those of the first.
	before := *pod
	keeping.fields.trim(pod)
	share(pod, &before)
	group := pod.Namespace
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		group = string(owner.UID)
	}
	if stored := keeping.storedAs(pod); stored != nil {
		share(pod, stored)
	}
	if sibling, ok := t.siblings.Get(group); ok {
		share(pod, sibling.(*v1.Pod))
	} else if last := t.last.Load(); last != nil {
		share(pod, last)
	}
	t.siblings.Add(group, pod)
	t.last.Store(pod)
}

// storedAs returns the version of a pod that the informer holds, or nil.
func (k *keeping) storedAs(pod *v1.Pod) *v1.Pod {
	if k.stored == nil {
		return nil
	}
	obj, exists, err := k.stored.GetByKey(cache.MetaObjectToName(pod).String())
	if !exists || err != nil {
		return nil
	}
	return obj.(*v1.Pod)
}
