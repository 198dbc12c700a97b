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
	"context"
	"errors"
	"fmt"
	"math/rand"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/rangewatch"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/klog/v2"
	kubeapiservertesting "k8s.io/kubernetes/cmd/kube-apiserver/app/testing"
	"k8s.io/kubernetes/test/integration"
	"k8s.io/kubernetes/test/integration/framework"
)

// An informer follows its ranges on a real server whatever happens to its requests, also
// if the server does not support the selector.
func TestInformersFollowRanges(t *testing.T) {
	for _, selects := range []bool{true, false} {
		t.Run(fmt.Sprintf("selects=%t", selects), func(t *testing.T) {
			gates := fmt.Sprintf("--feature-gates=ControllerRing=%[1]t,ShardedListAndWatch=%[1]t", selects)
			server := kubeapiservertesting.StartTestServerOrDie(t, nil, []string{"--disable-admission-plugins=ServiceAccount", gates}, framework.SharedEtcd())
			t.Cleanup(server.TearDownFn)
			config := rest.CopyConfig(server.ClientConfig)
			config.QPS = -1
			client := kubernetes.NewForConfigOrDie(config)
			list, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{Limit: 1, ShardSelector: hashkey.All().Selector(sharding.HashKeyPath)})
			if err != nil {
				t.Fatal(err)
			}
			if got := list.ShardInfo != nil; got != selects {
				t.Fatalf("the server knows the selector: %t", got)
			}
			for _, field := range []string{sharding.HashKeyPath, sharding.ControllerHashKeyPath} {
				for _, pages := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/pages=%t", field, pages), func(t *testing.T) {
						newFollower(t, func() kubernetes.Interface { return client }, field, pages, selects).test()
					})
				}
			}
		})
	}
}

// A server that has sharded lists, but not the paths of hash keys, refuses the selector.
func TestInformersFollowRangesOfAServerThatRefusesThem(t *testing.T) {
	server := kubeapiservertesting.StartTestServerOrDie(t, nil, []string{"--disable-admission-plugins=ServiceAccount", "--feature-gates=ControllerRing=false,ShardedListAndWatch=true"}, framework.SharedEtcd())
	t.Cleanup(server.TearDownFn)
	config := rest.CopyConfig(server.ClientConfig)
	config.QPS = -1
	client := kubernetes.NewForConfigOrDie(config)
	if _, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{ShardSelector: hashkey.All().Selector(sharding.HashKeyPath)}); err == nil {
		t.Fatal("the server takes the selector")
	}
	newFollower(t, func() kubernetes.Interface { return client }, sharding.ControllerHashKeyPath, false, false).test()
}

// A server without a watch cache sends no bookmarks. It refuses to say how far it is, and is
// listed.
func TestInformersFollowRangesWithoutAWatchCache(t *testing.T) {
	for _, flag := range []string{"--watch-cache=false", "--watch-cache-sizes=pods#0"} {
		t.Run(flag, func(t *testing.T) {
			server := kubeapiservertesting.StartTestServerOrDie(t, nil, []string{"--disable-admission-plugins=ServiceAccount", flag}, framework.SharedEtcd())
			t.Cleanup(server.TearDownFn)
			config := rest.CopyConfig(server.ClientConfig)
			config.QPS = -1
			client := kubernetes.NewForConfigOrDie(config)
			for _, pages := range []bool{false, true} {
				t.Run(fmt.Sprintf("pages=%t", pages), func(t *testing.T) {
					newFollower(t, func() kubernetes.Interface { return client }, sharding.ControllerHashKeyPath, pages, true).test()
				})
			}
		})
	}
}

// The revisions of another etcd are lower than those of everything else at first, then higher.
func TestInformersFollowRangesInAnotherEtcd(t *testing.T) {
	etcd := func(name string) string {
		url, stop, err := framework.RunCustomEtcd(klog.FromContext(t.Context()), name, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
		return url
	}
	storage := framework.SharedEtcd()
	storage.Transport.ServerList = []string{etcd("others")} // new, so its revisions are soon passed
	server := kubeapiservertesting.StartTestServerOrDie(t, nil, []string{"--disable-admission-plugins=ServiceAccount", "--etcd-servers-overrides=/pods#" + etcd("pods")}, storage)
	t.Cleanup(server.TearDownFn)
	config := rest.CopyConfig(server.ClientConfig)
	config.QPS = -1
	client := kubernetes.NewForConfigOrDie(config)
	f := newFollower(t, func() kubernetes.Interface { return client }, sharding.ControllerHashKeyPath, false, true)
	f.round()
	for higher := false; !higher; {
		pods, err := client.CoreV1().Pods("").List(f.ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		others, err := client.CoreV1().ConfigMaps("").List(f.ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		higher = newer(pods.ResourceVersion, others.ResourceVersion)
		f.write(f.Intn(podCount))
	}
	f.round()
}

// The API server is replaced again and again, without its watches and caches, and etcd is
// compacted. The informer lists again and is correct.
func TestInformersOutliveServers(t *testing.T) {
	etcd := framework.SharedEtcd()
	var current atomic.Pointer[kubernetes.Clientset]
	client := func() kubernetes.Interface { return current.Load() }
	// start returns a function that cuts all connections to the server and stops it.
	start := func() (stop func()) {
		server := kubeapiservertesting.StartTestServerOrDie(t, nil, []string{"--disable-admission-plugins=ServiceAccount"}, etcd)
		var down atomic.Bool
		dialer := connrotation.NewDialer(func(ctx context.Context, network, address string) (net.Conn, error) {
			if down.Load() {
				return nil, errors.New("the server is down")
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		})
		config := rest.CopyConfig(server.ClientConfig)
		config.QPS = -1
		config.Dial = dialer.DialContext
		current.Store(kubernetes.NewForConfigOrDie(config))
		return func() {
			down.Store(true)
			dialer.CloseAll()
			server.TearDownFn()
		}
	}
	stop := start()
	defer func() { stop() }()
	storage, _, err := integration.GetEtcdClients(etcd.Transport)
	if err != nil {
		t.Fatal(err)
	}
	defer storage.Close()
	var followers []*follower
	for _, field := range []string{sharding.HashKeyPath, sharding.ControllerHashKeyPath} {
		for _, pages := range []bool{false, true} {
			followers = append(followers, newFollower(t, client, field, pages, true))
		}
	}
	for range 3 {
		for _, f := range followers {
			f.round()
			// A request that is under way when the server stops.
			f.want = f.ranges()
			f.source.SetRanges(f.want)
		}
		stop()
		status, err := storage.Get(t.Context(), "any")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := storage.Compact(t.Context(), status.Header.Revision); err != nil {
			t.Fatal(err)
		}
		stop = start()
		for _, f := range followers {
			f.write(f.Intn(podCount))
			f.settled()
		}
	}
	for _, f := range followers {
		f.Logf("%s: %d writes, %d changes of ranges, %d waits", f.requests.namespace, f.done.writes.Load(), f.done.rangeChanges.Load(), f.done.waits.Load())
	}
}

// follower is an informer of pods that follows ranges.
type follower struct {
	*testing.T
	*rand.Rand
	ctx    context.Context
	client func() kubernetes.Interface
	field  string
	// tellsProgress is set for a server that supports progress requests of watches.
	tellsProgress bool
	requests      *requests
	source        *rangewatch.Source
	store         cache.Store
	want          hashkey.Ranges
	done          *counts
	// claimed is the latest resource version that the store has reported.
	claimed string

	mu   sync.Mutex
	told map[string]*v1.Pod
}

// counts counts what was done.
type counts struct{ writes, rangeChanges, waits, cuts, expiries, told atomic.Int64 }

// newFollower returns a follower. If pages is set, it lists in pages.
func newFollower(t *testing.T, client func() kubernetes.Interface, field string, pages, tellsProgress bool) *follower {
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	namespace := strings.ToLower("follow-" + string(field[strings.LastIndex(string(field), "metadata.")+len("metadata."):]))
	namespace = strings.ReplaceAll(fmt.Sprintf("%s-%t", namespace, pages), ".", "-")
	seed := time.Now().UnixNano()
	if fixed := os.Getenv("SEED"); fixed != "" {
		var err error
		if seed, err = strconv.ParseInt(fixed, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("repeat with SEED=%d", seed)
	if _, err := client().CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f := &follower{T: t, Rand: rand.New(rand.NewSource(seed)), ctx: ctx, done: &counts{}, client: client, field: field, tellsProgress: tellsProgress, told: map[string]*v1.Pod{}}
	f.requests = &requests{
		namespace: namespace,
		ListWatch: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return client().CoreV1().Pods(namespace).List(ctx, options)
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return client().CoreV1().Pods(namespace).Watch(ctx, options)
			},
		},
		watches: map[watch.Interface]struct{}{},
	}
	lists := cache.ListerWatcher(f.requests)
	if pages {
		lists = noStreams{f.requests}
	}
	var err error
	if f.source, err = rangewatch.NewSource(rangewatch.Config{Field: field, ListWatch: lists, Object: &v1.Pod{}, PageSize: 7}); err != nil {
		t.Fatal(err)
	}
	informer := f.source.NewInformer(cache.SharedIndexInformerOptions{})
	f.store = informer.GetStore()
	if _, err := informer.AddEventHandler(f); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-stopped
	})
	go func() {
		defer close(stopped)
		informer.RunWithContext(ctx)
	}()
	return f
}

// noStreams lists in pages, as with a server that does not stream lists.
type noStreams struct{ *requests }

func (noStreams) IsWatchListSemanticsUnSupported() bool { return true }

// requests is a list-watch whose watches can be cut and made to expire.
type requests struct {
	*cache.ListWatch
	namespace string

	mu      sync.Mutex
	expire  bool
	watches map[watch.Interface]struct{}
}

func (r *requests) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.expire {
		r.expire = false
		return nil, apierrors.NewResourceExpired("made to expire")
	}
	w, err := r.ListWatch.WatchWithContext(ctx, options)
	if err == nil {
		r.watches[w] = struct{}{}
	}
	return w, err
}

func (r *requests) cut(expire bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire = expire
	for w := range r.watches {
		w.Stop()
		delete(r.watches, w)
	}
}

// dawdle makes a handler slow now and then, which delays later events.
func (f *follower) dawdle() {
	if f.done.told.Add(1)%50 == 0 {
		time.Sleep(20 * time.Millisecond)
	}
}

// A handler must see the changes of each object in a consistent order.
func (f *follower) OnAdd(obj any, _ bool) {
	f.dawdle()
	f.mu.Lock()
	defer f.mu.Unlock()
	pod := obj.(*v1.Pod)
	if old, ok := f.told[pod.Name]; ok {
		f.Errorf("%s added @%s, but reported before @%s", pod.Name, pod.ResourceVersion, old.ResourceVersion)
	}
	f.told[pod.Name] = pod
}

func (f *follower) OnUpdate(oldObj, newObj any) {
	f.dawdle()
	f.mu.Lock()
	defer f.mu.Unlock()
	pod := newObj.(*v1.Pod)
	if newer(oldObj.(*v1.Pod).ResourceVersion, pod.ResourceVersion) {
		f.Errorf("%s updated backwards to @%s", pod.Name, pod.ResourceVersion)
	}
	if f.told[pod.Name] != oldObj {
		f.Errorf("%s updated @%s, but not from the last reported object", pod.Name, pod.ResourceVersion)
	}
	f.told[pod.Name] = pod
}

func (f *follower) OnDelete(obj any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	pod := obj.(*v1.Pod)
	if old, ok := f.told[pod.Name]; !ok || old.UID != pod.UID {
		f.Errorf("%s deleted @%s, but never reported", pod.Name, pod.ResourceVersion)
	}
	delete(f.told, pod.Name)
}

// podCount is the number of pods that come and go.
const podCount = 60

// round does random things while pods are written, then waits until the store has
// settled.
func (f *follower) round() {
	f.Helper()
	const steps = 15
	writer := &follower{T: f.T, Rand: rand.New(rand.NewSource(f.Int63())), ctx: f.ctx, client: f.client, field: f.field, requests: f.requests, done: f.done}
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 4 * steps {
			writer.write(writer.Intn(podCount))
		}
	})
	for range steps {
		f.step(podCount)
	}
	wg.Wait()
	f.settled()
}

func (f *follower) test() {
	for i := range podCount {
		f.write(i)
	}
	for range 6 {
		f.round()
	}
	// Without events, long before the server sends a bookmark by itself.
	f.source.SetRanges(f.ranges())
	f.want = hashkey.All()
	f.source.SetRanges(f.want)
	if _, err := f.client().CoreV1().ConfigMaps(f.requests.namespace).Create(f.ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{}); err != nil {
		f.Fatal(err)
	}
	start := time.Now()
	f.waitFor(f.want)
	f.Logf("all ranges after %v", time.Since(start))
	f.settled()
	// Without a range there is no object.
	f.want = nil
	f.source.SetRanges(f.want)
	f.settled()
	f.Logf("%d writes, %d changes of ranges, %d waits, %d watches cut, %d expired, %d things told", f.done.writes.Load(), f.done.rangeChanges.Load(),
		f.done.waits.Load(), f.done.cuts.Load(), f.done.expiries.Load(), f.done.told.Load())
}

func (f *follower) step(pods int) {
	f.Helper()
	switch n := f.Intn(10); {
	case n < 4:
		f.want = f.ranges()
		f.source.SetRanges(f.want)
		f.done.rangeChanges.Add(1)
	case n < 8:
		f.done.waits.Add(1)
		f.write(f.Intn(pods))
		ranges := f.want
		if f.Intn(2) == 0 {
			ranges = ranges.Intersect(f.ranges())
		}
		f.waitFor(ranges)
	case n < 9:
		f.done.cuts.Add(1)
		f.requests.cut(false)
	case f.done.expiries.Load() < 8: // the reflector's back-off doubles with each
		f.done.expiries.Add(1)
		f.requests.cut(true)
	}
	f.notBackwards()
}

// notBackwards checks that the store's resource version has not gone back.
func (f *follower) notBackwards() {
	f.Helper()
	claimed := f.store.LastStoreSyncResourceVersion()
	if newer(f.claimed, claimed) {
		f.Errorf("the store went from @%s to @%s", f.claimed, claimed)
	}
	f.claimed = claimed
}

func (f *follower) ranges() hashkey.Ranges {
	var ranges hashkey.Ranges
	for range 1 + f.Intn(2) {
		start := f.Uint64() % hashkey.Limit
		ranges = ranges.Union(hashkey.NewRanges(hashkey.Range{Start: start, End: start + hashkey.Limit/3}))
	}
	return ranges
}

// write creates, changes or deletes a pod.
func (f *follower) write(i int) {
	f.Helper()
	pods := f.client().CoreV1().Pods(f.requests.namespace)
	name := fmt.Sprintf("pod-%02d", i)
	f.done.writes.Add(1)
	for {
		pod, err := pods.Get(f.ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			pod = &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: f.controller()},
				Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "none"}}},
			}
			_, err = pods.Create(f.ctx, pod, metav1.CreateOptions{})
		case err != nil:
		case f.Intn(3) == 0:
			zero := int64(0)
			err = pods.Delete(f.ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
		default:
			pod.OwnerReferences = f.controller()
			pod.Annotations = map[string]string{"changed": string(uuid.NewUUID())}
			_, err = pods.Update(f.ctx, pod, metav1.UpdateOptions{})
		}
		if err == nil {
			return
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
			f.Error(err)
			return
		}
	}
}

// controller returns the owner references of a pod: one to a controller, or none.
func (f *follower) controller() []metav1.OwnerReference {
	if f.Intn(10) == 0 {
		return nil
	}
	yes := true
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "ReplicationController", Name: "owner", UID: types.UID(fmt.Sprintf("owner-%d", f.Intn(30))), Controller: &yes}}
}

// in reports whether the pod is in r.
func (f *follower) in(pod *v1.Pod, r hashkey.Ranges) bool {
	if f.field == sharding.HashKeyPath {
		return r.Contains(metav1.HashKeyOf(pod))
	}
	key, ok := metav1.HashKeyOfController(pod)
	return !r.Empty() && (!ok || r.Contains(key))
}

// live returns the pods in r from etcd, and the revision of that.
func (f *follower) live(r hashkey.Ranges) (map[string]*v1.Pod, string) {
	f.Helper()
	list, err := f.client().CoreV1().Pods(f.requests.namespace).List(f.ctx, metav1.ListOptions{})
	if err != nil {
		f.Fatal(err)
	}
	pods := map[string]*v1.Pod{}
	for i := range list.Items {
		if pod := &list.Items[i]; f.in(pod, r) {
			pods[pod.Name] = pod
		}
	}
	return pods, list.ResourceVersion
}

func (f *follower) stored() map[string]*v1.Pod {
	pods := map[string]*v1.Pod{}
	for _, obj := range f.store.List() {
		pod := obj.(*v1.Pod)
		pods[pod.Name] = pod
	}
	return pods
}

// waitFor calls WaitFor, and checks that the store then has what was live in ranges before
// the call, or what became of it since, and nothing that was gone by then.
func (f *follower) waitFor(ranges hashkey.Ranges) {
	f.Helper()
	before, revision := f.live(ranges)
	if !f.tellsProgress {
		defer f.tick()()
	}
	if err := f.source.WaitFor(f.ctx, ranges); err != nil {
		f.Fatal(err)
	}
	stored := f.stored()
	after, _ := f.live(ranges)
	for name, pod := range before {
		got, now := stored[name], after[name]
		unchanged := now != nil && now.ResourceVersion == pod.ResourceVersion
		if got == nil && unchanged || got != nil && newer(pod.ResourceVersion, got.ResourceVersion) {
			f.Errorf("WaitFor %s returned, but the store has %s as %v, live was @%s before the call", ranges, name, got, pod.ResourceVersion)
		}
	}
	for name, got := range stored {
		if f.in(got, ranges) && before[name] == nil && !newer(got.ResourceVersion, revision) {
			f.Errorf("WaitFor %s returned, but the store still has %s@%s, which was gone before the call, @%s", ranges, name, got.ResourceVersion, revision)
		}
	}
}

// tick keeps writing until the returned function is called. Without events, the next
// bookmark would come only after a minute.
func (f *follower) tick() (stop func()) {
	ctx, cancel := context.WithCancel(f.ctx)
	pods := f.client().CoreV1().Pods(f.requests.namespace)
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			tick := &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "tick-"},
				Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}},
			}
			created, err := pods.Create(f.ctx, tick, metav1.CreateOptions{})
			if err != nil {
				f.Error(err)
				return
			}
			if err := pods.Delete(f.ctx, created.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
				f.Error(err)
				return
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

func newer(a, b string) bool { return len(a) > len(b) || len(a) == len(b) && a > b }

// settled waits until the store and the handler's events match the live pods.
func (f *follower) settled() {
	f.Helper()
	f.waitFor(f.want)
	live, _ := f.live(f.want)
	var difference string
	if err := wait.PollUntilContextCancel(f.ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		difference = differ("store", f.stored(), live) + differ("handler", f.told, live)
		return difference == "", nil
	}); err != nil {
		f.Fatalf("%v: %s", err, difference)
	}
	if held := f.source.Held(); !held.Equal(f.want) {
		f.Errorf("held: %s, want %s", held, f.want)
	}
}

func differ(what string, got, want map[string]*v1.Pod) string {
	var d []string
	for name, pod := range want {
		if g := got[name]; g == nil || g.ResourceVersion != pod.ResourceVersion {
			d = append(d, fmt.Sprintf("%s: %s is not as live, @%s", what, name, pod.ResourceVersion))
		}
	}
	for name := range got {
		if want[name] == nil {
			d = append(d, fmt.Sprintf("%s: %s should not be there", what, name))
		}
	}
	return strings.Join(d, "; ")
}
