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
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/ring/guard"
	ringmember "k8s.io/client-go/tools/ring/member"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	kubeapiservertesting "k8s.io/kubernetes/cmd/kube-apiserver/app/testing"
	"k8s.io/kubernetes/test/integration/framework"
	"k8s.io/utils/clock"
)

const (
	// gainObjects is how many objects are gained, and gainObjectsShort how many with -short.
	gainObjects      = 1_000_000
	gainObjectsShort = 50_000
	// gainNamespaces is in how many namespaces they are.
	gainNamespaces = 100
	// gainSample is how often the deciding goroutine is called, and looked at.
	gainSample = 5 * time.Millisecond
	// gainRest is for how long it is looked at while nothing is gained.
	gainRest = 5 * time.Second
	// gainLimit is how long a phase may take.
	gainLimit = 5 * time.Minute
)

// BenchmarkGain measures for how long a member decides nothing while a million objects are gained
// at once, for each of its controllers. The member has the default lease, real queues and a real
// store, which is full from the beginning: its caches take no time to fill.
//
//   - registering: it gets its record.
//   - filling: alone, it takes everything, in pieces, the last of which is half of all.
//   - handing-over: its queues are empty again, and a second member gets half.
//   - taking-over: that one dies, and its half is gained at once.
//   - at-rest: nothing happens. This is what the machine adds.
//
// "s-silent" is the longest silence of all, in seconds, and "s-silent-PHASE" that of a phase.
// "s-queued" is how long it took until all objects were queued for all controllers, and
// "s-queued-half" until the half was. "s-queueing-in-turn" is how long one goroutine takes to queue
// all of them for one controller after the other: it would be silent for as long.
func BenchmarkGain(b *testing.B) {
	objects := gainObjects
	if testing.Short() {
		objects = gainObjectsShort
	}
	server := kubeapiservertesting.StartTestServerOrDie(b, nil, framework.DefaultTestServerFlags(), framework.SharedEtcd())
	b.Cleanup(server.TearDownFn)
	config := restclient.CopyConfig(server.ClientConfig)
	config.QPS = -1
	store := newGainStore(b, objects)
	for _, controllers := range []int{1, 7} {
		b.Run(fmt.Sprintf("controllers=%d", controllers), func(b *testing.B) {
			b.ReportMetric(0, "ns/op")
			for range b.N {
				measureGain(b, config, store, controllers)
				measureQueueingInTurn(b, store, controllers)
			}
		})
	}
}

func measureGain(b *testing.B, config *restclient.Config, store cache.Indexer, controllers int) {
	objects := len(store.ListKeys())
	a := newGainer(b, config, store, controllers)
	defer a.start(b)()
	a.phase(b, "registering", func() bool { return a.member.Snapshot().UID != "" })
	registered := a.member.Snapshot().UID
	queued := a.phase(b, "filling", func() bool { return a.queued(objects) })
	b.ReportMetric(queued.Seconds(), "s-queued")

	a.work()

	// The other holds nothing, so it does not slow the first one down.
	other := newGainer(b, config, newGainStore(b, 0), controllers)
	defer other.start(b)()
	a.phase(b, "handing-over", func() bool { return a.active() && other.active() })
	half := other.serves(store)
	if half < objects/3 || half > objects*2/3 {
		b.Fatalf("the second member got %d of %d objects, want about half", half, objects)
	}

	if err := other.member.Abandon(b.Context()); err != nil {
		b.Fatal(err)
	}
	queued = a.phase(b, "taking-over", func() bool { return a.queued(half) })
	b.ReportMetric(queued.Seconds(), "s-queued-half")
	rested := time.Now()
	a.phase(b, "at-rest", func() bool { return time.Since(rested) > gainRest })
	b.ReportMetric(a.longest.Seconds(), "s-silent")
	if now := a.member.Snapshot().UID; now != registered || now == "" {
		b.Errorf("the record was %s and is %s: it was lost", registered, now)
	}
}

func measureQueueingInTurn(b *testing.B, store cache.Indexer, controllers int) {
	gate := ringmember.NewGate(clock.RealClock{})
	var all []*gainController
	for i := range controllers {
		c := newGainController(gate.For(gainName(i)), store)
		defer c.queue.ShutDown()
		all = append(all, c)
	}
	began := time.Now()
	for _, c := range all {
		c.Acquired(b.Context(), hashkey.All())
	}
	b.ReportMetric(time.Since(began).Seconds(), "s-queueing-in-turn")
}

// newGainStore returns a store of so many small objects, as an informer would have.
func newGainStore(b *testing.B, objects int) cache.Indexer {
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for i := range objects {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("namespace-%d", i%gainNamespaces),
			Name:      fmt.Sprintf("pod-%d", i),
			UID:       uuid.NewUUID(),
		}}
		if err := store.Add(pod); err != nil {
			b.Fatal(err)
		}
	}
	return store
}

func gainName(i int) string { return fmt.Sprintf("controller-%d", i) }

// gainer is a member in this process, with controllers that queue what they gain.
type gainer struct {
	member      *ringmember.Member
	gate        *ringmember.Gate
	source      *gainSource
	controllers []*gainController
	// silent is for how long, in nanoseconds, nothing was decided in this phase, at the longest,
	// and longest that of all phases.
	silent  atomic.Int64
	longest time.Duration
}

func newGainer(b *testing.B, config *restclient.Config, store cache.Indexer, controllers int) *gainer {
	g := &gainer{gate: ringmember.NewGate(clock.RealClock{}), source: &gainSource{store: store, changed: make(chan struct{}, 1)}}
	config = restclient.CopyConfig(config)
	config.Wrap(g.gate.WrapRegistryTransport)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	byName := map[string]ringmember.Controller{}
	for i := range controllers {
		c := newGainController(g.gate.For(gainName(i)), store)
		g.controllers = append(g.controllers, c)
		byName[gainName(i)] = c
	}
	g.member, err = ringmember.New(ringmember.Config{
		Client:         client.ShardingV1alpha1().ControllerInstances(),
		Ring:           fmt.Sprintf("gain-%d", controllers),
		Controllers:    byName,
		HolderIdentity: fmt.Sprintf("host_%p", g),
		Gate:           g.gate,
		Sources:        []ringmember.Source{g.source},
	})
	if err != nil {
		b.Fatal(err)
	}
	return g
}

// start has the member take part until stop is called.
func (g *gainer) start(b *testing.B) (stop func()) {
	ctx, cancel := context.WithCancel(klog.NewContext(b.Context(), klog.Logger{}))
	var running sync.WaitGroup
	running.Go(func() { g.member.Run(ctx) })
	running.Go(func() { wait.UntilWithContext(ctx, g.listen, gainSample) })
	return func() {
		cancel()
		running.Wait()
		for _, c := range g.controllers {
			c.queue.ShutDown()
		}
	}
}

// listen looks for how long nothing has been decided. It also asks for a decision, so that the
// deciding goroutine has no reason to be silent.
func (g *gainer) listen(context.Context) {
	g.source.say()
	age := time.Duration(g.member.Snapshot().RoundAgeSeconds * float64(time.Second))
	g.silent.Store(max(g.silent.Load(), int64(age)))
}

// phase waits until it is done, reports the silence, and returns how long it took.
func (g *gainer) phase(b *testing.B, name string, done func() bool) time.Duration {
	b.Helper()
	began := time.Now()
	g.silent.Store(0)
	err := wait.PollUntilContextTimeout(b.Context(), gainSample, gainLimit, true, func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		b.Fatalf("%s: %v; the member is %+v", name, err, g.member.Snapshot())
	}
	took, silent := time.Since(began), time.Duration(g.silent.Load())
	g.longest = max(g.longest, silent)
	b.ReportMetric(silent.Seconds(), "s-silent-"+name)
	return took
}

// queued says whether so many objects are queued for each controller.
func (g *gainer) queued(objects int) bool {
	for _, c := range g.controllers {
		if c.queue.Len() < objects {
			return false
		}
	}
	return true
}

// work has all controllers work off their queues.
func (g *gainer) work() {
	var working sync.WaitGroup
	for _, c := range g.controllers {
		working.Go(c.work)
	}
	working.Wait()
}

// active says whether the member works on a range and no handover is open.
func (g *gainer) active() bool {
	s := g.member.Snapshot()
	return s.Phase == shardingv1alpha1.InstanceActive && s.Gives == "" && s.Open == s.Owned
}

// serves returns how many of these objects the member works on.
func (g *gainer) serves(store cache.Indexer) (objects int) {
	door := g.gate.For(gainName(0))
	for _, obj := range store.List() {
		if door.Serves(metav1.HashKeyOf(obj.(metav1.Object))) {
			objects++
		}
	}
	return objects
}

// gainController queues what it gains, and remembers what it has worked on.
type gainController struct {
	subjects *guard.Subjects
	queue    guard.Queue[string]
}

func newGainController(gate guard.Gate, store cache.Indexer) *gainController {
	c := &gainController{subjects: guard.NewSubjects(gate, store, sharding.KeyPathOwn)}
	c.subjects.Forget = func(string, types.UID) {}
	c.queue = guard.Queue[string]{
		TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
		Subjects:                   c.subjects,
		Name:                       func(name string) string { return name },
		// What the gate does not let in is taken all the same, so the queue gets empty.
		Late: true,
	}
	c.subjects.Queue = c.queue.Add
	return c
}

func (c *gainController) work() {
	for c.queue.Len() > 0 {
		name, _ := c.queue.Get()
		c.subjects.Enter(name)
		c.queue.Forget(name)
		c.queue.Done(name)
	}
}

// Prepare implements member.Controller.
func (c *gainController) Prepare(hashkey.Ranges) {}

// Acquired implements member.Controller.
func (c *gainController) Acquired(ctx context.Context, ranges hashkey.Ranges) {
	c.subjects.QueueAll(ctx, ranges)
}

// Released implements member.Controller.
func (c *gainController) Released(ranges hashkey.Ranges) { c.subjects.Release(ranges) }

// gainSource holds at once whatever it is to follow.
type gainSource struct {
	store   cache.Indexer
	changed chan struct{}

	lock   sync.Mutex
	ranges hashkey.Ranges
}

// say says that what it holds may have changed.
func (s *gainSource) say() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// SetRanges implements member.Source.
func (s *gainSource) SetRanges(ranges hashkey.Ranges) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.ranges = ranges
	s.say()
}

// Held implements member.Source.
func (s *gainSource) Held() hashkey.Ranges {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.ranges
}

// HeldChanged implements member.Source.
func (s *gainSource) HeldChanged() <-chan struct{} { return s.changed }

// Diverged implements member.Source.
func (s *gainSource) Diverged() string { return "" }

// Waits implements member.Source.
func (s *gainSource) Waits() string { return "" }

// WaitFor implements member.Source.
func (s *gainSource) WaitFor(context.Context, hashkey.Ranges) error { return nil }

// Keys implements member.Source as rangewatch.Source does.
func (s *gainSource) Keys(ranges hashkey.Ranges) []int64 {
	ranges = ranges.Intersect(s.Held())
	var keys []int64
	for _, obj := range s.store.List() {
		if key, ok, err := sharding.KeyPathOwn.KeyOf(obj.(runtime.Object)); ok && err == nil && ranges.Contains(key) {
			keys = append(keys, key)
		}
	}
	return keys
}
