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
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/lru"
)

// siblingGroups is of how many controllers a Trimmer remembers a pod, each in about 1.5 KB if that
// pod is no longer cached. A list comes in the order of names, in which siblings are neighbors.
const siblingGroups = 4096

// A Trimmer is the transform of informers. It keeps of each pod its metadata and some groups of
// fields, and has pods that are alike share memory. Of Nodes, Secrets and ConfigMaps it drops what
// nobody reads. It keeps everything whole until it is told what to keep of pods.
type Trimmer struct {
	fields Fields
	// stored has the pods that the informer holds; it may be nil.
	stored cache.Store
	// siblings has the last pod of each controller, by its UID; of each namespace the last without
	// a controller, by its name; and the last of all, by "".
	siblings *lru.Cache
}

// NewTrimmer returns a Trimmer that keeps pods whole.
func NewTrimmer() *Trimmer {
	return &Trimmer{fields: All, siblings: lru.New(siblingGroups)}
}

// Keep sets what is kept of pods besides metadata. With All, other objects are whole, too: it is for
// controllers that are not known. stored, which may be nil, is the store of the informer of pods.
// Keep must be called before informers run.
func (t *Trimmer) Keep(fields Fields, stored cache.Store) {
	t.fields, t.stored = fields, stored
}

// Transform trims obj in place.
func (t *Trimmer) Transform(obj any) {
	if t.fields == All {
		return
	}
	pod, ok := obj.(*v1.Pod)
	if !ok {
		dropUnread(obj)
		return
	}
	// A second time, which comes in another order, the parts are those of the first.
	before := *pod
	t.fields.trim(pod)
	share(pod, &before)
	group := pod.Namespace
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		group = string(owner.UID)
	}
	if stored := t.storedAs(pod); stored != nil {
		share(pod, stored)
	}
	sibling, ok := t.siblings.Get(group)
	if !ok {
		sibling, ok = t.siblings.Get("")
	}
	if ok {
		share(pod, sibling.(*v1.Pod))
	}
	t.siblings.Add(group, pod)
	t.siblings.Add("", pod)
}

// storedAs returns the version of a pod that the informer holds, or nil.
func (t *Trimmer) storedAs(pod *v1.Pod) *v1.Pod {
	if t.stored == nil {
		return nil
	}
	obj, exists, err := t.stored.GetByKey(cache.MetaObjectToName(pod).String())
	if !exists || err != nil {
		return nil
	}
	return obj.(*v1.Pod)
}
