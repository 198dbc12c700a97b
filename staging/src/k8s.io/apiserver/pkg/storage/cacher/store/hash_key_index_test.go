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

package store

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/utils/ptr"
)

// testStorage is a storage whose writes and reads are ordered by a lock, as the watch cache's are.
type testStorage struct {
	*WatchCacheStorage
	lock    sync.RWMutex
	version uint64
	now     map[string]*Element
}

func newTestStorage(t testing.TB) *testStorage {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ControllerRing, true)
	byNode := cache.Indexers{"f:node": func(obj interface{}) ([]string, error) {
		return []string{obj.(*corev1.Pod).Spec.NodeName}, nil
	}}
	return &testStorage{WatchCacheStorage: NewWatchCacheStorage(nil, &byNode), now: map[string]*Element{}}
}

func testElement(namespace, name string, uid, controller int) *Element {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: testUID("pod", uid)}}
	if controller > 0 {
		pod.OwnerReferences = []metav1.OwnerReference{{UID: testUID("controller", controller), Controller: ptr.To(true)}}
	}
	pod.Spec.NodeName = fmt.Sprintf("node-%d", uid%100)
	return &Element{Key: "/pods/" + namespace + "/" + name, Object: pod}
}

// testUID returns a UID of the usual length: keys of short ones lie close to each other.
func testUID(kind string, i int) types.UID {
	return types.UID(fmt.Sprintf("%08x-0000-4000-8000-%s", uint32(i*2654435761), kind))
}

func (s *testStorage) write(t testing.TB, event watch.EventType, elem *Element) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.version++
	if err := s.UpdateStoreLocked(event, elem, s.version); err != nil {
		t.Error(err)
	}
	if event == watch.Deleted {
		delete(s.now, elem.Key)
	} else {
		s.now[elem.Key] = elem
	}
}

func (s *testStorage) replace(t testing.TB, elements []*Element) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.version++
	objects := make([]interface{}, len(elements))
	s.now = map[string]*Element{}
	for i, elem := range elements {
		objects[i] = elem
		s.now[elem.Key] = elem
	}
	if err := s.ReplaceLocked(objects, "", s.version); err != nil {
		t.Error(err)
	}
}

func selectorOf(path sharding.KeyPath, ranges ...hashkey.Range) sharding.HashKeySelector {
	var reqs []sharding.ShardRangeRequirement
	for _, r := range ranges {
		reqs = append(reqs, sharding.ShardRangeRequirement{
			Key: path.String(), Start: fmt.Sprintf("0x%016x", r.Start), End: fmt.Sprintf("0x%016x", r.End)})
	}
	return sharding.NewSelector(reqs...).(sharding.HashKeySelector)
}

// compareRange lists a page of a range, of the store as it was, and compares it with a plain
// filter.
func compareRange(t testing.TB, snapshot Snapshot, query RangeQuery, prefix, from string, was map[string]*Element) {
	items, err := snapshot.OrderedListPrefix(prefix, from)
	if err != nil {
		t.Errorf("%s of %q: %v", query.Selector, query.Prefix, err)
		return
	}
	var want []string
	for _, key := range slices.Sorted(maps.Keys(was)) {
		matches, err := query.Selector.Matches(was[key].Object)
		if err != nil {
			t.Error(err)
		}
		if query.Limit > 0 && !query.Matches(was[key]) {
			continue
		}
		if matches && strings.HasPrefix(key, query.Prefix) && key >= from {
			want = append(want, key)
		}
	}
	var got []string
	for _, item := range items {
		elem := item.(*Element)
		if query.Limit == 0 || query.Matches(elem) {
			got = append(got, elem.Key)
		}
		if elem != was[elem.Key] {
			t.Errorf("%s of %q: another version of %s", query.Selector, query.Prefix, elem.Key)
		}
	}
	if n := int(query.Limit); n > 0 && len(want) > n {
		if len(got) <= n || len(got) > len(want) {
			t.Errorf("%s of %q: %d objects for a limit of %d of %d", query.Selector, query.Prefix, len(got), n, len(want))
		}
		want = want[:min(len(got), len(want))]
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s of %q from %q: got %d objects, want %d", query.Selector, query.Prefix, from, len(got), len(want))
	}
}

// Ranges are exact while writers, replacements, first lists and background work meet in any order,
// as of the moment when they were asked for.
func TestRangesWhileOrdersAreBuilt(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	for round := range 4 {
		s := newTestStorage(t)
		random := rand.New(rand.NewSource(seed + int64(round)))
		var elements []*Element
		for i := range 5000 {
			elements = append(elements, testElement([]string{"a", "b", "b-b"}[i%3], strconv.Itoa(i), i, i%400))
		}
		s.replace(t, elements)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for i := range 3 {
			random := rand.New(rand.NewSource(random.Int63()))
			wg.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					path := sharding.KeyPath(random.Intn(int(sharding.NumKeyPaths)))
					start := uint64(random.Int63())
					width := uint64(random.Int63()) >> random.Intn(20)
					query := RangeQuery{
						Selector: selectorOf(path, hashkey.Range{Start: start, End: min(start+width, hashkey.Limit)}, hashkey.Range{Start: 0, End: start / 8}),
						Prefix:   []string{"/pods/", "/pods/a/", "/pods/b/"}[random.Intn(3)],
						Limit:    int64(random.Intn(3) * random.Intn(50)),
						Matches:  func(elem *Element) bool { return len(elem.Key)%2 == 0 },
					}
					if i == 0 || n%3 == 0 {
						s.KeepHashKeys(path)
					}
					s.lock.RLock()
					snapshot, ok := s.LatestRangeLocked(query)
					whole, _ := s.LatestSnapshotLocked()
					was := maps.Clone(s.now)
					s.lock.RUnlock()
					if !ok {
						t.Error("there is no range")
						return
					}
					compareRange(t, snapshot, query, query.Prefix, "", was)
					from := fmt.Sprintf("%s%d", query.Prefix, random.Intn(10))
					if later, ok := RangeOf(whole, query); ok {
						compareRange(t, later, query, query.Prefix, from, was)
					} else {
						t.Error("there is no range of the older snapshot")
					}
				}
			})
		}
		for i := range 8_000 {
			namespace, name := []string{"a", "b", "b-b"}[random.Intn(3)], strconv.Itoa(random.Intn(6000))
			switch random.Intn(4) {
			case 0:
				s.write(t, watch.Deleted, testElement(namespace, name, 0, 0))
			case 1:
				s.write(t, watch.Added, testElement(namespace, name, i, random.Intn(400)))
			default:
				if elem, ok := s.now["/pods/"+namespace+"/"+name]; ok {
					s.write(t, watch.Modified, &Element{Key: elem.Key, Object: elem.Object.DeepCopyObject()})
				}
			}
			if random.Intn(2000) == 0 {
				var all []*Element
				for _, elem := range s.now {
					all = append(all, &Element{Key: elem.Key, Object: elem.Object})
				}
				s.replace(t, all[len(all)/4:])
			}
		}
		close(stop)
		wg.Wait()
	}
}

// A namespace is listed without an order, and one of upstream's indexes is left to be used where
// it has fewer objects than the range.
func TestARangeNeedsNoOrder(t *testing.T) {
	s := newTestStorage(t)
	for i := range 1000 {
		s.write(t, watch.Added, testElement(fmt.Sprintf("n-%d", i%10), strconv.Itoa(i), i, i/10))
	}
	half := selectorOf(sharding.KeyPathOwn, hashkey.Range{Start: 0, End: hashkey.Limit / 2})
	query := RangeQuery{Selector: half, Prefix: "/pods/n-3/"}
	onNode := storage.MatchValue{IndexName: "f:node", Value: "node-7"}
	list := func() {
		t.Helper()
		snapshot, ok := s.LatestRangeLocked(query)
		if !ok || !IsRange(snapshot) {
			t.Fatal("there is no range")
		}
		compareRange(t, snapshot, query, "", "", s.now)
	}
	list()
	query.Limit, query.Matches = 10, func(elem *Element) bool { return !strings.HasSuffix(elem.Key, "7") }
	snapshot, _ := s.LatestRangeLocked(query)
	if page, err := snapshot.OrderedListPrefix("", ""); err != nil || len(page) != 11 {
		t.Errorf("a page of 10 has %d objects, error %v; want one more than the limit", len(page), err)
	}
	list()
	query.Limit, query.Matches = 0, nil
	if view := s.store.(*threadedStoreIndexer).hashKeys.view(); view.orders[sharding.KeyPathOwn] != nil {
		t.Error("a list of a namespace made an order")
	}
	if _, ok := s.LatestRangeLocked(query, onNode); ok {
		t.Error("the index by node has 10 objects, and is not used")
	}
	s.KeepHashKeys(sharding.KeyPathOwn)
	s.write(t, watch.Added, testElement("n-3", "new", 1000, 1)) // a snapshot without a view yet
	list()
	if _, ok := s.LatestRangeLocked(query, onNode); ok {
		t.Error("the index by node has 10 objects, the range 500, and that is used")
	}
	query.Selector = selectorOf(sharding.KeyPathOwn, hashkey.Range{Start: 0, End: hashkey.Limit / 500})
	if _, ok := s.LatestRangeLocked(query, onNode); !ok {
		t.Error("the index by node has 10 objects, the range about 2, and that is not used")
	}
	if _, ok := s.LatestRangeLocked(query, storage.MatchValue{IndexName: "f:unknown"}); !ok {
		t.Error("an index that does not exist is preferred")
	}
}

// A large namespace is walked once. Then there is an order.
func TestALongWalkMakesAnOrder(t *testing.T) {
	s := newTestStorage(t)
	var elements []*Element
	for i := range 2*manyPassed + 2 {
		elements = append(elements, testElement([]string{"small", "large"}[min(i, manyPassed)/manyPassed], strconv.Itoa(i), i, i/10))
	}
	s.replace(t, elements)
	x := s.store.(*threadedStoreIndexer).hashKeys
	for _, namespace := range []string{"small", "large"} {
		query := RangeQuery{Selector: selectorOf(sharding.KeyPathHome, hashkey.Range{Start: 1, End: 2}), Prefix: "/pods/" + namespace + "/"}
		for range 2 {
			snapshot, _ := s.LatestRangeLocked(query)
			compareRange(t, snapshot, query, "", "", s.now)
			x.building.Lock() // the order is complete, if one was begun
			ready := x.view().orders[sharding.KeyPathHome] != nil
			x.building.Unlock()
			if ready != (namespace == "large") {
				t.Fatalf("after a list of the %s namespace there is an order: %t", namespace, ready)
			}
		}
	}
}

// Objects that are gone leave their orders.
func TestOrdersForgetWhatIsGone(t *testing.T) {
	s := newTestStorage(t)
	const n = 2000
	for i := range n {
		s.write(t, watch.Added, testElement("n", strconv.Itoa(i), i, i/10))
	}
	s.KeepHashKeys(sharding.KeyPathOwn)
	for i := range n - 10 {
		s.write(t, watch.Deleted, testElement("n", strconv.Itoa(i), i, i/10))
	}
	s.SettleHashKeys()
	order := s.store.(*threadedStoreIndexer).hashKeys.view().orders[sharding.KeyPathOwn]
	if _, entries := order.find([]keyBounds{{noKey, -1}}); entries > 10+slack+n/slackShare {
		t.Errorf("%d entries for 10 objects", entries)
	}
}

// Without a snapshot a range is listed at once, where nothing is cheaper.
func TestRangesWithoutSnapshots(t *testing.T) {
	for name, lose := range map[string]func(*testStorage){
		"off":       func(s *testStorage) { s.MarkConsistent(false) },
		"compacted": func(s *testStorage) { s.Compact(s.version + 1) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestStorage(t)
			for i := range 1000 {
				s.write(t, watch.Added, testElement(fmt.Sprintf("n-%d", i%2), strconv.Itoa(i), i, i/10+1))
			}
			eighth := hashkey.Range{Start: 0, End: hashkey.Limit / 8}
			query := RangeQuery{Selector: selectorOf(sharding.KeyPathController, eighth), Prefix: "/pods/"}
			s.KeepHashKeys(sharding.KeyPathController)
			s.write(t, watch.Deleted, testElement("n-1", "17", 17, 2))
			lose(s)
			snapshot, ok := s.LatestRangeLocked(query)
			if !ok || !IsRange(snapshot) {
				t.Fatal("there is no range")
			}
			compareRange(t, snapshot, query, "/pods/", "", s.now)
			for name, query := range map[string]RangeQuery{
				"of everything":    {Selector: selectorOf(sharding.KeyPathController, hashkey.All()...), Prefix: "/pods/"},
				"in a namespace":   {Selector: query.Selector, Prefix: "/pods/n-1/"},
				"without an order": {Selector: selectorOf(sharding.KeyPathOwn, eighth), Prefix: "/pods/"},
			} {
				if _, ok := s.LatestRangeLocked(query); ok {
					t.Errorf("a range %s is not filtered", name)
				}
			}
			if _, ok := s.LatestRangeLocked(query, storage.MatchValue{IndexName: "f:node", Value: "node-7"}); ok {
				t.Error("the index by node has fewer objects than the range, and is not used")
			}
		})
	}
}
