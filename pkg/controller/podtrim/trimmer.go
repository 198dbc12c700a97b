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
	"reflect"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/siblings"
)

// A Trimmer is the transform of informers. It keeps of each pod its metadata and some groups of
// fields, and has pods that are alike share memory. Of Nodes, Secrets and ConfigMaps it drops what
// nobody reads. It keeps everything whole until it is told what to keep of pods.
type Trimmer struct {
	fields Fields
	pods   *siblings.Sharer[v1.Pod]
}

// NewTrimmer returns a Trimmer that keeps pods whole.
func NewTrimmer() *Trimmer {
	return &Trimmer{fields: All}
}

// Keep sets what is kept of pods besides metadata. With All, other objects are whole, too: it is
// for controllers that are not known. stored, which may be nil, is the store of the informer of
// pods. Keep must be called before informers run.
func (t *Trimmer) Keep(fields Fields, stored cache.Store) {
	t.fields, t.pods = fields, siblings.NewSharer[v1.Pod](stored)
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
	trimmed := *pod
	t.fields.trim(&trimmed)
	if reflect.DeepEqual(&trimmed, pod) {
		// It comes a second time, from an informer that has listed by a watch, and shares already.
		return
	}
	*pod = trimmed
	t.pods.Share(pod)
}
