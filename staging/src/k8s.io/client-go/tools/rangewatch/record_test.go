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

package rangewatch

import (
	"fmt"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// record is an event handler. It checks that each event fits those before, and keeps their net
// effect.
type record struct {
	t       *testing.T
	mu      sync.Mutex
	pods    map[string]*v1.Pod
	events  []string
	deleted map[string]*v1.Pod
	// store is the informer's. lags is set while it is behind with its revision, and newest is the
	// latest revision that was told.
	store  cache.Store
	lags   bool
	newest uint64
	// lagged is how often the store has been behind.
	lagged int
	// restored says that the server was restored, so that objects become older.
	restored bool
}

// behind is told by the Source.
func (r *record) behind(is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if is == r.lags {
		r.t.Errorf("behind: told %t twice", is)
	}
	if r.lags = is; is {
		r.lagged++
	} else {
		r.reached("the end of a relist")
	}
}

// reached checks that the store is at the revision of what was told.
func (r *record) reached(what string) {
	if store, err := parseRevision(r.store.LastStoreSyncResourceVersion()); r.newest > 0 && (err != nil || store < r.newest) {
		r.t.Errorf("%s: told of @%d, and the store is at @%d, %v", what, r.newest, store, err)
	}
}

func (r *record) note(event string, pod *v1.Pod) {
	r.events = append(r.events, fmt.Sprintf("%s %s@%s", event, pod.Name, pod.ResourceVersion))
	if r.newest = max(r.newest, podRevision(r.t, pod)); !r.lags && r.store != nil {
		r.reached(r.events[len(r.events)-1])
	}
}

func (r *record) OnAdd(obj any, _ bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pod := obj.(*v1.Pod)
	r.note("add", pod)
	if old, ok := r.pods[pod.Name]; ok {
		r.t.Errorf("added twice: %s@%s, then @%s", pod.Name, old.ResourceVersion, pod.ResourceVersion)
	}
	r.pods[pod.Name] = pod
}

func (r *record) OnUpdate(oldObj, newObj any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old, pod := oldObj.(*v1.Pod), newObj.(*v1.Pod)
	if known := r.pods[pod.Name]; known != old {
		r.t.Errorf("update of %s from %v, but %v was told", pod.Name, old, known)
	}
	if !r.restored && podRevision(r.t, pod) < podRevision(r.t, old) {
		r.t.Errorf("update backwards: %s@%s, then @%s", pod.Name, old.ResourceVersion, pod.ResourceVersion)
	}
	if pod.ResourceVersion != old.ResourceVersion { // equal after a relist by the reflector
		r.note("update", pod)
	}
	r.pods[pod.Name] = pod
}

func (r *record) OnDelete(obj any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	pod := obj.(*v1.Pod)
	r.note("delete", pod)
	known := r.pods[pod.Name]
	switch {
	case known == nil:
		r.t.Errorf("deleted, but not told before: %s@%s", pod.Name, pod.ResourceVersion)
	case known.UID != pod.UID:
		r.t.Errorf("deleted as %s, told as %s: %s", pod.UID, known.UID, pod.Name)
	case podRevision(r.t, pod) < podRevision(r.t, known):
		r.t.Errorf("delete backwards: %s@%s, then @%s", pod.Name, known.ResourceVersion, pod.ResourceVersion)
	}
	delete(r.pods, pod.Name)
	if r.deleted == nil {
		r.deleted = map[string]*v1.Pod{}
	}
	r.deleted[pod.Name] = pod
}

// taken returns the events since the last call, as at writes them.
func (r *record) taken() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	return events
}

func podRevision(t *testing.T, pod *v1.Pod) uint64 {
	revision, err := parseRevision(pod.ResourceVersion)
	if err != nil {
		t.Error(err)
	}
	return revision
}

// at returns the notation of an event: "add NAME@REVISION".
func at(event, name string, revision uint64) string {
	return fmt.Sprintf("%s %s@%d", event, name, revision)
}
