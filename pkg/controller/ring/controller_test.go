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

package ring_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/kubernetes/pkg/controller/ring"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	ringtesting "k8s.io/kubernetes/pkg/controller/ring/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// fixture is a controller of Deployments that notes what it works on.
type fixture struct {
	*testing.T
	*ring.Controller
	gate    *ringtesting.Gate
	client  kubernetes.Interface
	objects cache.Indexer
	lister  appslisters.DeploymentLister
	queue   workqueue.TypedRateLimitingInterface[string]
	// during, if set, is called while an item is worked on.
	during    func(name string)
	informers *ring.Informers
	// worked has the UIDs that were worked on, "" where there was none, and forgotten those
	// whose work was forgotten.
	worked, forgotten []string
}

func newFixture(t *testing.T) (context.Context, *fixture) {
	_, ctx := ktesting.NewTestContext(t)
	// What has failed comes again so late that no test sees it.
	failed := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour)
	f := &fixture{T: t, gate: &ringtesting.Gate{}, client: ringtesting.NewClient(), queue: workqueue.NewTypedRateLimitingQueue[string](failed)}
	var env *ring.Env
	env, f.informers = ringtesting.NewEnv(t, ctx, catalogue.DeploymentController, f.gate, f.client)
	informer := env.Informers.Apps().V1().Deployments()
	env.Informers.Apps().V1().ReplicaSets().Informer()
	f.objects, f.lister = informer.Informer().GetIndexer(), informer.Lister()
	var err error
	f.Controller, err = ring.New(env, ring.Config[string]{
		Queue: &f.queue, Item: ring.Named, Name: ring.Named,
		Work: func(context.Context) bool { return f.work() },
		Run: func(ctx context.Context, workers int) {
			if workers != 0 {
				t.Errorf("runs with %d workers of its own", workers)
			}
			<-ctx.Done()
			f.queue.ShutDown()
		},
		Forget: func(name cache.ObjectName, uid types.UID) {
			f.forgotten = append(f.forgotten, fmt.Sprintf("%s %s", name, uid))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return ctx, f
}

// uid returns the UID that a sync finds under the name.
func (f *fixture) uid(name string) string {
	d, err := f.lister.Deployments("ns").Get(strings.TrimPrefix(name, "ns/"))
	if err != nil {
		return ""
	}
	return string(d.UID)
}

func deployment(name, uid string) *apps.Deployment {
	return &apps.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), ResourceVersion: "1"}}
}

func keyOf(uid string) int64 { return metav1.HashKeyOf(deployment("", uid)) }

// put makes or replaces a Deployment.
func (f *fixture) put(name, uid string) {
	f.Helper()
	if err := f.objects.Update(deployment(name, uid)); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) remove(name string) {
	f.Helper()
	if err := f.objects.Delete(deployment(name, "")); err != nil {
		f.Fatal(err)
	}
}

// open opens the gate for these keys alone.
func (f *fixture) open(keys ...int64) {
	open := ringtesting.Around(keyOf(end))
	for _, key := range keys {
		open = open.Union(ringtesting.Around(key))
	}
	f.gate.Set(open)
}

// end is a Deployment that is queued behind what a test looks at. Its gate is always open.
const end = "end"

// works works until the queue is empty, and checks what was worked on.
func (f *fixture) works(want ...string) {
	f.Helper()
	f.worked = nil
	f.put(end, end)
	for again := true; again; again = f.queue.Len() > 0 {
		f.queue.Add("ns/" + end)
		for len(f.worked) == 0 || f.worked[len(f.worked)-1] != end {
			f.work()
		}
		f.worked = f.worked[:len(f.worked)-1]
	}
	if !slices.Equal(f.worked, want) {
		f.Errorf("worked on %q, want %q", f.worked, want)
	}
	if inside, _, _ := f.gate.Count(); inside != 0 {
		f.Errorf("%d pieces of work never left the gate", inside)
	}
}

// work works on one item.
func (f *fixture) work() bool {
	name, shutdown := f.queue.Get()
	if shutdown {
		return false
	}
	defer f.queue.Done(name)
	f.worked = append(f.worked, f.uid(name))
	if f.during != nil {
		f.during(name)
	}
	return true
}

// A controller that ignores deletions would know of every object that it ever worked on.
func TestWhatIsGoneIsForgottenThoughTheControllerDoesNotQueueIt(t *testing.T) {
	ctx, f := newFixture(t)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { f.informers.Run(ctx) })
	key := ringtesting.Around(keyOf("uid-a"))
	for _, s := range f.informers.Sources {
		s.SetRanges(key)
		if err := s.WaitFor(ctx, key); err != nil {
			t.Fatal(err)
		}
	}
	f.Prepare(key)
	f.open(keyOf("uid-a"))
	a := deployment("a", "uid-a")
	a.ResourceVersion = "3"
	if _, err := f.client.AppsV1().Deployments("ns").Create(ctx, a, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, ctx, "the cache has it", func() bool { return f.uid("ns/a") != "" })
	f.queue.Add("ns/a")
	f.works("uid-a")
	if err := f.client.AppsV1().Deployments("ns").Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, ctx, "it is queued", func() bool { return f.queue.Len() > 0 })
	f.works("")
	if want := []string{"ns/a uid-a"}; !slices.Equal(f.forgotten, want) {
		t.Errorf("forgotten is %q, want %q", f.forgotten, want)
	}
}

func await(t *testing.T, ctx context.Context, what string, is func() bool) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(ctx, time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return is(), nil }); err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}

func TestWorkPassesTheGate(t *testing.T) {
	_, f := newFixture(t)
	f.put("a", "uid-a")
	f.put("b", "uid-b")
	f.open(keyOf("uid-a"))
	f.queue.Add("ns/a")
	f.queue.Add("ns/b")
	f.queue.AddRateLimited("ns/b")
	f.works("uid-a")
	if n := f.queue.NumRequeues("ns/b"); n != 0 {
		t.Errorf("%d failures of what was never tried are remembered", n)
	}
	f.open(keyOf("uid-b"))
	f.queue.Add("ns/a")
	f.Acquired(t.Context(), ringtesting.Around(keyOf("uid-b")))
	f.works("uid-b")
}

// What was read before the gate may be older than the previous owner's work.
func TestAnObjectIsReadAgainBehindTheGate(t *testing.T) {
	_, f := newFixture(t)
	f.put("a", "uid-a")
	f.open(keyOf("uid-a"), keyOf("another"))
	f.gate.OnEnter = func() {
		f.gate.OnEnter = nil
		f.put("a", "another")
	}
	f.queue.Add("ns/a")
	f.works("another")

	f.gate.OnEnter = func() {
		f.gate.OnEnter = nil
		f.put("a", "not open")
	}
	f.queue.Add("ns/a")
	f.works()
}

// An object that is made anew under the same name has another key.
func TestASyncSeesOnlyWhatHasPassedTheGate(t *testing.T) {
	_, f := newFixture(t)
	f.put("a", "uid-a")
	f.open(keyOf("uid-a"))
	f.during = func(name string) {
		if name != "ns/a" {
			return
		}
		f.put("a", "not open")
		if uid := f.uid(name); uid != "" {
			t.Errorf("a sync of uid-a sees %q", uid)
		}
		f.put("b", "uid-b")
		if uid := f.uid("ns/b"); uid != "uid-b" {
			t.Errorf("sees %q where nothing is worked on", uid)
		}
	}
	f.queue.Add("ns/a")
	f.works("uid-a")

	// It was queued, so it is worked on where its gate is open.
	f.put("a", "uid-a")
	f.open(keyOf("uid-a"), keyOf("another"))
	f.during = func(name string) {
		f.during = nil
		f.put("a", "another")
		f.uid(name)
	}
	f.queue.Add("ns/a")
	f.works("uid-a", "another")
	if fmt.Sprint(f.forgotten) != "[ns/a uid-a]" {
		t.Errorf("forgotten: %q, want the one before of that name", f.forgotten)
	}
}

// What leaves the ranges of an instance is not deleted.
func TestAnAbsenceIsWorkedOnWhereTheGateIsOpen(t *testing.T) {
	_, f := newFixture(t)
	f.open(keyOf("uid-a"), keyOf("uid-b"))
	f.queue.Add("ns/a")
	f.works()

	f.put("a", "uid-a")
	f.put("b", "uid-b")
	f.queue.Add("ns/a")
	f.queue.Add("ns/b")
	f.works("uid-a", "uid-b")
	f.remove("a")
	f.remove("b")
	f.open(keyOf("uid-a"))
	f.queue.Add("ns/a")
	f.queue.Add("ns/b")
	f.during = func(name string) {
		// A sync that has found nothing finds nothing.
		if name == "ns/a" {
			f.put("a", "another")
			if uid := f.uid(name); uid != "" {
				t.Errorf("a sync of nothing sees %q", uid)
			}
		}
	}
	f.works("")
	// An absence is worked on once, so what is remembered of the object is of no use any more.
	if fmt.Sprint(f.forgotten) != "[ns/a uid-a]" {
		t.Errorf("forgotten: %q", f.forgotten)
	}
	f.during = nil
	f.remove("a")
	f.queue.Add("ns/a")
	f.works()

	// The gate opens again, as for a handover that was called off.
	f.open(keyOf("uid-b"))
	f.Acquired(t.Context(), hashkey.All())
	f.works("")
}

func TestReleasedForgetsWhatWasWorkedOn(t *testing.T) {
	_, f := newFixture(t)
	f.open(keyOf("uid-a"), keyOf("uid-b"), keyOf("uid-c"))
	for _, name := range []string{"a", "b", "c"} {
		f.put(name, "uid-"+name)
		f.queue.Add("ns/" + name)
	}
	f.works("uid-a", "uid-b", "uid-c")
	// One that is gone is not in the caches any more.
	f.remove("b")
	f.Released(ringtesting.Around(keyOf("uid-a")).Union(ringtesting.Around(keyOf("uid-b"))))
	slices.Sort(f.forgotten)
	if fmt.Sprint(f.forgotten) != "[ns/a uid-a ns/b uid-b]" {
		t.Errorf("forgotten: %q", f.forgotten)
	}
	f.queue.Add("ns/b")
	f.works()
}

// Work that waits for a revision of a cache fails until it has come. During a list of everything
// handlers are told before, and nobody is told after.
func TestWorkIsTriedAgainWhenAnInformerHasCaughtUp(t *testing.T) {
	_, f := newFixture(t)
	key := keyOf("uid-a")
	f.open(key)
	f.put("a", "uid-a")
	fails := func(name string) {
		if name == "ns/a" {
			f.queue.AddRateLimited(name)
		}
	}
	f.informers.Behind(true)
	f.during = fails
	f.queue.Add("ns/a")
	f.works("uid-a")
	f.informers.Behind(true)
	f.during = nil
	f.informers.Behind(false)
	f.works("uid-a")
	f.informers.Behind(false)
	f.works()
	f.queue.Forget("ns/a")

	// One that is given up while an informer is behind comes again, too.
	f.during = fails
	f.informers.Behind(true)
	f.queue.Add("ns/a")
	f.works("uid-a")
	f.queue.Forget("ns/a")
	f.during = nil
	f.informers.Behind(false)
	f.works("uid-a")
	f.informers.Behind(true)
	f.queue.AddRateLimited("ns/a")
	f.informers.Behind(false)
	f.works("uid-a")

	// What has succeeded does not.
	f.during = fails
	f.queue.Add("ns/a")
	f.works("uid-a")
	f.queue.Forget("ns/a")
	f.during = nil
	f.informers.Behind(true)
	f.informers.Behind(false)
	f.works()

	// What fails after that may have begun before.
	f.queue.AddRateLimited("ns/a")
	f.informers.Behind(true)
	f.informers.Behind(false)
	f.works("uid-a")
	again := true
	f.during = func(name string) {
		if name == "ns/a" && again {
			again = false
			f.informers.Behind(true)
			f.informers.Behind(false)
			f.queue.AddRateLimited(name)
		}
	}
	f.queue.Add("ns/a")
	f.works("uid-a", "uid-a")
}

func TestWorkersCanBeAddedAndRemoved(t *testing.T) {
	ctx, f := newFixture(t)
	// Workers wait for the informers, which do not run.
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { f.Controller.Run(ctx) })
	f.SetWorkers(ctx, 3)
	f.SetWorkers(ctx, 1)
	f.SetWorkers(ctx, 2)
	cancel()
	wg.Wait()
}

// The handlers of panics delete the records of the process.
func TestAPanicOfAWorkerIsHandled(t *testing.T) {
	ctx, f := newFixture(t)
	crash, handlers := utilruntime.ReallyCrash, utilruntime.PanicHandlers
	defer func() { utilruntime.ReallyCrash, utilruntime.PanicHandlers = crash, handlers }()
	handled := make(chan any, 1)
	utilruntime.ReallyCrash = false
	utilruntime.PanicHandlers = []func(context.Context, any){func(_ context.Context, reason any) { handled <- reason }}
	env, informers := ringtesting.NewEnv(t, ctx, catalogue.DeploymentController, f.gate, fake.NewClientset())
	env.Informers.Apps().V1().Deployments().Informer()
	env.Informers.Apps().V1().ReplicaSets().Informer()
	c, err := ring.New(env, ring.Config[string]{
		Queue: &f.queue, Item: ring.Named, Name: ring.Named,
		Work: func(context.Context) bool { panic("bad object") },
		Run:  func(ctx context.Context, _ int) { <-ctx.Done() },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { informers.Run(ctx) })
	wg.Go(func() { c.Run(ctx) })
	c.SetWorkers(ctx, 1)
	if reason := <-handled; reason != "bad object" {
		t.Errorf("handled %v", reason)
	}
}

func TestAControllerReadsWhatTheCatalogueLists(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	env, _ := ringtesting.NewEnv(t, ctx, catalogue.DeploymentController, &ringtesting.Gate{}, fake.NewClientset())
	env.Informers.Apps().V1().Deployments().Informer()
	env.Informers.Core().V1().Pods().Informer()
	env.Unread.Core().V1().Nodes().Informer()
	_, err := ring.New(env, ring.Config[string]{})
	for _, want := range []string{"does not read *v1.ReplicaSet", "reads *v1.Pod"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
