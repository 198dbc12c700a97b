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

package cacher

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage/cacher/metrics"
	"k8s.io/apiserver/pkg/storage/cacher/rangeindex"
)

// rangeWatchers are the watchers that select by a range of hash keys, found by the
// keys of an event. Those that are found by the value of a trigger are not among
// them. The zero value is ready to use; the cacher's lock guards it.
type rangeWatchers struct {
	scopes map[namespacedName]*rangeScope
	// placed says where a watcher is, by its number.
	placed map[int]placedWatcher
}

// rangeScope has the watchers of one scope by the path that they select on.
type rangeScope struct {
	own, controller rangeindex.Index[*cacheWatcher]
}

type placedWatcher struct {
	*cacheWatcher
	scope namespacedName
}

func (s *rangeScope) of(selector sharding.HashKeySelector) *rangeindex.Index[*cacheWatcher] {
	if selector.FieldPath() == sharding.ControllerHashKeyPath {
		return &s.controller
	}
	return &s.own
}

// addWatcher takes w if it selects by a range.
func (r *rangeWatchers) addWatcher(w *cacheWatcher, number int, scope namespacedName) bool {
	if w.hashKeys == nil {
		return false
	}
	if r.placed == nil {
		r.scopes, r.placed = map[namespacedName]*rangeScope{}, map[int]placedWatcher{}
	}
	if r.scopes[scope] == nil {
		r.scopes[scope] = &rangeScope{}
	}
	r.scopes[scope].of(w.hashKeys).Add(number, w.hashKeys.Ranges(), w)
	r.placed[number] = placedWatcher{cacheWatcher: w, scope: scope}
	return true
}

// deleteWatcher says whether the watcher of that number was here.
func (r *rangeWatchers) deleteWatcher(number int) bool {
	w, ok := r.placed[number]
	if !ok {
		return false
	}
	delete(r.placed, number)
	scope := r.scopes[w.scope]
	scope.of(w.hashKeys).Remove(number, w.hashKeys.Ranges())
	if scope.own.Len()+scope.controller.Len() == 0 {
		delete(r.scopes, w.scope)
	}
	return true
}

func (r *rangeWatchers) terminateAll(done func(*cacheWatcher)) {
	placed := r.placed
	*r = rangeWatchers{}
	for _, w := range placed {
		done(w.cacheWatcher)
	}
}

// appendInterested appends to buffer the watchers that the event may concern, each
// once: those in whose ranges its object was, or is. All others of a scope that the
// event is in are spared.
func (r *rangeWatchers) appendInterested(buffer []*cacheWatcher, event *watchCacheEvent, counters metrics.RangeIndexCounters) []*cacheWatcher {
	if len(r.placed) == 0 {
		return buffer
	}
	keys := eventKeysOf(event)
	namespace, name := event.ObjFields["metadata.namespace"], event.ObjFields["metadata.name"]
	before, inScope := len(buffer), 0
	visit := func(scope namespacedName) {
		if s := r.scopes[scope]; s != nil {
			buffer = s.appendInterested(buffer, keys)
			inScope += s.own.Len() + s.controller.Len()
		}
	}
	visit(namespacedName{})
	if namespace != "" {
		visit(namespacedName{namespace: namespace})
	}
	if name != "" {
		visit(namespacedName{name: name})
	}
	if namespace != "" && name != "" {
		visit(namespacedName{namespace: namespace, name: name})
	}
	offered := len(buffer) - before
	counters.Record(offered, inScope-offered)
	return buffer
}

func (s *rangeScope) appendInterested(buffer []*cacheWatcher, keys eventKeys) []*cacheWatcher {
	buffer = appendHolders(buffer, &s.own, keys.own)
	if keys.unowned {
		// What has no controller is in each range of this path.
		s.controller.Each(func(w *cacheWatcher) { buffer = append(buffer, w) })
	} else {
		buffer = appendHolders(buffer, &s.controller, keys.controller)
	}
	return buffer
}

// appendHolders appends the watchers whose ranges hold any of keys, each once.
func appendHolders(buffer []*cacheWatcher, index *rangeindex.Index[*cacheWatcher], keys keyPair) []*cacheWatcher {
	for i, key := range keys.keys[:keys.n] {
		index.Visit(key, func(w *cacheWatcher) {
			if i == 0 || !w.hashKeys.Ranges().Contains(keys.keys[0]) {
				buffer = append(buffer, w)
			}
		})
	}
	return buffer
}

// eventKeys are the keys of an event's object as it was and as it is.
type eventKeys struct {
	own, controller keyPair
	// unowned is set if the object had or has no controller.
	unowned bool
}

// keyPair holds up to two keys that differ.
type keyPair struct {
	keys [2]int64
	n    int
}

func (p *keyPair) add(key int64) {
	if p.n == 0 || p.keys[0] != key {
		p.keys[p.n] = key
		p.n++
	}
}

func eventKeysOf(event *watchCacheEvent) eventKeys {
	var keys eventKeys
	keys.add(event.PrevObject)
	// A deleted object is none: only as it was can it have been in a range.
	if event.Type != watch.Deleted {
		keys.add(event.Object)
	}
	return keys
}

// add adds the keys of object. What has no metadata has none, and no filter lets
// it pass.
func (k *eventKeys) add(object runtime.Object) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return
	}
	k.own.add(metav1.HashKeyOf(accessor))
	if key, owned := metav1.HashKeyOfController(accessor); owned {
		k.controller.add(key)
	} else {
		k.unowned = true
	}
}
