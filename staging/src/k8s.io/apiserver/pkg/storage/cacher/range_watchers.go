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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage/cacher/metrics"
	"k8s.io/apiserver/pkg/storage/cacher/rangeindex"
)

// rangeWatchers are the watchers of ranges of hash keys. Events find them by their keys.
// Watchers that events find by the value of a trigger are not among them. The zero value
// is ready to use; the cacher's lock guards it.
type rangeWatchers struct {
	scopes map[namespacedName]*rangeScope
	// placed says where a watcher is, by its number.
	placed map[int]placedWatcher
}

// rangeScope has the watchers of one scope, by the key path of their ranges.
type rangeScope [sharding.NumKeyPaths]rangeindex.Index[*cacheWatcher]

type placedWatcher struct {
	*cacheWatcher
	scope namespacedName
}

// watchers returns the number of watchers in the scope.
func (s *rangeScope) watchers() int {
	n := 0
	for i := range s {
		n += s[i].Len()
	}
	return n
}

// addWatcher adds w if it watches a range, and says whether it does.
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
	r.scopes[scope][w.hashKeys.Path()].Add(number, w.hashKeys.Ranges(), w)
	r.placed[number] = placedWatcher{cacheWatcher: w, scope: scope}
	return true
}

// deleteWatcher removes the watcher of that number, and says whether it was here.
func (r *rangeWatchers) deleteWatcher(number int) bool {
	w, ok := r.placed[number]
	if !ok {
		return false
	}
	delete(r.placed, number)
	scope := r.scopes[w.scope]
	scope[w.hashKeys.Path()].Remove(number, w.hashKeys.Ranges())
	if scope.watchers() == 0 {
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

// appendInterested appends to buffer the watchers that the event may concern, each once:
// those whose ranges held its object or hold it now. It counts the other watchers of the
// event's scopes as spared.
func (r *rangeWatchers) appendInterested(buffer []*cacheWatcher, event *watchCacheEvent, counters metrics.RangeIndexCounters) []*cacheWatcher {
	if len(r.placed) == 0 {
		return buffer
	}
	keys := eventKeys{event: event}
	namespace, name := event.ObjFields["metadata.namespace"], event.ObjFields["metadata.name"]
	before, inScope := len(buffer), 0
	visit := func(scope namespacedName) {
		if s := r.scopes[scope]; s != nil {
			buffer = s.appendInterested(buffer, &keys)
			inScope += s.watchers()
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

func (s *rangeScope) appendInterested(buffer []*cacheWatcher, keys *eventKeys) []*cacheWatcher {
	for path := range sharding.NumKeyPaths {
		if s[path].Len() > 0 {
			buffer = keys.at(path).appendHolders(buffer, &s[path])
		}
	}
	return buffer
}

// eventKeys are the keys of an event's object, by path. A path is read when the first scope
// has watchers of it: few paths do.
type eventKeys struct {
	event *watchCacheEvent
	paths [sharding.NumKeyPaths]pathKeys
}

// pathKeys are the keys at one path of an object as it was and as it is.
type pathKeys struct {
	// keys are the n keys that the object has had. They differ.
	keys [2]int64
	n    int
	// missing is set if the object lacked or lacks the key.
	missing bool
	// read is set once all this has been found out.
	read bool
}

func (k *eventKeys) at(path sharding.KeyPath) *pathKeys {
	p := &k.paths[path]
	if !p.read {
		p.read = true
		p.addFrom(k.event.PrevObject, path)
		// A deleted object is in no range any more: only its last state counts.
		if k.event.Type != watch.Deleted {
			p.addFrom(k.event.Object, path)
		}
	}
	return p
}

// addFrom adds the key of object. An object without metadata has none, and passes no filter.
func (k *pathKeys) addFrom(object runtime.Object, path sharding.KeyPath) {
	if key, found, err := path.KeyOf(object); err == nil {
		k.add(key, found)
	}
}

func (k *pathKeys) add(key int64, found bool) {
	switch {
	case !found:
		k.missing = true
	case k.n == 0 || k.keys[0] != key:
		k.keys[k.n] = key
		k.n++
	}
}

// appendHolders appends the watchers of index whose ranges hold any of the keys, each
// once.
func (k *pathKeys) appendHolders(buffer []*cacheWatcher, index *rangeindex.Index[*cacheWatcher]) []*cacheWatcher {
	if k.missing {
		// An object without the key is in every range.
		index.Each(func(w *cacheWatcher) { buffer = append(buffer, w) })
		return buffer
	}
	for i, key := range k.keys[:k.n] {
		index.Visit(key, func(w *cacheWatcher) {
			if i == 0 || !w.hashKeys.Ranges().Contains(k.keys[0]) {
				buffer = append(buffer, w)
			}
		})
	}
	return buffer
}
