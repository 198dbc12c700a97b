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
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher/store"
	etcdfeature "k8s.io/apiserver/pkg/storage/feature"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// Each benchmark of ranges of hash keys also measures upstream's way in the same run: a
// selector on the hash of the UID. `make bench` prints the ratios.

const (
	benchPods  = 100_000
	benchParts = 16
)

// benchPod returns a pod as a ReplicaSet makes it. Each controller has ten.
func benchPod(i int) *corev1.Pod {
	controller := types.UID(fmt.Sprintf("%08x-0000-4000-8000-000000000000", i/10*2654435761))
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         fmt.Sprintf("namespace-%03d", i%100),
			Name:              fmt.Sprintf("workload-%08x-%05x", i/10, i),
			GenerateName:      fmt.Sprintf("workload-%08x-", i/10),
			UID:               uuid.NewUUID(),
			ResourceVersion:   strconv.Itoa(i + 1),
			CreationTimestamp: metav1.Now(),
			Labels:            map[string]string{"app": "workload", "pod-template-hash": fmt.Sprintf("%08x", i/10)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: fmt.Sprintf("workload-%08x", i/10),
				UID: controller, Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: corev1.PodSpec{
			NodeName:      fmt.Sprintf("node-%05d", i%5000),
			RestartPolicy: corev1.RestartPolicyAlways,
			Containers: []corev1.Container{{
				Name: "main", Image: "registry.example/workload:1.0",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}},
			}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func benchPodList(n int) []*corev1.Pod {
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = benchPod(i)
	}
	return pods
}

// silentStorage has nothing and never sends anything: the benchmarks write into
// the watch cache themselves.
type silentStorage struct {
	storage.Interface
}

func (silentStorage) Versioner() storage.Versioner                              { return storage.APIObjectVersioner{} }
func (silentStorage) RequestWatchProgress(context.Context) error                { return nil }
func (silentStorage) EnableResourceSizeEstimation(storage.KeysFunc) error       { return nil }
func (silentStorage) CompactRevision() int64                                    { return 0 }
func (silentStorage) GetCurrentResourceVersion(context.Context) (uint64, error) { return 1, nil }
func (silentStorage) GetList(_ context.Context, _ string, _ storage.ListOptions, list k8sruntime.Object) error {
	list.(metav1.ListInterface).SetResourceVersion("1")
	return nil
}
func (silentStorage) Watch(_ context.Context, _ string, opts storage.ListOptions) (watch.Interface, error) {
	if opts.SendInitialEvents != nil {
		return nil, errors.New("not supported")
	}
	return watch.NewFake(), nil
}

func benchCacher(b testing.TB, pods []*corev1.Pod) *Cacher {
	b.Helper()
	cacher, err := NewCacherFromConfig(Config{
		Storage:             silentStorage{},
		Versioner:           storage.APIObjectVersioner{},
		GroupResource:       schema.GroupResource{Resource: "pods"},
		EventsHistoryWindow: DefaultEventFreshDuration,
		ResourcePrefix:      "/pods/",
		KeyFunc:             func(obj k8sruntime.Object) (string, error) { return storage.NamespaceKeyFunc("/pods/", obj) },
		GetAttrsFunc:        getCorev1PodAttrs,
		NewFunc:             func() k8sruntime.Object { return &corev1.Pod{} },
		NewListFunc:         func() k8sruntime.Object { return &corev1.PodList{} },
		Codec:               corev1ProtoCodec,
		Clock:               clock.RealClock{},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(cacher.Stop)
	if err := cacher.Wait(context.Background()); err != nil {
		b.Fatal(err)
	}
	objects := make([]interface{}, len(pods))
	for i, pod := range pods {
		objects[i] = pod
	}
	if err := cacher.watchCache.Replace(objects, strconv.Itoa(len(pods)+1)); err != nil {
		b.Fatal(err)
	}
	return cacher
}

// part returns the selector of part i of n: ours for one of its paths, upstream's
// for the hash of the UID.
func part(b testing.TB, path string, i, n uint64) storage.SelectionPredicate {
	b.Helper()
	width := hashkey.Limit / n
	bound := func(i uint64) string { return fmt.Sprintf("0x%016x", i*width) }
	if path == uidPath {
		bound = func(i uint64) string {
			if i == n {
				return "0x10000000000000000"
			}
			return fmt.Sprintf("0x%016x", i*2*width)
		}
	}
	predicate := everything()
	predicate.ShardSelector = sharding.NewSelector(sharding.ShardRangeRequirement{Key: path, Start: bound(i), End: bound(i + 1)})
	return predicate
}

const uidPath = "object.metadata.uid"

var benchPaths = []struct{ name, path string }{
	{"upstream", uidPath},
	{"hashKey", sharding.HashKeyPath},
	{"controllerRef.hashKey", sharding.ControllerHashKeyPath},
	{"home.hashKey", sharding.HomeHashKeyPath},
	{"namespace.hashKey", sharding.NamespaceHashKeyPath},
}

func withGates(b testing.TB) {
	featuregatetesting.SetFeatureGatesDuringTest(b, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{
		features.ShardedListAndWatch: true, features.ControllerRing: true,
	})
}

// variant is one way of doing something.
type variant struct {
	name string
	// batch is the number of operations of a run, which are measured together.
	batch int
	// collections is how often garbage is collected in what is measured, as it is in a server.
	// That takes so many runs as lead to it. If it is 0, one run is measured, without.
	collections uint32
	// prepare makes the input of a batch, unmeasured. It may be nil.
	prepare func()
	run     func()
}

// garbage is the number of bytes that may be allocated until garbage is collected between batches.
const garbage = 64 << 20

// compare reports the CPU time of the whole process for one operation of each variant,
// as the median of b.N batches, and the bytes that it allocates. The variants take turns,
// so other load on the machine affects all alike. Garbage is collected between batches,
// unmeasured: one cycle costs more than a batch, and would hit some by chance.
func compare(b *testing.B, variants ...variant) { compareShort(b, 1, variants...) }

// compareShort compares variants with short batches: it runs times as many.
func compareShort(b *testing.B, times int, variants ...variant) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	samples := make([][]float64, len(variants))
	allocated := make([]uint64, len(variants))
	collected := uint64(0) // what had been allocated then
	rounds := b.N * times
	for round := range 1 + rounds {
		for _, i := range rand.Perm(len(variants)) { // a fixed order would favour some
			v := variants[i]
			if v.prepare != nil {
				v.prepare()
			}
			if v.collections > 0 || totalAlloc()-collected > garbage {
				runtime.GC()
				collected = totalAlloc()
			}
			allocatedBefore, before := totalAlloc(), processTime(b)
			runs := v.repeat()
			if round == 0 {
				continue // the first round builds the orders, and grows the heap
			}
			samples[i] = append(samples[i], float64(processTime(b)-before)/float64(runs*v.batch))
			allocated[i] += (totalAlloc() - allocatedBefore) / uint64(runs)
		}
	}
	for i, v := range variants {
		slices.Sort(samples[i])
		b.ReportMetric(samples[i][len(samples[i])/2], v.name+"-cpu-ns")
		b.ReportMetric(float64(allocated[i])/float64(rounds*v.batch), v.name+"-B")
	}
	b.ReportMetric(0, "ns/op") // meaningless: an operation here is a round of batches
}

// repeat runs v as often as it is to be, and returns how often that was.
func (v variant) repeat() (runs int) {
	if v.collections > 0 {
		defer debug.SetGCPercent(debug.SetGCPercent(100))
	}
	for first := collections(); ; {
		v.run()
		if runs++; collections()-first >= v.collections {
			return runs
		}
	}
}

func collections() uint32 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.NumGC
}

func totalAlloc() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.TotalAlloc
}

func processTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func BenchmarkHashKeyMatch(b *testing.B) {
	withGates(b)
	pod := benchPod(1)
	var variants []variant
	for _, p := range benchPaths {
		selector := part(b, p.path, 3, benchParts).ShardSelector
		run := func() {
			for range 100_000 {
				if _, err := selector.Matches(pod); err != nil {
					b.Fatal(err)
				}
			}
		}
		variants = append(variants, variant{name: p.name, batch: 100_000, run: run})
		b.ReportMetric(testing.AllocsPerRun(100, func() { _, _ = selector.Matches(pod) }), p.name+"-allocs")
	}
	compare(b, variants...)
}

// One list of a part, from a cacher that holds all pods, its members alone, or all pods
// and nearly as many again that are not its members. The members are the same objects in
// all three: their place in memory matters more than how they are found. The dependents
// of one owner are listed among all pods, and among nearly twice as many.
func BenchmarkHashKeyList(b *testing.B) {
	withGates(b)
	pods := benchPodList(2 * benchPods)
	cacher := benchCacher(b, pods[:benchPods])
	variants := []variant{}
	list := func(name string, batch int, cacher *Cacher, predicate storage.SelectionPredicate) {
		variants = append(variants, variant{name: name, batch: batch, run: func() {
			for range batch {
				benchList(b, cacher, "/pods/", predicate)
			}
		}})
	}
	for _, p := range benchPaths {
		predicate := evenPart(b, p.path, pods[:benchPods])
		list(p.name, 10, cacher, predicate)
		if p.path != sharding.HashKeyPath && p.path != sharding.ControllerHashKeyPath {
			continue
		}
		members, _ := divide(b, predicate, pods[:benchPods])
		_, more := divide(b, predicate, pods[benchPods:])
		list(p.name+"-devoted", 10, benchCacher(b, members), everything())
		larger := benchCacher(b, slices.Concat(pods[:benchPods], more))
		list(p.name+"-doubled", 10, larger, predicate)
		if p.path == sharding.ControllerHashKeyPath {
			owner := ofOwner(p.path, members[0])
			list("owner", 1000, cacher, owner)
			list("owner-doubled", 1000, larger, owner)
		}
	}
	compare(b, variants...)
}

// everything selects all pods.
func everything() storage.SelectionPredicate {
	predicate := storage.Everything
	predicate.GetAttrs = getCorev1PodAttrs
	return predicate
}

// ofOwner selects the dependents of the owner that pod has, by one of its keys.
func ofOwner(path string, pod *corev1.Pod) storage.SelectionPredicate {
	key, _ := pod.GetControllerHashKey()
	predicate := everything()
	predicate.ShardSelector = sharding.NewSelector(sharding.ShardRangeRequirement{
		Key: path, Start: fmt.Sprintf("0x%016x", key), End: fmt.Sprintf("0x%016x", uint64(key)+1)})
	return predicate
}

// evenPart selects as nearly 1/benchParts of pods as ranges of path can.
func evenPart(b testing.TB, path string, pods []*corev1.Pod) storage.SelectionPredicate {
	if path != sharding.NamespaceHashKeyPath {
		return part(b, path, 3, benchParts)
	}
	// All pods of a namespace have one key, and similar names have keys close to each other: so
	// the part is of the namespaces, in the order of their keys, as a ring cuts it.
	keys := map[int64]bool{}
	for _, pod := range pods {
		keys[hashkey.OfNamespace(pod.Namespace)] = true
	}
	sorted := slices.Sorted(maps.Keys(keys))
	end := len(sorted) / benchParts
	predicate := everything()
	predicate.ShardSelector = sharding.NewSelector(sharding.ShardRangeRequirement{
		Key: path, Start: "0x0000000000000000", End: fmt.Sprintf("0x%016x", sorted[end])})
	return predicate
}

// benchList lists the newest pods below a prefix, all in one page.
func benchList(b testing.TB, cacher *Cacher, prefix string, predicate storage.SelectionPredicate) {
	ctx := context.Background()
	if namespace := strings.Trim(strings.TrimPrefix(prefix, "/pods/"), "/"); namespace != "" {
		ctx = request.WithNamespace(ctx, namespace)
	}
	opts := storage.ListOptions{ResourceVersion: "0", Recursive: true, Predicate: predicate}
	if err := cacher.GetList(ctx, prefix, opts, &corev1.PodList{}); err != nil {
		b.Fatal(err)
	}
}

// The same list, with garbage collected as often as in a server, and counted.
func BenchmarkHashKeyListWithGC(b *testing.B) {
	withGates(b)
	pods := benchPodList(benchPods)
	cacher := benchCacher(b, pods)
	var variants []variant
	list := func(name string, cacher *Cacher, predicate storage.SelectionPredicate) {
		variants = append(variants, variant{name: name, batch: 1, collections: 2, run: func() {
			benchList(b, cacher, "/pods/", predicate)
		}})
	}
	for _, p := range benchPaths {
		predicate := evenPart(b, p.path, pods)
		list(p.name, cacher, predicate)
		if p.path == sharding.HashKeyPath || p.path == sharding.ControllerHashKeyPath {
			members, _ := divide(b, predicate, pods)
			list(p.name+"-devoted", benchCacher(b, members), everything())
		}
	}
	compare(b, variants...)
}

// divide returns the pods that a range selects, and the others.
func divide(b testing.TB, predicate storage.SelectionPredicate, pods []*corev1.Pod) (members, others []*corev1.Pod) {
	for _, pod := range pods {
		member, err := predicate.ShardSelector.Matches(pod)
		if err != nil {
			b.Fatal(err)
		}
		if member {
			members = append(members, pod)
		} else {
			others = append(others, pod)
		}
	}
	return members, others
}

// A list of one namespace of 100, and of a part of it by hash key. All pods have owners, or in
// another cacher only every other one.
func BenchmarkHashKeyNamespace(b *testing.B) {
	withGates(b)
	pods := benchPodList(2 * benchPods)
	cacher := benchCacher(b, pods)
	var variants []variant
	list := func(name string, batch int, cacher *Cacher, predicate storage.SelectionPredicate) {
		variants = append(variants, variant{name: name, batch: batch, run: func() {
			for range batch {
				benchList(b, cacher, "/pods/"+pods[0].Namespace+"/", predicate)
			}
		}})
	}
	list("all", 5, cacher, everything())
	for _, p := range benchPaths[1:4] {
		benchList(b, cacher, "/pods/", part(b, p.path, 3, benchParts)) // somebody else's, which makes the order
		list(p.name, 5, cacher, part(b, p.path, 3, benchParts))
		list(p.name+"-half", 5, cacher, part(b, p.path, 1, 2))
		list(p.name+"-whole", 5, cacher, part(b, p.path, 0, 1))
	}
	list("owner", 100, cacher, ofOwner(sharding.HomeHashKeyPath, pods[0]))
	halfOwned := make([]*corev1.Pod, len(pods))
	for i, pod := range pods {
		halfOwned[i] = pod
		if i/10%2 == 1 {
			halfOwned[i] = pod.DeepCopy()
			halfOwned[i].OwnerReferences = nil
		}
	}
	beside := benchCacher(b, halfOwned)
	benchList(b, beside, "/pods/", ofOwner(sharding.HomeHashKeyPath, pods[0]))
	list("owner-beside-unowned", 100, beside, ofOwner(sharding.HomeHashKeyPath, pods[0]))
	compareShort(b, 7, variants...)
}

// All pages of 500 of a list.
func BenchmarkHashKeyPages(b *testing.B) {
	withGates(b)
	pods := benchPodList(benchPods)
	cacher := benchCacher(b, pods)
	var variants []variant
	pages := func(name string, predicate storage.SelectionPredicate) {
		predicate.Limit = 500
		variants = append(variants, variant{name: name, batch: 1, run: func() {
			opts := storage.ListOptions{Recursive: true, Predicate: predicate}
			for {
				list := &corev1.PodList{}
				if err := cacher.GetList(context.Background(), "/pods/", opts, list); err != nil {
					b.Fatal(err)
				}
				if opts.Predicate.Continue = list.Continue; list.Continue == "" {
					return
				}
			}
		}})
	}
	pages("all", everything())
	for _, p := range benchPaths {
		pages(p.name, evenPart(b, p.path, pods))
		if p.path != uidPath {
			pages(p.name+"-whole", part(b, p.path, 0, 1))
		}
	}
	compare(b, variants...)
}

// progressNotified is an etcd that can be asked for progress, as every supported etcd
// can. Streaming lists depend on that.
type progressNotified struct {
	etcdfeature.FeatureSupportChecker
}

func (progressNotified) Supports(storage.Feature) bool { return true }

func BenchmarkHashKeyInitialEvents(b *testing.B) {
	withGates(b)
	checker := etcdfeature.DefaultFeatureSupportChecker
	etcdfeature.DefaultFeatureSupportChecker = progressNotified{checker}
	defer func() { etcdfeature.DefaultFeatureSupportChecker = checker }()
	cacher := benchCacher(b, benchPodList(benchPods))
	var variants []variant
	for _, p := range benchPaths[:3] {
		predicate := part(b, p.path, 3, benchParts)
		predicate.AllowWatchBookmarks = true
		variants = append(variants, variant{name: p.name, batch: 5, run: func() {
			for range 5 {
				ctx, cancel := context.WithCancel(context.Background())
				w, err := cacher.Watch(ctx, "/pods/", storage.ListOptions{
					ResourceVersion: "0", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
					SendInitialEvents: ptr.To(true), Recursive: true, Predicate: predicate})
				if err != nil {
					b.Fatal(err)
				}
				for event := range w.ResultChan() {
					if event.Type == watch.Bookmark {
						break
					}
					if event.Type != watch.Added {
						b.Fatal(event)
					}
				}
				w.Stop()
				cancel()
			}
		}})
	}
	compare(b, variants...)
}

// One update, from its arrival in the watch cache until the only watcher whose range holds
// it has received it.
func BenchmarkHashKeyDispatch(b *testing.B) {
	withGates(b)
	pods := benchPodList(1000)
	ctx, cancel := context.WithCancel(context.Background())
	var variants []variant
	for _, watchers := range []uint64{1, 256} {
		for _, p := range benchPaths[:3] {
			cacher := benchCacher(b, pods)
			received := make(chan struct{}, 1)
			var wg sync.WaitGroup
			var offered []*cacheWatcher // those that are offered every event
			for i := range watchers {
				w, err := cacher.Watch(ctx, "/pods/", storage.ListOptions{
					ResourceVersion: strconv.Itoa(len(pods) + 1), Recursive: true, Predicate: part(b, p.path, i, watchers)})
				if err != nil {
					b.Fatal(err)
				}
				if p.path == uidPath {
					offered = append(offered, w.(*cacheWatcher))
				}
				wg.Go(func() {
					for event := range w.ResultChan() {
						if event.Type == watch.Modified {
							received <- struct{}{}
						}
					}
				})
			}
			defer wg.Wait()
			version := uint64(len(pods) + 1)
			var updates []*corev1.Pod
			variants = append(variants, variant{
				name:    fmt.Sprintf("%s-%d", p.name, watchers),
				batch:   1000,
				prepare: func() { updates = benchUpdates(pods, 1000, &version) },
				run: func() {
					for i, update := range updates {
						if err := cacher.watchCache.Update(update); err != nil {
							b.Fatal(err)
						}
						<-received
						if i%5 != 4 {
							continue
						}
						// The other watchers may still be filtering events. Wait for them
						// before their buffers, of ten events each, are full.
						for _, w := range offered {
							for len(w.input) > 0 {
								runtime.Gosched()
							}
						}
					}
				},
			})
		}
	}
	defer cancel()
	compare(b, variants...)
}

// benchUpdates returns n newer versions of pods.
func benchUpdates(pods []*corev1.Pod, n int, version *uint64) []*corev1.Pod {
	updates := make([]*corev1.Pod, n)
	for i := range updates {
		*version++
		updates[i] = pods[rand.Intn(len(pods))].DeepCopy()
		updates[i].ResourceVersion = strconv.FormatUint(*version, 10)
	}
	return updates
}

// benchKept has the key paths whose orders lists have asked for.
var benchKept = map[string][]string{
	"without":                    nil,
	"with-controllerRef.hashKey": {sharding.ControllerHashKeyPath},
	"with-both":                  {sharding.ControllerHashKeyPath, sharding.HashKeyPath},
	"with-all":                   {sharding.ControllerHashKeyPath, sharding.HashKeyPath, sharding.HomeHashKeyPath, sharding.NamespaceHashKeyPath},
}

// The cost of keeping the indexes: writes into the watch caches of collections of a
// constant size. It is smaller than the noise of the machine, so the collections take
// turns after a few writes each. A batch ends with the work that the index has put off until
// then, and with a list of a narrow range of each order.
func BenchmarkHashKeyWrite(b *testing.B) {
	withGates(b)
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	pods := benchPodList(benchPods)
	const batch, turn = 15_000, 100
	type collection struct {
		name            string
		cacher          *Cacher
		paths           []string
		extras, updates []*corev1.Pod
		used            time.Duration
	}
	var collections []*collection
	list := func(c *collection) {
		for _, path := range c.paths {
			opts := storage.ListOptions{ResourceVersion: "0", Recursive: true, Predicate: part(b, path, 0, benchPods)}
			if err := c.cacher.GetList(context.Background(), "/pods/", opts, &corev1.PodList{}); err != nil {
				b.Fatal(err)
			}
		}
	}
	for name, paths := range benchKept {
		c := &collection{name: name, cacher: benchCacher(b, pods), paths: paths}
		c.cacher.watchCache.config.eventHandler = nil
		list(c)
		collections = append(collections, c)
	}
	inTurns := func(f func(*collection)) {
		for _, i := range rand.Perm(len(collections)) {
			f(collections[i])
		}
	}
	measure := func(c *collection, f func()) {
		before := processTime(b)
		f()
		c.used += processTime(b) - before
	}
	write := func(operation func(*watchCache, interface{}) error, data func(*collection) []*corev1.Pod) {
		for at := 0; at < batch; at += turn {
			inTurns(func(c *collection) {
				var decoded [turn]*corev1.Pod // just now, like objects that come from etcd
				for i, pod := range data(c)[at : at+turn] {
					decoded[i] = pod.DeepCopy()
				}
				measure(c, func() {
					for _, pod := range decoded {
						if err := operation(c.cacher.watchCache, pod); err != nil {
							b.Fatal(err)
						}
					}
				})
			})
		}
		inTurns(func(c *collection) {
			measure(c, func() { c.cacher.watchCache.storage.SettleHashKeys() })
			measure(c, func() { list(c) })
		})
	}
	extras := func(c *collection) []*corev1.Pod { return c.extras }
	version := uint64(benchPods + 1)
	for range b.N {
		for _, c := range collections {
			c.extras, c.updates = benchExtras(batch, &version), benchUpdates(pods, batch, &version)
		}
		runtime.GC()
		write((*watchCache).Add, extras)
		write((*watchCache).Update, func(c *collection) []*corev1.Pod { return c.updates })
		write((*watchCache).Delete, extras)
	}
	for _, c := range collections {
		b.ReportMetric(float64(c.used)/float64(b.N*batch), c.name+"-cpu-ns")
	}
	b.ReportMetric(0, "ns/op")
}

// benchExtras returns n pods that are in no other list, ten for each controller.
func benchExtras(n int, version *uint64) []*corev1.Pod {
	extras, first := make([]*corev1.Pod, n), 0
	for i := range extras {
		if i%10 == 0 {
			first = 2*benchPods + rand.Intn(1<<26)*10
		}
		*version++
		extras[i] = benchPod(first + i%10)
		extras[i].ResourceVersion = strconv.FormatUint(*version, 10)
	}
	return extras
}

// The memory that the indexes hold for each object.
func BenchmarkHashKeyMemory(b *testing.B) {
	withGates(b)
	cacher := benchCacher(b, nil)
	pods := benchPodList(benchPods)
	rand.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	held := func(paths []string) float64 {
		before := liveBytes()
		storage := store.NewWatchCacheStorage(cacher.watchCache.config.keyFunc, nil)
		for _, fieldPath := range paths {
			path, _ := sharding.ParseKeyPath(fieldPath)
			storage.KeepHashKeys(path)
		}
		for i, pod := range pods {
			key, _ := cacher.watchCache.config.keyFunc(pod)
			if err := storage.UpdateStoreLocked(watch.Added, &store.Element{Key: key, Object: pod}, uint64(i+2)); err != nil {
				b.Fatal(err)
			}
			storage.CompactSnapshotsLocked(uint64(i + 2))
		}
		storage.SettleHashKeys()
		after := liveBytes()
		runtime.KeepAlive(storage)
		return float64(after-before) / benchPods
	}
	// Each element has these fields for the index, whether an order is kept or not.
	const fields = float64(unsafe.Sizeof(store.Element{}.Indexed) + unsafe.Sizeof(store.Element{}.Written))
	without := held(nil)
	for name, paths := range benchKept {
		if len(paths) > 0 {
			b.ReportMetric(fields+held(paths)-without, name+"-B/object")
		}
	}
	b.ReportMetric(0, "ns/op")
}

func liveBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
