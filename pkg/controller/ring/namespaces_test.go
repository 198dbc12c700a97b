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
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/kubernetes/pkg/controller/ring"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	ringtesting "k8s.io/kubernetes/pkg/controller/ring/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// services is a controller of Services, whose keys are those of their namespaces.
type services struct {
	*testing.T
	*ring.Controller
	env           *ring.Env
	informers     *ring.Informers
	gate          *ringtesting.Gate
	objects       cache.Indexer
	queue, beside workqueue.TypedRateLimitingInterface[string]
	forgotten     []string
}

// newServices returns one whose configuration change, unless nil, has changed.
func newServices(t *testing.T, change func(*ring.Config[string])) *services {
	_, ctx := ktesting.NewTestContext(t)
	newQueue := func() workqueue.TypedRateLimitingInterface[string] {
		return workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	}
	f := &services{T: t, gate: &ringtesting.Gate{}, queue: newQueue(), beside: newQueue()}
	f.env, f.informers = ringtesting.NewEnv(t, ctx, catalogue.EndpointsController, f.gate, ringtesting.NewClient())
	core := f.env.Informers.Core().V1()
	core.Pods().Informer()
	core.Endpoints().Informer()
	f.objects = core.Services().Informer().GetIndexer()
	ring.Beside(f.env, &f.beside)
	cfg := ring.Config[string]{
		Queue: &f.queue, Item: ring.Named, Name: ring.Named,
		Work: func(context.Context) bool { return false },
		Run:  func(context.Context, int) {},
		Forget: func(name cache.ObjectName, uid types.UID) {
			f.forgotten = append(f.forgotten, name.String()+" "+string(uid))
		},
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	f.Controller, err = ring.New(f.env, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *services) put(namespace, name, uid string) {
	f.Helper()
	if err := f.objects.Update(&v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid), ResourceVersion: "1"}}); err != nil {
		f.Fatal(err)
	}
}

// in returns the keys of a namespace.
func in(namespace string) hashkey.Ranges { return ringtesting.Around(hashkey.OfNamespace(namespace)) }

// works takes from a queue what is let in, and returns what of it the cache has.
func (f *services) works(q workqueue.TypedRateLimitingInterface[string]) (worked []string) {
	f.Helper()
	const end = "end/end"
	f.gate.Set(f.gate.Open().Union(in("end")))
	for q.Add(end); ; {
		name, _ := q.Get()
		_, exists, err := f.objects.GetByKey(name)
		if err != nil {
			f.Fatal(err)
		}
		q.Done(name)
		if name == end {
			break
		}
		if !exists {
			name += " is gone"
		}
		worked = append(worked, name)
	}
	if inside, _, _ := f.gate.Count(); inside != 0 {
		f.Errorf("%d pieces of work never left the gate", inside)
	}
	return worked
}

// The caches of a namespace have all of it, or the gate is shut: so what is not there is gone,
// whoever has worked on it before.
func TestInANamespaceAnAbsenceIsWorkedOnByItsOwnerAlone(t *testing.T) {
	f := newServices(t, nil)
	f.put("mine", "a", "uid-a")
	f.put("other", "a", "uid-b")
	f.gate.Set(in("mine"))
	for _, name := range []string{"mine/a", "mine/gone", "other/a", "other/gone"} {
		f.queue.Add(name)
		f.beside.Add(name)
	}
	want := []string{"mine/a", "mine/gone is gone"}
	if worked := f.works(f.queue); !slices.Equal(worked, want) {
		t.Errorf("worked on %q, want %q", worked, want)
	}
	if worked := f.works(f.beside); !slices.Equal(worked, want) {
		t.Errorf("from the second queue worked on %q, want %q", worked, want)
	}
}

// Another object of that name has the same key, so a sync may see it.
func TestInANamespaceASyncSeesAnObjectMadeAnew(t *testing.T) {
	f := newServices(t, nil)
	f.put("mine", "a", "uid-a")
	f.gate.Set(in("mine"))
	f.queue.Add("mine/a")
	name, _ := f.queue.Get()
	f.put("mine", "a", "anew")
	if obj, _, err := f.objects.GetByKey(name); err != nil || obj.(*v1.Service).UID != "anew" {
		t.Errorf("sees %v, error %v; want the object made anew", obj, err)
	}
	f.queue.Done(name)
	f.queue.Add("mine/a")
	f.works(f.queue)
	if want := []string{"mine/a uid-a"}; !slices.Equal(f.forgotten, want) {
		t.Errorf("forgotten is %q, want %q", f.forgotten, want)
	}
	f.Released(in("mine"))
	if want := []string{"mine/a uid-a", "mine/a anew"}; !slices.Equal(f.forgotten, want) {
		t.Errorf("forgotten is %q, want %q", f.forgotten, want)
	}
}

func TestWhatIsAcquiredIsQueuedAsTheControllerDoesIt(t *testing.T) {
	var f *services
	f = newServices(t, func(cfg *ring.Config[string]) {
		cfg.Enqueue = func(obj any) {
			if service := obj.(*v1.Service); service.Name == "wanted" {
				f.queue.Add(service.Namespace + "/" + service.Name)
			}
		}
	})
	f.put("mine", "wanted", "uid-a")
	f.put("mine", "unwanted", "uid-b")
	f.put("other", "wanted", "uid-c")
	f.gate.Set(in("mine").Union(in("other")))
	f.Acquired(t.Context(), in("mine"))
	if worked, want := f.works(f.queue), []string{"mine/wanted"}; !slices.Equal(worked, want) {
		t.Errorf("worked on %q, want %q", worked, want)
	}
}

// A store that is updated in place while everything is listed is of no single moment.
func TestASteadyControllerBeginsNothingWhileAnInformerIsBehind(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	f := newServices(t, func(cfg *ring.Config[string]) { cfg.Steady = true })
	f.put("mine", "a", "uid-a")
	f.gate.Set(in("mine"))
	f.informers.Behind(true)
	f.queue.Add("mine/a")
	got := make(chan string)
	go func() {
		name, _ := f.queue.Get()
		f.queue.Done(name)
		got <- name
	}()
	await(t, ctx, "it has been turned away", func() bool { return f.env.Waiting() == 1 })
	f.informers.Behind(true)
	f.informers.Behind(false)
	await(t, ctx, "it has been turned away again", func() bool { return f.env.Waiting() == 1 })
	select {
	case name := <-got:
		t.Errorf("worked on %s while an informer was behind", name)
	default:
	}
	f.informers.Behind(false)
	select {
	case <-got:
	case <-ctx.Done():
		t.Error("nothing was worked on when no informer was behind any more")
	}
}

// Others read what is behind.
func TestASteadyControllerWaitsForNoInformerOfOthers(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	f := newServices(t, func(cfg *ring.Config[string]) { cfg.Steady = true })
	if _, err := ring.NewEnv(ctx, ringtesting.Described(t, catalogue.EphemeralVolumeController), f.informers, f.gate, ringtesting.NewClient()); err != nil {
		t.Fatal(err)
	}
	f.put("mine", "a", "uid-a")
	f.gate.Set(in("mine"))
	f.informers.BehindIn(catalogue.Read{Resource: schema.GroupResource{Resource: "persistentvolumeclaims"}, Path: sharding.NamespaceHashKeyPath}, true)
	f.queue.Add("mine/a")
	if name, _ := f.queue.Get(); name != "mine/a" {
		t.Errorf("worked on %q", name)
	}
	f.queue.Done("mine/a")
	pods := catalogue.Read{Resource: schema.GroupResource{Resource: "pods"}, Path: sharding.NamespaceHashKeyPath}
	f.informers.BehindIn(pods, true)
	f.queue.Add("mine/a")
	got := make(chan string)
	go func() {
		name, _ := f.queue.Get()
		got <- name
	}()
	await(t, ctx, "it has been turned away", func() bool { return f.env.Waiting() == 1 })
	select {
	case name := <-got:
		t.Errorf("worked on %s while an informer that it reads was behind", name)
	default:
	}
	f.informers.BehindIn(pods, false)
	if name := <-got; name != "mine/a" {
		t.Errorf("worked on %q", name)
	}
}

// An informer that catches up does not begin a new period.
func TestAPeriodicControllerKeepsItsPeriod(t *testing.T) {
	f := newServices(t, func(cfg *ring.Config[string]) {
		*cfg.Queue = workqueue.NewTypedRateLimitingQueue[string](workqueue.NewTypedItemFastSlowRateLimiter[string](time.Hour, time.Hour, 0))
		cfg.Periodic = true
	})
	f.put("mine", "a", "uid-a")
	f.gate.Set(in("mine"))
	f.queue.Add("mine/a")
	name, _ := f.queue.Get()
	f.informers.Behind(true)
	f.informers.Behind(false)
	f.queue.AddRateLimited(name)
	f.queue.Done(name)
	f.informers.Behind(true)
	f.informers.Behind(false)
	if n := f.queue.Len(); n != 0 {
		t.Errorf("%d are queued before their period has passed, want none", n)
	}
}

// What a sync has done for an object that was made anew meanwhile is remembered.
func TestASyncOfAnAbsenceMayMeetANewObject(t *testing.T) {
	f := newServices(t, nil)
	f.put("mine", "a", "old")
	f.gate.Set(in("mine"))
	f.queue.Add("mine/a")
	name, _ := f.queue.Get()
	f.queue.Done(name)
	if err := f.objects.Delete(&v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "mine", Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	f.queue.Add("mine/a")
	name, _ = f.queue.Get()
	f.put("mine", "a", "new")
	f.queue.Done(name)
	f.queue.Add("mine/a")
	name, _ = f.queue.Get()
	f.queue.Done(name)
	if len(f.forgotten) != 0 {
		t.Errorf("forgotten are %q, want none", f.forgotten)
	}
}

// What a controller has taken and not yet worked on does not keep the gate from being shut.
func TestALateControllerAsksBeforeItWorks(t *testing.T) {
	f := newServices(t, func(cfg *ring.Config[string]) { cfg.Late = true })
	f.put("mine", "a", "uid-a")
	f.gate.Set(in("mine"))
	f.queue.Add("mine/a")
	name, _ := f.queue.Get()
	if inside, _, _ := f.gate.Count(); inside != 0 {
		t.Error("it is in the gate before it is worked on")
	}
	f.gate.Set(nil)
	if f.env.Enter(name) {
		t.Error("it may be worked on though the gate is shut")
	}
	f.gate.Set(in("mine"))
	if !f.env.Enter(name) {
		t.Error("it may not be worked on though the gate is open")
	}
	if inside, _, _ := f.gate.Count(); inside != 1 {
		t.Error("it is worked on and not in the gate")
	}
	f.queue.Done(name)
	if inside, _, _ := f.gate.Count(); inside != 0 {
		t.Error("it is in the gate when it has been worked on")
	}
}
