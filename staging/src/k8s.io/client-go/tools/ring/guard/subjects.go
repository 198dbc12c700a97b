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

package guard

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Subjects are the objects that a controller works on, by name as a store has it. As a store they
// show a sync only what has passed the gate: an object that is made anew under the same name may
// have another key. All methods may be called from any goroutine; the fields are set before the
// first call of one.
type Subjects struct {
	// Indexer has the objects.
	cache.Indexer
	// Queue queues the object of that name. Required.
	Queue func(name string)
	// Forget forgets the controller's work on an object. Default: it remembers nothing.
	Forget func(name string, uid types.UID)
	// Enqueue queues an object if the controller has work on it. Default: it has on all.
	Enqueue func(any)
	// Steady says that nothing begins while an informer is behind. Default: it does.
	Steady bool

	gate Gate
	path sharding.KeyPath
	// byNamespace says that the path gives all of a namespace one key. Then a name alone tells
	// the key, and the caches have all of a namespace whose key the gate is open for, or none.
	byNamespace bool

	lock sync.Mutex
	// known has what has been worked on since the gate was opened for it.
	known map[string]subject
	// working has what is worked on now.
	working map[string]work
	// waiting has the names whose work has failed, and is tried again after a pause. While an
	// informer is behind, also those that are not to be tried again, or have not begun.
	waiting map[string]struct{}
	// lagging is the number of informers that are behind with their revision.
	lagging int
}

// subject is an object that has passed the gate.
type subject struct {
	key int64
	uid types.UID
}

// work is what goes on under a name.
type work struct {
	// uid is that of the object, "" if there is none.
	uid   types.UID
	leave func()
	// anew is set when an informer that was behind has caught up since it began.
	anew bool
}

// NewSubjects returns the subjects among objects whose work passes that gate by their hash keys at
// that path.
func NewSubjects(gate Gate, objects cache.Indexer, path sharding.KeyPath) *Subjects {
	_, byNamespace := path.OfNamespace("")
	return &Subjects{Indexer: objects, gate: gate, path: path, byNamespace: byNamespace, known: map[string]subject{}, working: map[string]work{}, waiting: map[string]struct{}{}}
}

// HearOf queues the objects of the informer when they are gone. Not every controller does so
// itself, and what is known of them goes with the work on their absence.
func (s *Subjects) HearOf(informer cache.SharedIndexInformer) error {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		if !s.remembers() {
			return
		}
		if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			s.Queue(name)
		}
	}})
	return err
}

// remembers says whether it matters what has been worked on.
func (s *Subjects) remembers() bool { return !s.byNamespace || s.Forget != nil }

func (s *Subjects) forgetWork(name string, uid types.UID) {
	if s.Forget != nil {
		s.Forget(name, uid)
	}
}

// at returns the object of that name in the caches, and false if there is none.
func (s *Subjects) at(name string) (subject, bool) {
	obj, exists, err := s.Indexer.GetByKey(name)
	if err != nil || !exists {
		return subject{}, false
	}
	return s.of(obj)
}

func (s *Subjects) of(obj any) (subject, bool) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return subject{}, false
	}
	// One instance works on what is in no namespace, though it is in every range.
	key, found := s.path.OfNamespace(accessor.GetNamespace())
	if !found {
		object, _ := obj.(runtime.Object)
		key, found, _ = s.path.KeyOf(object)
	}
	return subject{key, accessor.GetUID()}, found
}

// Has says whether the caches have the object with that name and UID, even while another of that
// name is worked on.
func (s *Subjects) Has(name string, uid types.UID) bool {
	object, ok := s.at(name)
	return ok && object.uid == uid
}

// Describe says for people which object has that key, or which namespace, and false if none here
// does.
func (s *Subjects) Describe(key int64) (string, bool) {
	for _, obj := range s.List() {
		accessor, err := meta.Accessor(obj)
		if object, ok := s.of(obj); err != nil || !ok || object.key != key {
			continue
		}
		if s.byNamespace {
			return "namespace " + accessor.GetNamespace(), true
		}
		return fmt.Sprintf("%T %s", obj, cache.MetaObjectToName(accessor)), true
	}
	return "", false
}

// Waiting returns how many names wait for an informer that is behind, or to be tried again.
func (s *Subjects) Waiting() int {
	s.lock.Lock()
	defer s.lock.Unlock()
	return len(s.waiting)
}

// absent returns the key of a name without an object, and false if nobody can tell it.
func (s *Subjects) absent(name string) (int64, bool) {
	if s.byNamespace {
		namespace, _, err := cache.SplitMetaNamespaceKey(name)
		key, _ := s.path.OfNamespace(namespace)
		return key, err == nil
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	last, known := s.known[name]
	return last.key, known
}

// Enter takes the object of that name through the gate, or the name if the object is gone. It
// returns false if there is nothing to be done under that name: nobody can tell the key of what is
// gone, as nothing was done for it here, or it is not this controller's now. Then the object is
// queued again when the gate opens for it.
func (s *Subjects) Enter(name string) bool {
	if s.waits(name) {
		return false
	}
	object, exists := s.at(name)
	if !exists {
		key, ok := s.absent(name)
		if !ok {
			return false
		}
		object = subject{key: key}
	}
	leave, ok := s.gate.Enter(object.key)
	if !ok {
		return false
	}
	// What was read before the gate may be older than the previous owner's work.
	if again, _ := s.at(name); again.uid != object.uid {
		leave()
		s.Queue(name)
		return false
	}
	s.lock.Lock()
	last, known := s.known[name]
	if exists && s.remembers() {
		s.known[name] = object
	}
	s.working[name] = work{uid: object.uid, leave: leave}
	s.lock.Unlock()
	if known && exists && last.uid != object.uid {
		s.forgetWork(name, last.uid)
	}
	return true
}

// waits says whether work under that name waits for an informer that is behind.
func (s *Subjects) waits(name string) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	if !s.Steady || s.lagging == 0 {
		return false
	}
	s.waiting[name] = struct{}{}
	return true
}

// Leave ends the work under that name. With that of an absence, all is forgotten: it does not come
// again.
func (s *Subjects) Leave(name string) {
	s.lock.Lock()
	w, ok := s.working[name]
	delete(s.working, name)
	last, known := s.known[name]
	gone := ok && known && w.uid == ""
	if gone {
		delete(s.known, name)
		// The sync may have worked on one that was made anew already, and what is remembered of that
		// goes by the name.
		if made, is := s.at(name); is && s.byNamespace {
			s.known[name], gone = made, false
		}
	}
	s.lock.Unlock()
	if gone {
		s.forgetWork(name, last.uid)
	}
	if ok {
		w.leave()
	}
}

// putOff says whether work that has failed is to be tried again after a pause, or at once.
func (s *Subjects) putOff(name string) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.working[name].anew {
		return false
	}
	s.waiting[name] = struct{}{}
	return true
}

// settled says that work under that name has succeeded, or that it is not tried again.
func (s *Subjects) settled(name string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.lagging == 0 {
		delete(s.waiting, name)
	}
}

// Behind is told when an informer gets behind with its revision, and when no longer. Work that has
// failed may have waited for that revision, and no event says when it has come: it is tried again.
func (s *Subjects) Behind(is bool) {
	s.lock.Lock()
	if is {
		s.lagging++
		s.lock.Unlock()
		return
	}
	s.lagging--
	waiting := slices.Collect(maps.Keys(s.waiting))
	clear(s.waiting)
	for name, w := range s.working {
		w.anew = true
		s.working[name] = w
	}
	s.lock.Unlock()
	for _, name := range waiting {
		s.Queue(name)
	}
}

// Release forgets everything in ranges.
func (s *Subjects) Release(ranges hashkey.Ranges) {
	released := map[string]types.UID{}
	s.lock.Lock()
	for name, known := range s.known {
		if ranges.Contains(known.key) {
			released[name] = known.uid
			delete(s.known, name)
		}
	}
	s.lock.Unlock()
	for name, uid := range released {
		s.forgetWork(name, uid)
	}
}

// QueueAll queues every object in ranges, and what was worked on there and is gone, until ctx ends.
func (s *Subjects) QueueAll(ctx context.Context, ranges hashkey.Ranges) {
	for _, obj := range s.Indexer.List() {
		if ctx.Err() != nil {
			return
		}
		object, ok := s.of(obj)
		switch {
		case !ok || !ranges.Contains(object.key):
		case s.Enqueue != nil:
			s.Enqueue(obj)
		default:
			if name, err := cache.MetaNamespaceKeyFunc(obj); err == nil {
				s.Queue(name)
			}
		}
	}
	for _, name := range s.knownIn(ranges) {
		s.Queue(name)
	}
}

// knownIn returns the names in ranges of what has been worked on.
func (s *Subjects) knownIn(ranges hashkey.Ranges) []string {
	s.lock.Lock()
	defer s.lock.Unlock()
	var names []string
	for name, known := range s.known {
		if ranges.Contains(known.key) {
			names = append(names, name)
		}
	}
	return names
}

// GetByKey implements cache.Store. While something is worked on under the name, it returns that
// alone; another object of that name, which may have another key, is queued.
func (s *Subjects) GetByKey(name string) (any, bool, error) {
	obj, exists, err := s.Indexer.GetByKey(name)
	if err != nil || !exists || s.byNamespace {
		return obj, exists, err
	}
	s.lock.Lock()
	w, working := s.working[name]
	s.lock.Unlock()
	if object, ok := s.of(obj); working && ok && object.uid != w.uid {
		s.Queue(name)
		return nil, false, nil
	}
	return obj, true, nil
}

// Informer returns an informer that is i, but that its store shows the subjects.
func (s *Subjects) Informer(i cache.SharedIndexInformer) cache.SharedIndexInformer {
	return ofSubjects{i, s}
}

// ofSubjects is an informer whose store shows the subjects.
type ofSubjects struct {
	cache.SharedIndexInformer
	subjects *Subjects
}

// GetStore implements cache.SharedInformer.
func (i ofSubjects) GetStore() cache.Store { return i.subjects }

// GetIndexer implements cache.SharedIndexInformer.
func (i ofSubjects) GetIndexer() cache.Indexer { return i.subjects }
