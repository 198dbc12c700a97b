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
	"fmt"
	"maps"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	etcd3testing "k8s.io/apiserver/pkg/storage/etcd3/testing"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// TestHashKeyIndexesAgainstPlainFilters asks three sources each question: a cacher with
// the indexes, one without them, and a plain filter over all that etcd ever held. It draws
// writes, lists, watches, restarts and relists at random, and all three must agree. With
// -count it runs longer, each time on another sequence; HASH_KEY_SEED repeats one.
func TestHashKeyIndexesAgainstPlainFilters(t *testing.T) {
	seed := time.Now().UnixNano()
	if text := os.Getenv("HASH_KEY_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseInt(text, 10, 64); err != nil {
			t.Fatalf("HASH_KEY_SEED: %v", err)
		}
	}
	t.Logf("HASH_KEY_SEED=%d", seed)
	d := newDifferential(t, seed)
	for range 40 {
		d.round()
	}
	d.quiet()
	t.Logf("%d operations: %d writes, %d lists, %d watches with %d events, %d relists, %d restarts",
		d.writes+d.lists.Load()+d.watches+d.events, d.writes, d.lists.Load(), d.watches, d.events, d.relists, d.restarts)
	if d.lists.Load() == 0 || d.events == 0 {
		t.Error("nothing was compared")
	}
}

// differential compares two cachers with the log of etcd.
type differential struct {
	t      *testing.T
	random *rand.Rand
	etcd   storage.Interface
	// sides are the cachers, the one with the indexes first.
	sides [2]*side

	lock sync.Mutex
	// log has every change in etcd, as seen by a watch of its own.
	log []change

	pairs []*watchPair

	writes, watches, events, relists, restarts int64
	lists                                      atomic.Int64
}

type change struct {
	revision      uint64
	before, after *corev1.PersistentVolume
}

type side struct {
	*CacheDelegator
	storage *expiringStorage
	cacher  *Cacher
}

// expiringStorage is etcd whose next watch can fail as if its revision had been compacted.
// A cacher then lists again.
type expiringStorage struct {
	storage.Interface
	lock sync.Mutex
	live watch.Interface
	fail bool
}

func (s *expiringStorage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.fail {
		s.fail = false
		return nil, apierrors.NewResourceExpired("compacted for the test")
	}
	var err error
	s.live, err = s.Interface.Watch(ctx, key, opts)
	return s.live, err
}

// EnableResourceSizeEstimation does nothing: one etcd client serves several cachers here,
// and can estimate for only one.
func (s *expiringStorage) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }

func (s *expiringStorage) expire() {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.fail = true
	if s.live != nil {
		s.live.Stop()
	}
}

func newDifferential(t *testing.T, seed int64) *differential {
	withGates(t)
	etcd := newVolumeStorage(t)
	forceRequestWatchProgressSupport(t)
	d := &differential{t: t, random: rand.New(rand.NewSource(seed)), etcd: etcd}
	for i := range d.sides {
		d.start(i)
	}
	t.Cleanup(func() {
		for _, p := range d.pairs {
			p.stop()
		}
		for _, s := range d.sides {
			s.Stop()
			s.cacher.Stop()
		}
	})

	ctx, cancel := context.WithCancel(context.Background())
	w, err := etcd.Watch(ctx, "/volumes/", storage.ListOptions{ResourceVersion: "1", Recursive: true, Predicate: storage.Everything})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		now := map[string]*corev1.PersistentVolume{}
		for event := range w.ResultChan() {
			volume, ok := event.Object.(*corev1.PersistentVolume)
			if !ok || event.Type == watch.Bookmark {
				continue
			}
			c := change{revision: revisionOf(volume), before: now[volumeKey(volume)], after: volume}
			if event.Type == watch.Deleted {
				c.after = nil
				delete(now, volumeKey(volume))
			} else {
				now[volumeKey(volume)] = volume
			}
			d.lock.Lock()
			d.log = append(d.log, c)
			d.lock.Unlock()
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return d
}

// start starts a cacher, the first with the indexes and the other without.
func (d *differential) start(i int) {
	d.t.Helper()
	err := utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{string(features.ControllerRing): i == 0})
	if err != nil {
		d.t.Fatal(err)
	}
	s := &side{storage: &expiringStorage{Interface: d.etcd}}
	s.cacher, err = NewCacherFromConfig(Config{
		Storage:             s.storage,
		Versioner:           storage.APIObjectVersioner{},
		GroupResource:       schema.GroupResource{Resource: "volumes"},
		EventsHistoryWindow: DefaultEventFreshDuration,
		ResourcePrefix:      "/volumes/",
		KeyFunc:             func(obj runtime.Object) (string, error) { return volumeKey(obj.(*corev1.PersistentVolume)), nil },
		GetAttrsFunc:        differentialAttrs,
		NewFunc:             newVolume,
		NewListFunc:         newVolumeList,
		Codec:               corev1ProtoCodec,
		Clock:               clock.RealClock{},
	})
	if err != nil {
		d.t.Fatal(err)
	}
	if err := s.cacher.Wait(context.Background()); err != nil {
		d.t.Fatal(err)
	}
	if indexes := s.cacher.watchCache.storage.IndexesHashKeys(); indexes != (i == 0) {
		d.t.Fatalf("cacher %d has indexes: %t", i, indexes)
	}
	s.CacheDelegator = NewCacheDelegator(s.cacher, s.storage)
	d.sides[i] = s
}

// The objects are PersistentVolumes, which have a key at every path. Here most of them are in
// a namespace, and some are cluster-scoped.
func newVolume() runtime.Object     { return &corev1.PersistentVolume{} }
func newVolumeList() runtime.Object { return &corev1.PersistentVolumeList{} }

func volumeKey(volume *corev1.PersistentVolume) string {
	if volume.Namespace == "" {
		return "/volumes/" + volume.Name
	}
	return "/volumes/" + volume.Namespace + "/" + volume.Name
}

func newVolumeStorage(t *testing.T) storage.Interface {
	server, _ := etcd3testing.NewUnsecuredEtcd3TestClientServer(t)
	t.Cleanup(func() { server.Terminate(t) })
	versioner := storage.APIObjectVersioner{}
	compactor := etcd3.NewCompactor(server.V3Client.Client, 0, clock.RealClock{}, nil)
	t.Cleanup(compactor.Stop)
	s, err := etcd3.New(server.V3Client, compactor, corev1ProtoCodec, newVolume, newVolumeList, etcd3testing.PathPrefix(), "/volumes/",
		schema.GroupResource{Resource: "volumes"}, identity.NewEncryptCheckTransformer(), etcd3.NewDefaultLeaseManagerConfig(),
		etcd3.NewDefaultDecoder(corev1ProtoCodec, versioner), versioner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func differentialAttrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	volume := obj.(*corev1.PersistentVolume)
	return volume.Labels, fields.Set{"metadata.name": volume.Name, "metadata.namespace": volume.Namespace, "spec.storageClassName": volume.Spec.StorageClassName}, nil
}

func revisionOf(volume *corev1.PersistentVolume) uint64 {
	revision, _ := strconv.ParseUint(volume.ResourceVersion, 10, 64)
	return revision
}

// round writes while it compares lists and starts and stops watches. Then it compares
// what the watches have seen.
func (d *differential) round() {
	var wg sync.WaitGroup
	for range 2 {
		random := rand.New(rand.NewSource(d.random.Int63()))
		wg.Go(func() {
			for range 40 {
				d.compareList(random)
			}
		})
	}
	random := rand.New(rand.NewSource(d.random.Int63()))
	wg.Go(func() {
		for range 20 {
			q := d.question(random)
			for _, s := range d.sides {
				opts := storage.ListOptions{ResourceVersion: "0", Recursive: true, Predicate: q.SelectionPredicate}
				if w, err := s.Watch(q.context(context.Background()), q.prefix, opts); err == nil {
					w.Stop()
				}
			}
		}
	})
	for range 40 {
		d.write()
	}
	wg.Wait()

	switch d.random.Intn(8) {
	case 0:
		d.sides[d.random.Intn(2)].storage.expire()
		d.relists++
	case 1:
		i := d.random.Intn(2)
		d.sides[i].Stop()
		d.sides[i].cacher.Stop()
		d.start(i)
		d.restarts++
	}
	d.quiet()
	for len(d.pairs) < 24 {
		d.watch()
	}
}

// quiet waits until all have seen the last write, and compares all watches.
func (d *differential) quiet() {
	d.t.Helper()
	head, err := d.etcd.GetCurrentResourceVersion(context.Background())
	if err != nil {
		d.t.Fatal(err)
	}
	d.reach(head)
	for _, s := range d.sides {
		// During a relist the cacher is not ready.
		d.await("a cacher to be ready and up to date", func() bool {
			opts := storage.ListOptions{ResourceVersion: strconv.FormatUint(head, 10), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, Recursive: true, Predicate: storage.Everything}
			return s.cacher.Ready() && s.cacher.GetList(context.Background(), "/volumes/", opts, &corev1.PersistentVolumeList{}) == nil
		})
	}
	kept := d.pairs[:0]
	for _, p := range d.pairs {
		// A slow reader skips some rounds. The cacher may close its watch for that.
		if p.slow && d.random.Intn(3) > 0 || p.compare() {
			kept = append(kept, p)
		}
	}
	d.pairs = kept
}

func (d *differential) await(what string, condition func() bool) {
	d.t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); {
		if time.Now().After(deadline) {
			d.t.Fatalf("timed out waiting for %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// reach waits until the log is complete up to revision: it makes a write, which comes
// after all of that.
func (d *differential) reach(revision uint64) {
	d.t.Helper()
	d.lock.Lock()
	n := len(d.log)
	reached := n > 0 && d.log[n-1].revision >= revision
	d.lock.Unlock()
	if reached {
		return
	}
	marker := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "marker", Name: fmt.Sprintf("marker-%d", rand.Int63()), UID: types.UID(fmt.Sprint(rand.Int63()))}}
	out := &corev1.PersistentVolume{}
	if err := d.etcd.Create(context.Background(), volumeKey(marker), marker, out, 0); err != nil {
		d.t.Fatal(err)
	}
	d.await("the log", func() bool {
		d.lock.Lock()
		defer d.lock.Unlock()
		return len(d.log) > 0 && d.log[len(d.log)-1].revision >= revisionOf(out)
	})
}

// at returns what etcd held at revision.
func (d *differential) at(revision uint64) map[string]*corev1.PersistentVolume {
	d.reach(revision)
	d.lock.Lock()
	defer d.lock.Unlock()
	now := map[string]*corev1.PersistentVolume{}
	for _, c := range d.log {
		if c.revision > revision {
			break
		}
		if c.after != nil {
			now[volumeKey(c.after)] = c.after
		} else if c.before != nil {
			delete(now, volumeKey(c.before))
		}
	}
	return now
}

var (
	differentialOwners = func() []types.UID {
		owners := make([]types.UID, 12)
		for i := range owners {
			owners[i] = types.UID(fmt.Sprintf("owner-%d", i))
		}
		return owners
	}()
	differentialNamespaces = []string{"a", "b", "b-b", ""}
)

// claim returns a reference to a claim, to one whose UID is not known yet, or none.
func (d *differential) claim() *corev1.ObjectReference {
	switch d.random.Intn(6) {
	case 0:
		return nil
	case 1:
		return &corev1.ObjectReference{Name: "claim"}
	}
	return &corev1.ObjectReference{Name: "claim", UID: differentialOwners[d.random.Intn(len(differentialOwners))]}
}

func (d *differential) owners() []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	if d.random.Intn(4) == 0 {
		refs = append(refs, metav1.OwnerReference{Name: "other", UID: "no controller"})
	}
	if d.random.Intn(5) > 0 {
		ref := metav1.OwnerReference{Name: "controller", UID: differentialOwners[d.random.Intn(len(differentialOwners))], Controller: ptr.To(true)}
		if d.random.Intn(3) > 0 { // as an earlier version stored it
			ref.HashKey = ptr.To(hashkey.OfUID(ref.UID))
		}
		refs = append(refs, ref)
	}
	return refs
}

// write creates, changes, adopts, orphans, binds or deletes an object, or creates one that
// expires.
func (d *differential) write() {
	d.t.Helper()
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{
		Namespace: differentialNamespaces[d.random.Intn(len(differentialNamespaces))],
		Name:      fmt.Sprintf("volume-%d", d.random.Intn(60)),
	}}
	key, ctx := volumeKey(volume), context.Background()
	change := func(f func(*corev1.PersistentVolume)) error {
		return d.etcd.GuaranteedUpdate(ctx, key, &corev1.PersistentVolume{}, false, nil, storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
			f(obj.(*corev1.PersistentVolume))
			return obj, nil
		}), nil)
	}
	var err error
	switch operation := d.random.Intn(10); operation {
	case 0, 1, 2, 3:
		volume.UID = types.UID(fmt.Sprintf("volume-%x", d.random.Int63()))
		volume.Labels = map[string]string{"color": []string{"red", "blue"}[d.random.Intn(2)]}
		volume.Spec.StorageClassName = fmt.Sprintf("class-%d", d.random.Intn(3))
		volume.Spec.ClaimRef = d.claim()
		volume.OwnerReferences = d.owners()
		if d.random.Intn(3) > 0 {
			volume.HashKey = ptr.To(hashkey.OfUID(volume.UID))
		}
		ttl := uint64(0)
		if operation == 0 {
			ttl = 1
		}
		err = d.etcd.Create(ctx, key, volume, &corev1.PersistentVolume{}, ttl)
	case 4, 5:
		err = change(func(p *corev1.PersistentVolume) { p.OwnerReferences = d.owners() })
	case 6:
		err = change(func(p *corev1.PersistentVolume) { p.Spec.ClaimRef = d.claim() })
	case 7:
		err = change(func(p *corev1.PersistentVolume) {
			p.Labels["color"] = []string{"red", "blue", "green"}[d.random.Intn(3)]
		})
	default:
		err = d.etcd.Delete(ctx, key, &corev1.PersistentVolume{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
	}
	if err != nil && !storage.IsNotFound(err) && !storage.IsExist(err) {
		d.t.Fatal(err)
	}
	d.writes++
}

// question is what both cachers and the log are asked.
type question struct {
	storage.SelectionPredicate
	prefix    string
	namespace string
}

func (q question) context(ctx context.Context) context.Context {
	if q.namespace != "" {
		return request.WithNamespace(ctx, q.namespace)
	}
	return ctx
}

func (q question) matches(volume *corev1.PersistentVolume) bool {
	if volume == nil || !strings.HasPrefix(volumeKey(volume), q.prefix) {
		return false
	}
	selector := q.ShardSelector.(sharding.HashKeySelector)
	key, found := plainKeyOf(volume, selector.Path())
	inRange := !found || selector.Ranges().Contains(key)
	l, f, _ := differentialAttrs(volume)
	return inRange && q.Label.Matches(l) && q.Field.Matches(f)
}

// plainKeyOf reads a key from what it is made of, never from hashKey.
func plainKeyOf(volume *corev1.PersistentVolume, path sharding.KeyPath) (key int64, found bool) {
	switch path {
	case sharding.KeyPathOwn, sharding.KeyPathHome:
		key, found = hashkey.OfUID(volume.UID), true
	case sharding.KeyPathNamespace:
		return hashkey.OfNamespace(volume.Namespace), volume.Namespace != ""
	case sharding.KeyPathClaim:
		if ref := volume.Spec.ClaimRef; ref != nil && ref.UID != "" {
			return hashkey.OfUID(ref.UID), true
		}
		return 0, false
	}
	for _, ref := range volume.OwnerReferences {
		if path != sharding.KeyPathOwn && ref.Controller != nil && *ref.Controller {
			key, found = hashkey.OfUID(ref.UID), true
		}
	}
	return key, found
}

func (d *differential) question(random *rand.Rand) question {
	q := question{prefix: "/volumes/", SelectionPredicate: storage.SelectionPredicate{
		Label: labels.Everything(), Field: fields.Everything(), GetAttrs: differentialAttrs, AllowWatchBookmarks: random.Intn(2) == 0,
	}}
	if random.Intn(2) == 0 {
		q.namespace = differentialNamespaces[random.Intn(3)]
		q.prefix += q.namespace + "/"
	}
	if random.Intn(4) == 0 {
		q.Label = labels.SelectorFromSet(labels.Set{"color": "red"})
	}
	switch random.Intn(8) {
	case 0:
		q.Field = fields.OneTermEqualSelector("spec.storageClassName", "class-1")
	case 1:
		q.Field = fields.OneTermEqualSelector("metadata.name", fmt.Sprintf("volume-%d", random.Intn(60)))
	}
	path := sharding.KeyPath(random.Intn(int(sharding.NumKeyPaths)))
	var ranges hashkey.Ranges
	switch random.Intn(6) {
	case 0: // the dependents of one owner, or what is in one namespace
		key := uint64(hashkey.OfUID(differentialOwners[random.Intn(len(differentialOwners))]))
		if path == sharding.KeyPathNamespace {
			key = uint64(hashkey.OfNamespace(differentialNamespaces[random.Intn(3)]))
		}
		ranges = hashkey.NewRanges(hashkey.Range{Start: key, End: key + 1})
	case 1: // across the seam, mostly
		ranges = hashkey.Between(random.Int63(), random.Int63())
	case 2:
		ranges = hashkey.All()
	case 3: // several
		for range 3 {
			start := uint64(random.Int63())
			ranges = ranges.Union(hashkey.NewRanges(hashkey.Range{Start: start, End: start + hashkey.Limit/8}))
		}
	default: // one of sixteen
		start := uint64(random.Intn(16)) * (hashkey.Limit / 16)
		ranges = hashkey.NewRanges(hashkey.Range{Start: start, End: start + hashkey.Limit/16})
	}
	var requirements []sharding.ShardRangeRequirement
	for _, r := range ranges {
		requirements = append(requirements, sharding.ShardRangeRequirement{Key: path.String(), Start: fmt.Sprintf("0x%016x", r.Start), End: fmt.Sprintf("0x%016x", r.End)})
	}
	if random.Intn(20) == 0 { // above all keys
		requirements = []sharding.ShardRangeRequirement{{Key: path.String(), Start: "0x9000000000000000", End: "0xa000000000000000"}}
	}
	q.ShardSelector = sharding.NewSelector(requirements...)
	return q
}

// compareList asks both cachers for a list, paged or not, at one of the kinds of resource
// version, and compares each answer with what etcd held then.
func (d *differential) compareList(random *rand.Rand) {
	d.t.Helper()
	q := d.question(random)
	opts := storage.ListOptions{Recursive: true, Predicate: q.SelectionPredicate}
	d.lock.Lock()
	var past uint64
	if n := len(d.log); n > 0 {
		past = d.log[n-1-random.Intn(min(n, 100))].revision
	}
	d.lock.Unlock()
	switch kind := random.Intn(5); {
	case kind == 0:
		opts.ResourceVersion = "0"
	case kind == 1 && past > 0:
		opts.ResourceVersion, opts.ResourceVersionMatch = strconv.FormatUint(past, 10), metav1.ResourceVersionMatchExact
	case kind == 2 && past > 0:
		opts.ResourceVersion, opts.ResourceVersionMatch = strconv.FormatUint(past, 10), metav1.ResourceVersionMatchNotOlderThan
	}
	if random.Intn(2) == 0 {
		opts.Predicate.Limit = int64(1 + random.Intn(10))
	}
	for i, s := range d.sides {
		what := fmt.Sprintf("side %d, list of %s by %s, label %q, field %q, resource version %q %s, limit %d",
			i, q.prefix, q.ShardSelector, q.Label, q.Field, opts.ResourceVersion, opts.ResourceVersionMatch, opts.Predicate.Limit)
		var items []corev1.PersistentVolume
		var revision uint64
		remaining := map[int]int64{}
		opts := opts
		for {
			list := &corev1.PersistentVolumeList{}
			err := s.GetList(q.context(context.Background()), q.prefix, opts, list)
			if apierrors.IsTooManyRequests(err) || storage.IsTooLargeResourceVersion(err) {
				return // during a relist
			}
			if err != nil {
				d.t.Errorf("%s: %v", what, err)
				return
			}
			if list.ShardInfo == nil || list.ShardInfo.Selector != q.ShardSelector.String() {
				d.t.Errorf("%s: shardInfo is %v", what, list.ShardInfo)
			}
			at, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
			if err != nil || revision != 0 && at != revision {
				d.t.Errorf("%s: resource version %q, after %d", what, list.ResourceVersion, revision)
			}
			revision = at
			items = append(items, list.Items...)
			if list.RemainingItemCount != nil {
				remaining[len(items)] = *list.RemainingItemCount
			}
			if list.Continue == "" {
				break
			}
			opts.Predicate.Continue = list.Continue
			opts.ResourceVersion, opts.ResourceVersionMatch = "", ""
		}
		if opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact && revision != past {
			d.t.Errorf("%s: resource version %d", what, revision)
		}
		var want []string
		state := d.at(revision)
		for _, key := range slices.Sorted(maps.Keys(state)) {
			if q.matches(state[key]) {
				want = append(want, key+"@"+state[key].ResourceVersion)
			}
		}
		var got []string
		for i := range items {
			got = append(got, volumeKey(&items[i])+"@"+items[i].ResourceVersion)
		}
		if !slices.Equal(got, want) {
			d.t.Errorf("%s at %d:\n got %q\nwant %q", what, revision, got, want)
		}
		for n, left := range remaining {
			if left != int64(len(want)-n) {
				d.t.Errorf("%s: after %d of %d items, %d remaining", what, n, len(want), left)
			}
		}
	}
	d.lists.Add(1)
}

// watchPair is one watch on both cachers.
type watchPair struct {
	d *differential
	question
	slow    bool
	watches [2]watch.Interface
	cancel  [2]context.CancelFunc
	// next is the revision after which each continues.
	next [2]uint64
}

// watch starts a watch in a quiet moment: from now, with initial events, or from a past
// revision.
func (d *differential) watch() {
	d.t.Helper()
	p := &watchPair{d: d, question: d.question(d.random), slow: d.random.Intn(4) == 0}
	d.lock.Lock()
	head := d.log[len(d.log)-1].revision
	past := d.log[max(0, len(d.log)-1-d.random.Intn(30))].revision
	d.lock.Unlock()
	kind := d.random.Intn(3)
	initial := kind != 2
	for i, s := range d.sides {
		opts := storage.ListOptions{Recursive: true, Predicate: p.SelectionPredicate}
		p.next[i] = head
		switch kind {
		case 0:
			opts.ResourceVersion = "0"
		case 1:
			opts.ResourceVersionMatch, opts.SendInitialEvents = metav1.ResourceVersionMatchNotOlderThan, ptr.To(true)
			opts.Predicate.AllowWatchBookmarks = true
		default:
			opts.ResourceVersion = strconv.FormatUint(past, 10)
			p.next[i] = past
		}
		var ctx context.Context
		ctx, p.cancel[i] = context.WithCancel(p.context(context.Background()))
		var err error
		if p.watches[i], err = s.Watch(ctx, p.prefix, opts); err != nil {
			if !apierrors.IsTooManyRequests(err) { // the answer during a relist
				d.t.Fatal(err)
			}
			p.stop()
			return
		}
	}
	// An object may have expired in the meantime. Then the initial state is unknown.
	if now, err := d.etcd.GetCurrentResourceVersion(context.Background()); err != nil || initial && now != head {
		p.stop()
		return
	}
	if initial {
		state := d.at(head)
		for i := range d.sides {
			for _, key := range slices.Sorted(maps.Keys(state)) {
				if p.matches(state[key]) && !p.expect(i, watch.Added, state[key].ResourceVersion, state[key]) {
					p.stop() // a relist closed it
					return
				}
			}
		}
	}
	if p.compare() {
		d.watches++
		d.pairs = append(d.pairs, p)
	}
}

func (p *watchPair) name(i int) string {
	return fmt.Sprintf("side %d, watch of %s by %s, label %q, field %q", i, p.prefix, p.ShardSelector, p.Label, p.Field)
}

func (p *watchPair) stop() {
	for i, w := range p.watches {
		if w != nil {
			w.Stop()
		}
		if p.cancel[i] != nil {
			p.cancel[i]()
		}
	}
}

// compare compares both watches with the log. It returns false if either was closed, which
// restarts, relists and slow readers cause.
func (p *watchPair) compare() bool {
	p.d.t.Helper()
	p.d.lock.Lock()
	log := p.d.log
	p.d.lock.Unlock()
	open := true
	for i := range p.watches {
		for _, c := range log {
			if c.revision <= p.next[i] || !open {
				continue
			}
			revision := strconv.FormatUint(c.revision, 10)
			was, is := p.matches(c.before), p.matches(c.after)
			switch {
			case was && is:
				open = p.expect(i, watch.Modified, revision, c.after)
			case is:
				open = p.expect(i, watch.Added, revision, c.after)
			case was:
				open = p.expect(i, watch.Deleted, revision, c.before)
			}
			p.next[i] = c.revision
		}
	}
	if !open || p.d.random.Intn(20) == 0 {
		p.stop()
		return false
	}
	return true
}

// expect compares the next event. It returns false if the watch has been closed.
func (p *watchPair) expect(i int, kind watch.EventType, revision string, volume *corev1.PersistentVolume) bool {
	p.d.t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case event, ok := <-p.watches[i].ResultChan():
			if !ok {
				return false
			}
			if event.Type == watch.Bookmark {
				continue
			}
			if status, ok := event.Object.(*metav1.Status); ok {
				if status.Reason != metav1.StatusReasonExpired {
					p.d.t.Fatalf("%s: %v", p.name(i), status)
				}
				return false
			}
			object := event.Object
			if caching, ok := object.(*cachingObject); ok {
				object = caching.GetObject()
			}
			got := object.(*corev1.PersistentVolume)
			if event.Type != kind || volumeKey(got) != volumeKey(volume) || got.ResourceVersion != revision {
				p.d.t.Fatalf("%s: got %s %s@%s, want %s %s@%s", p.name(i), event.Type, volumeKey(got), got.ResourceVersion, kind, volumeKey(volume), revision)
			}
			p.d.events++
			return true
		case <-timeout:
			p.d.t.Fatalf("%s: timed out waiting for %s %s@%s", p.name(i), kind, volumeKey(volume), revision)
		}
	}
}
