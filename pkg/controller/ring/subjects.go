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

package ring

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// subjects are the objects that a controller works on, by name. As a store it shows a sync only
// the object that has passed the gate: one that is made anew under the same name has another
// key.
type subjects struct {
	// Indexer has the objects.
	cache.Indexer
	gate Gate
	// queue queues the object of that name. forget forgets the controller's work on an object.
	queue  func(name string)
	forget func(name string, uid types.UID)

	lock sync.Mutex
	// known has what has been worked on since the gate was opened for it.
	known map[string]subject
	// working has what is worked on now.
	working map[string]work
	// waiting has the names whose work has failed, and is tried again after a pause. While an
	// informer is behind, also those that are not to be tried again.
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

func newSubjects(gate Gate, objects cache.Indexer) *subjects {
	return &subjects{Indexer: objects, gate: gate, known: map[string]subject{}, working: map[string]work{}, waiting: map[string]struct{}{}}
}

// hearOf queues the objects of informer when they are gone. Not every controller does so itself,
// and what is known of them goes with the work on their absence.
func (s *subjects) hearOf(informer cache.SharedIndexInformer) error {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			s.queue(name)
		}
	}})
	return err
}

// at returns the object of that name in the caches, and false if there is none.
func (s *subjects) at(name string) (subject, bool) {
	obj, exists, err := s.Indexer.GetByKey(name)
	if err != nil || !exists {
		return subject{}, false
	}
	return subjectOf(obj)
}

func subjectOf(obj any) (subject, bool) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return subject{}, false
	}
	return subject{metav1.HashKeyOf(accessor), accessor.GetUID()}, true
}

// enter takes the object of that name through the gate, or what is known of it if it is gone.
// It returns false if there is nothing to be done under that name: nothing was done here for
// an object that is gone, or it is not this controller's now. Then the object is queued again
// when the gate opens for it.
func (s *subjects) enter(name string) bool {
	object, exists := s.at(name)
	if !exists {
		s.lock.Lock()
		last, known := s.known[name]
		s.lock.Unlock()
		if !known {
			return false
		}
		object = subject{key: last.key}
	}
	leave, ok := s.gate.Enter(object.key)
	if !ok {
		return false
	}
	// What was read before the gate may be older than the previous owner's work.
	if again, _ := s.at(name); again.uid != object.uid {
		leave()
		s.queue(name)
		return false
	}
	s.lock.Lock()
	last, known := s.known[name]
	if exists {
		s.known[name] = object
	}
	s.working[name] = work{uid: object.uid, leave: leave}
	s.lock.Unlock()
	if known && exists && last.uid != object.uid {
		s.forget(name, last.uid)
	}
	return true
}

// leave ends the work under that name. With that of an absence, all is forgotten: it does not come
// again.
func (s *subjects) leave(name string) {
	s.lock.Lock()
	w, ok := s.working[name]
	delete(s.working, name)
	last, known := s.known[name]
	gone := ok && known && w.uid == ""
	if gone {
		delete(s.known, name)
	}
	s.lock.Unlock()
	if gone {
		s.forget(name, last.uid)
	}
	if ok {
		w.leave()
	}
}

// putOff says whether work that has failed is to be tried again after a pause, or at once.
func (s *subjects) putOff(name string) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.working[name].anew {
		return false
	}
	s.waiting[name] = struct{}{}
	return true
}

// settled says that work under that name has succeeded, or that it is not tried again.
func (s *subjects) settled(name string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.lagging == 0 {
		delete(s.waiting, name)
	}
}

// behind is told when an informer gets behind with its revision, and when no longer. Work that has
// failed may have waited for that revision, and no event says when it has come: it is tried again.
func (s *subjects) behind(is bool) {
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
		s.queue(name)
	}
}

// release forgets everything in ranges.
func (s *subjects) release(ranges hashkey.Ranges) {
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
		s.forget(name, uid)
	}
}

// queueAll queues every object in ranges, and what was worked on there and is gone.
func (s *subjects) queueAll(ranges hashkey.Ranges) {
	for _, obj := range s.Indexer.List() {
		if object, ok := subjectOf(obj); ok && ranges.Contains(object.key) {
			if name, err := cache.MetaNamespaceKeyFunc(obj); err == nil {
				s.queue(name)
			}
		}
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	for name, known := range s.known {
		if ranges.Contains(known.key) {
			s.queue(name)
		}
	}
}

// GetByKey implements cache.Store. While something is worked on under the name, it returns that
// alone; another object of that name is queued.
func (s *subjects) GetByKey(name string) (any, bool, error) {
	obj, exists, err := s.Indexer.GetByKey(name)
	if err != nil || !exists {
		return nil, false, err
	}
	s.lock.Lock()
	w, working := s.working[name]
	s.lock.Unlock()
	if object, ok := subjectOf(obj); working && ok && object.uid != w.uid {
		s.queue(name)
		return nil, false, nil
	}
	return obj, true, nil
}

// ofSubjects is an informer whose store shows the subjects.
type ofSubjects struct {
	cache.SharedIndexInformer
	subjects *subjects
}

// GetStore implements cache.SharedInformer.
func (i ofSubjects) GetStore() cache.Store { return i.subjects }

// GetIndexer implements cache.SharedIndexInformer.
func (i ofSubjects) GetIndexer() cache.Indexer { return i.subjects }
