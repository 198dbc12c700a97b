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

package member

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/fence"
)

// reported reports d as a decision does, and takes in the answer.
func (t *term) reported(ctx context.Context, d ring.Decision) (wake time.Duration) {
	t.count(ctx, time.Now(), d.Owned)
	t.settle()
	wake = t.report(ctx, time.Now(), d)
	t.settle()
	return wake
}

// ownLog hands the term the newest state of its own record, as the log would.
func (i *instance) ownLog(term *term) {
	i.t.Helper()
	i.applyOwn(term)
	own, _ := term.machine.View().Get(term.self.Name)
	term.learn(own)
}

func TestNewsThatOthersActOnAreSentAtOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*instance, *ring.Decision)
		want   func(shardingv1alpha1.ControllerInstanceStatus) bool
	}{
		"the phase": {
			func(_ *instance, d *ring.Decision) { d.Phase = shardingv1alpha1.InstanceLocked },
			func(s shardingv1alpha1.ControllerInstanceStatus) bool {
				return s.Phase == shardingv1alpha1.InstanceLocked
			},
		},
		"what all caches hold": {
			func(i *instance, _ *ring.Decision) { i.sources[0].hold(both); i.sources[1].hold(low) },
			func(s shardingv1alpha1.ControllerInstanceStatus) bool {
				return ring.CachedRanges(s.Cached).Equal(low)
			},
		},
		"the load of other keys": {
			func(i *instance, d *ring.Decision) { d.Owned, i.sources[0].keys = low, []int64{1, 2, 3} },
			func(s shardingv1alpha1.ControllerInstanceStatus) bool { return s.Weight == 3 },
		},
		"what is given": {
			func(_ *instance, d *ring.Decision) {
				d.Report = ring.Report{Epoch: 1, Gives: &ring.Gift{To: "b", Key: 99}}
			},
			func(s shardingv1alpha1.ControllerInstanceStatus) bool {
				return s.Epoch == 1 && s.Gives != nil && *s.Gives == shardingv1alpha1.Gift{To: "b", HashKey: 99}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := testContext(t)
				r := newRegistry(t)
				i := newInstance(t, r).slow()
				term := i.registered(ctx)
				i.ownLog(term)
				d := ring.Decision{Phase: shardingv1alpha1.InstanceInit, Follow: both}
				for range 3 {
					term.reported(ctx, d)
				}
				expectTimes(t, r.got(ofPatch(partNews)), 0)
				tc.change(i, &d)
				for range 3 {
					// The next comes when this one is answered.
					term.report(ctx, time.Now(), d)
				}
				term.settle()
				term.reported(ctx, d)
				expectTimes(t, r.got(ofPatch(partNews)), 0, 0)
				if status := i.record().Status; !tc.want(status) {
					t.Errorf("the record says %+v", status)
				}
				if !term.news.stored.Report.Equal(d.Report) {
					t.Errorf("the registry is taken to have %+v, want %+v", term.news.stored.Report, d.Report)
				}
			})
		})
	}
}

func TestALoadIsToldWhenItHasChangedByATwentiethAndAtMostOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		r := newRegistry(t)
		i := newInstance(t, r, func(c *Config) { c.LeaseDuration = time.Minute })
		term := i.registered(ctx)
		i.ownLog(term)
		load := func(weight int) {
			i.sources[0].keys = make([]int64, weight)
		}
		d := ring.Decision{Phase: shardingv1alpha1.InstanceActive, Owned: hashkey.All()}
		load(100)
		term.reported(ctx, d)
		expectTimes(t, r.got(ofPatch(partNews)), 0)
		for _, tc := range []struct {
			at   time.Duration
			load int
			told bool
		}{
			{500, 200, false}, {1000, 104, false}, {2000, 105, true}, {2500, 1000, false}, {3000, 1000, true}, {4000, 951, false}, {5000, 950, true}, {6000, 0, true}, {7000, 1, true}, {8000, 1, false},
		} {
			time.Sleep(time.Until(epoch.Add(tc.at * time.Millisecond)))
			load(tc.load)
			before := len(r.got(ofPatch(partNews)))
			term.reported(ctx, d)
			if told := len(r.got(ofPatch(partNews))) > before; told != tc.told {
				t.Errorf("after %d ms a load of %d was told: %t, want %t", tc.at, tc.load, told, tc.told)
			}
			if got := i.record().Status.Weight; tc.told && got != int64(tc.load) {
				t.Errorf("after %d ms the record says %d, want %d", tc.at, got, tc.load)
			}
		}
		// What is in work alone is no news.
		i.gate.set(hashkey.All())
		leave := i.work(1)
		defer leave()
		time.Sleep(time.Second)
		if term.reported(ctx, d); i.record().Status.Busy != 0 {
			t.Errorf("the record says that %d are busy", i.record().Status.Busy)
		}
		// Other keys are counted at once.
		d.Owned, i.sources[0].keys = low, []int64{1, 2, 3}
		if term.reported(ctx, d); i.record().Status.Busy != 1 {
			t.Errorf("with other news the record says that %d are busy", i.record().Status.Busy)
		}
		if !i.told.has("weight 3, busy 1") {
			t.Error("the metrics were not told")
		}
	})
}

// reporter returns a registry, an instance that works on all keys and leases for an hour, and what
// has it report.
func reporter(t *testing.T) (r *registry, i *instance, report func()) {
	ctx := testContext(t)
	r = newRegistry(t)
	i = newInstance(t, r, func(c *Config) { c.LeaseDuration = time.Hour })
	term := i.registered(ctx)
	i.ownLog(term)
	return r, i, func() {
		term.reported(ctx, ring.Decision{Phase: shardingv1alpha1.InstanceActive, Owned: hashkey.All()})
	}
}

func TestAHeapIsToldWithTheWeightOfItsCollection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, i, report := reporter(t)
		for _, tc := range []struct {
			heap, collections uint64
			weight            int
			want              *shardingv1alpha1.ProcessHeap
		}{
			{0, 0, 100, nil},
			{1000, 1, 100, &shardingv1alpha1.ProcessHeap{LiveBytes: 1000, Objects: 100}},
			// No collection since: the heap is that of the weight of before.
			{1000, 1, 200, &shardingv1alpha1.ProcessHeap{LiveBytes: 1000, Objects: 100}},
			// Not a tenth more.
			{1099, 2, 200, &shardingv1alpha1.ProcessHeap{LiveBytes: 1000, Objects: 100}},
			{1100, 3, 200, &shardingv1alpha1.ProcessHeap{LiveBytes: 1100, Objects: 200}},
			{900, 4, 201, &shardingv1alpha1.ProcessHeap{LiveBytes: 900, Objects: 201}},
		} {
			i.heap, i.collections, i.sources[0].keys = tc.heap, tc.collections, make([]int64, tc.weight)
			time.Sleep(heapInterval)
			report()
			if got := i.record().Status.Heap; !reflect.DeepEqual(got, tc.want) {
				t.Errorf("with %+v the record says %+v", tc, got)
			}
		}
	})
}

func TestAHeapOfBeforeTheRegistrationIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		r := newRegistry(t)
		i := newInstance(t, r)
		i.heap, i.collections = 1000, 7
		term := i.registered(ctx)
		i.ownLog(term)
		if term.reported(ctx, ring.Decision{Phase: shardingv1alpha1.InstanceInit}); i.record().Status.Heap != nil {
			t.Errorf("the record says %+v", i.record().Status.Heap)
		}
	})
}

func TestAHeapAloneIsToldTwiceAMinuteAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, i, report := reporter(t)
		for range 60 {
			i.heap, i.collections = 2400-i.heap, i.collections+1
			if i.heap == 2400 {
				i.heap = 1000
			}
			report()
			time.Sleep(time.Second)
		}
		if n := len(r.got(ofPatch(partNews))); n != 2 {
			t.Errorf("it was told %d times in a minute", n)
		}
	})
}

func TestAHeapThatHasGrownByHalfIsToldWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, i, report := reporter(t)
		for n, tc := range []struct {
			heap uint64
			told bool
		}{
			{1000, true}, {1499, false}, {1500, true}, {1000, false}, {2249, false}, {2250, true},
		} {
			i.heap, i.collections = tc.heap, i.collections+1
			report()
			if got := i.record().Status.Heap.LiveBytes == int64(tc.heap); got != tc.told {
				t.Errorf("after %d s a heap of %d was told: %t, want %t", n, tc.heap, got, tc.told)
			}
			time.Sleep(loadInterval)
		}
	})
}

func TestNewsNameTheUIDAndTheNewestVersionOfTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		r := newRegistry(t)
		i := newInstance(t, r)
		term := i.registered(ctx)
		i.ownLog(term)
		d := ring.Decision{Phase: shardingv1alpha1.InstanceInit}
		expect := func(version string) {
			t.Helper()
			term.reported(ctx, d)
			all := r.got(ofPatch(partNews))
			got := all[len(all)-1]
			want := map[string]any{"uid": string(term.self.UID), "resourceVersion": version}
			if got.name != term.self.Name || !maps.Equal(got.body["metadata"].(map[string]any), want) || got.refused {
				t.Errorf("%s was patched with %v, want metadata %v", got.name, got.body, want)
			}
		}
		expect(i.record().ResourceVersion)
		// From its own answer.
		d.Phase = shardingv1alpha1.InstanceLocked
		expect(i.record().ResourceVersion)
		// From the answer to a write of the own record.
		term.write(ctx, i.wish())
		term.settle()
		d.Phase = shardingv1alpha1.InstanceActive
		expect(i.record().ResourceVersion)
		// From the log.
		r.edit(i.record())
		i.ownLog(term)
		d.Phase = shardingv1alpha1.InstanceWait
		expect(i.record().ResourceVersion)
	})
}

func TestNewsThatConflictAreSentForTheRecordAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		i := newInstance(t, r)
		i.start()
		i.serves(hashkey.All())
		// The log does not show who has written the record.
		r.withhold(true)
		r.edit(i.record())
		i.told.take()
		gets := len(r.got(ofVerb("get")))
		began := time.Since(epoch)
		for _, s := range i.sources {
			s.hold(low)
		}
		time.Sleep(100 * time.Millisecond)
		if got := i.record().Status.Cached; !ring.CachedRanges(got).Equal(low) {
			t.Errorf("%v is reported as cached, want %v", got, low)
		}
		expectTimes(t, r.got(ofVerb("get"))[gets:], began)
		all := r.got(ofPatch(partNews))
		expectTimes(t, all[len(all)-2:], began, began)
		i.told.expect(t, "news conflict", "news stored")
		r.withhold(false)
	})
}

// An answer was lost and the request is still on its way.
func TestNewsThatArriveLateDoNotOverwriteNewerOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		r := newRegistry(t)
		i := newInstance(t, r)
		term := i.registered(ctx)
		i.ownLog(term)
		// The fence would refuse them by their epoch, too.
		i.gate.raise(term.self, 1)
		var late *request
		lose := true
		r.intercept(func(_ context.Context, q request) error {
			if q.part == partNews && lose {
				late = &q
				return errors.New("injected: no answer")
			}
			return nil
		})
		d := ring.Decision{Phase: shardingv1alpha1.InstanceWait, Report: ring.Report{Epoch: 1, Gives: &ring.Gift{To: "b", Key: 9}}}
		term.reported(ctx, d)
		lose = false
		d = ring.Decision{Phase: shardingv1alpha1.InstanceActive, Report: ring.Report{Epoch: 1}}
		time.Sleep(term.reported(ctx, d))
		term.reported(ctx, d)
		if got := i.record().Status; got.Phase != shardingv1alpha1.InstanceActive || got.Gives != nil {
			t.Fatalf("the record says %+v", got)
		}
		body, err := json.Marshal(late.body)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := i.cfg.Client.Patch(ctx, late.name, "application/merge-patch+json", body, metav1.PatchOptions{}, "status"); !apierrors.IsConflict(err) || fence.IsFenced(err) {
			t.Errorf("the late news: %v, want a conflict", err)
		}
		if got := i.record().Status; got.Phase != shardingv1alpha1.InstanceActive || got.Gives != nil {
			t.Errorf("the record says %+v", got)
		}
	})
}

// The grant waits for the report to be in the registry, which the log may show before the
// answer does.
func TestWhatTheRegistryHasIsKnownFromTheLogIfTheAnswerIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		r := newRegistry(t)
		r.after = func(_ context.Context, q request, _ *shardingv1alpha1.ControllerInstance) error {
			if q.part == partNews {
				return errors.New("injected: the answer is lost")
			}
			return nil
		}
		i := newInstance(t, r)
		term := i.registered(ctx)
		i.ownLog(term)
		d := ring.Decision{Phase: shardingv1alpha1.InstanceWait, Report: ring.Report{Epoch: 1, Gives: &ring.Gift{To: "b", Key: 9}}}
		term.reported(ctx, d)
		if got := term.input(time.Now(), false).Reported; !got.Equal(ring.Report{}) {
			t.Errorf("the registry is taken to have %+v", got)
		}
		i.ownLog(term)
		if got := term.input(time.Now(), false).Reported; !got.Equal(d.Report) {
			t.Errorf("the registry is taken to have %+v, want %+v", got, d.Report)
		}
		// What is older comes late.
		old := term.news.stored
		old.Revision, old.Report = old.Revision-1, ring.Report{}
		term.learn(old)
		if got := term.input(time.Now(), false).Reported; !got.Equal(d.Report) {
			t.Errorf("the registry is taken to have %+v, want %+v", got, d.Report)
		}
	})
}

func TestRequestsCarryANewEpochBeforeTheNewsOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		var a *instance
		gave := false
		r.intercept(func(_ context.Context, q request) error {
			status, _ := q.body["status"].(map[string]any)
			if epoch, _ := status["epoch"].(json.Number); epoch == "1" && q.part == partNews && !gave {
				gave = true
				if self, _ := a.gate.identity(); self.Epoch != 1 || q.identity.Epoch != 1 {
					t.Errorf("news of epoch 1 are sent while requests carry %d and they themselves %d", self.Epoch, q.identity.Epoch)
				}
			}
			return nil
		})
		a = newInstance(t, r)
		a.start()
		a.serves(hashkey.All())
		b := newInstance(t, r)
		b.start()
		b.serves(lower)
		if !gave {
			t.Error("no epoch was raised")
		}
		a.serves(upper)
		if got := a.record().Status; got.Epoch != 1 || got.Gives != nil {
			t.Errorf("the donor's record says %+v, want epoch 1 and that it gives nothing", got)
		}
	})
}

// The answer to the news makes the donor decide again, however late the log is.
func TestAGrantFollowsTheAnswerToTheNewsThatTheRecordGives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		a, b := newInstance(t, r), newInstance(t, r)
		began := time.Now()
		var gave, granted atomic.Int64
		r.after = func(_ context.Context, q request, answer *shardingv1alpha1.ControllerInstance) error {
			if q.part == partNews && answer.Status.Gives != nil {
				gave.CompareAndSwap(0, int64(time.Since(began))+1)
				r.withhold(true)
			}
			if q.part == partSpec && answer.Spec.HashKey != nil {
				granted.Store(int64(time.Since(began)) + 1)
			}
			return nil
		}
		a.start()
		a.serves(hashkey.All())
		b.start()
		eventually(t, "the grant is stored", func() bool { return gave.Load() > 0 && granted.Load() >= gave.Load() })
		if took := time.Duration(granted.Load() - gave.Load()); took > 0 {
			t.Errorf("the grant was sent %v after the news", took)
		}
		r.withhold(false)
	})
}

func TestNewsPauseLongerAfterEachFailure(t *testing.T) {
	for name, tc := range map[string]struct {
		injected error
		// first is the first pause in milliseconds: after a conflict the version is known.
		first int
	}{
		"a conflict":              {apierrors.NewConflict(resource, "a", errors.New("injected")), 0},
		"a failing server":        {apierrors.NewInternalError(errors.New("injected")), 10},
		"the group is not served": {apierrors.NewGenericServerResponse(http.StatusNotFound, "patch", resource, "a", "404 page not found", 0, true), 10},
		"a lost connection":       {errors.New("injected"), 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				failures := 9
				r := newRegistry(t)
				r.intercept(func(_ context.Context, q request) error {
					if q.part == partNews && failures > 0 {
						failures--
						return tc.injected
					}
					return nil
				})
				i := newInstance(t, r)
				i.start()
				i.serves(hashkey.All())
				at := time.Duration(0)
				var want []time.Duration
				for _, pause := range []int{0, tc.first, 20, 40, 80, 160, 320, 640, 1000, 1000} {
					at += time.Duration(pause) * time.Millisecond
					want = append(want, at)
				}
				if got := times(r.got(ofPatch(partNews)))[:len(want)]; !slices.Equal(got, want) {
					t.Errorf("news were sent at %v, want %v", got, want)
				}
				// One that succeeds lets the pauses begin anew.
				failures = 1
				began := time.Since(epoch)
				i.sources[0].hold(low)
				time.Sleep(100 * time.Millisecond)
				all := r.got(ofPatch(partNews))
				expectTimes(t, all[len(all)-2:], began, began+time.Duration(tc.first)*time.Millisecond)
			})
		})
	}
}

func TestNewsAreNotSentAfterTheGatesDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		r := newRegistry(t)
		i := newInstance(t, r)
		term := i.registered(ctx)
		i.ownLog(term)
		time.Sleep(time.Until(i.gate.Deadline()))
		term.reported(ctx, ring.Decision{Phase: shardingv1alpha1.InstanceInit})
		if sent := r.got(ofPatch(partNews)); len(sent) > 0 {
			t.Errorf("news were sent at %v", times(sent))
		}
		if want := time.Now().Add(firstPause); term.news.sending || !term.news.retryAt.Equal(want) {
			t.Errorf("sending is %t and retryAt %v, want a failure that is tried again at %v", term.news.sending, term.news.retryAt, want)
		}
		i.told.expect(t, "weight 0, busy 0", "news failed")
	})
}

func TestNewsThatFindNoRecordOfTheirOwnEndTheTerm(t *testing.T) {
	for name, tc := range map[string]func(*registry, shardingv1alpha1.ControllerInstance){
		"the record is gone":    func(r *registry, own shardingv1alpha1.ControllerInstance) { r.remove(own.Name) },
		"the record is another": func(r *registry, own shardingv1alpha1.ControllerInstance) { own.UID = "uid-of-another"; r.edit(own) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := testContext(t)
				r := newRegistry(t)
				i := newInstance(t, r)
				term := i.registered(ctx)
				i.ownLog(term)
				tc(r, i.record())
				term.reported(ctx, ring.Decision{Phase: shardingv1alpha1.InstanceInit})
				if !term.lost {
					t.Error("the term goes on")
				}
				i.told.expect(t, "weight 0, busy 0", "event Fenced")
			})
		})
	}
}

func TestRenewalsAndNewsDoNotWaitForEachOther(t *testing.T) {
	for _, part := range []string{partRenewal, partNews} {
		t.Run(part+" hang", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t)
				i := newInstance(t, r)
				i.start()
				i.serves(hashkey.All())
				r.intercept(func(ctx context.Context, q request) error {
					if q.part == part {
						<-ctx.Done()
						return ctx.Err()
					}
					return nil
				})
				time.Sleep(time.Second)
				i.sources[0].hold(low)
				// Both are under way now, or would be.
				time.Sleep(1100 * time.Millisecond)
				i.sources[0].hold(both)
				synctest.Wait()
				if part == partRenewal {
					if got := i.record().Status.Cached; !ring.CachedRanges(got).Equal(both) {
						t.Errorf("%v is reported as cached, want %v", got, both)
					}
				} else {
					expectTimes(t, r.got(ofPatch(partRenewal)), time.Second, 2*time.Second)
				}
			})
		})
	}
}

// jsonName returns the name of a field in JSON.
func jsonName(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}

// statusNames returns the names in JSON of all status fields that the instance sets.
func statusNames() []string {
	var names []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[shardingv1alpha1.ControllerInstanceStatus]()) {
		name := jsonName(field)
		if !slices.Contains(serverFields, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// fill sets everything below v to something else than its zero value.
func fill(t *testing.T, v reflect.Value) {
	switch {
	case v.Kind() == reflect.Struct:
		for _, field := range v.Fields() {
			fill(t, field)
		}
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case v.Kind() == reflect.String:
		v.SetString("x")
	case v.CanInt():
		v.SetInt(1)
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	default:
		t.Fatalf("fill cannot set a %v", v.Type())
	}
}

func TestAPatchOfTheStatusHasEveryField(t *testing.T) {
	full := &shardingv1alpha1.ControllerInstanceStatus{}
	for field, value := range reflect.ValueOf(full).Elem().Fields() {
		if slices.Contains(statusNames(), jsonName(field)) {
			fill(t, value)
		}
	}
	for name, tc := range map[string]struct {
		status *shardingv1alpha1.ControllerInstanceStatus
		null   bool
	}{
		"a full status sets all":     {full, false},
		"an empty status clears all": {&shardingv1alpha1.ControllerInstanceStatus{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			fields, err := statusFields(tc.status)
			if err != nil {
				t.Fatal(err)
			}
			patch, err := json.Marshal(fields)
			if err != nil {
				t.Fatal(err)
			}
			var got map[string]any
			if err := json.Unmarshal(patch, &got); err != nil {
				t.Fatal(err)
			}
			if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, statusNames()) {
				t.Errorf("the patch has %v, want %v", names, statusNames())
			}
			for name, value := range got {
				if (value == nil) != tc.null {
					t.Errorf("%s is %v", name, value)
				}
			}
		})
	}
}

// A field that is added to the status has to be set by the news, and by this test.
func TestNewsSetEveryFieldOfTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		r := newRegistry(t)
		i := newInstance(t, r)
		i.sources[0].keys = []int64{1, 150, 150}
		term := i.owner(ctx)
		i.heap, i.collections = 1<<20, 1
		term.news.work.shares = map[string]float64{controllerName: 0.25, "another": 0.5}
		i.ownLog(term)
		i.gate.set(hashkey.All())
		leave := i.work(1)
		for _, s := range i.sources {
			s.hold(hashkey.All())
		}
		term.assign(ctx)
		gives := ring.Report{Epoch: 4, Gives: &ring.Gift{To: "b", Key: 99}}
		term.reported(ctx, ring.Decision{Phase: shardingv1alpha1.InstanceActive, Owned: hashkey.All(), Follow: hashkey.All(), Report: gives})
		status := i.record().Status
		want := shardingv1alpha1.ControllerInstanceStatus{
			Phase:    shardingv1alpha1.InstanceActive,
			Cached:   ring.StatusCached(hashkey.All()),
			Weight:   3,
			Heaviest: 2,

			BeforeHeaviest: 1,
			Busy:           1,
			Work:           500,
			Epoch:          4,
			Gives:          &shardingv1alpha1.Gift{To: "b", HashKey: 99},
			Heap:           &shardingv1alpha1.ProcessHeap{LiveBytes: 1 << 20, Objects: 3},
			Controllers:    []shardingv1alpha1.ControllerState{{Name: controllerName, Working: true}},
		}
		if !reflect.DeepEqual(status, want) {
			t.Errorf("the record says %+v, want %+v", status, want)
		}
		for field, value := range reflect.ValueOf(status).Fields() {
			if value.IsZero() && slices.Contains(statusNames(), jsonName(field)) {
				t.Errorf("%s is not set", field.Name)
			}
		}
		if !i.told.has("weight 3, busy 1") {
			t.Errorf("the metrics were not told the load: %v", i.told.take())
		}

		// What has become nothing again is cleared, but the epoch never falls.
		i.gate.raise(term.self, 4)
		term.duties.states, term.news.status.Controllers = nil, nil
		leave()
		i.sources[0].keys = nil
		clear(term.news.work.shares)
		i.heap, i.collections = 0, 2
		for _, s := range i.sources {
			s.hold(nil)
		}
		term.reported(ctx, ring.Decision{Phase: shardingv1alpha1.InstanceInit, Report: ring.Report{Epoch: 4}})
		want = shardingv1alpha1.ControllerInstanceStatus{Phase: shardingv1alpha1.InstanceInit, Epoch: 4, Heap: &shardingv1alpha1.ProcessHeap{}}
		if status := i.record().Status; !reflect.DeepEqual(status, want) {
			t.Errorf("the record says %+v, want %+v", status, want)
		}
	})
}

// Others wait for what an instance tells. One whose news the server does not want begins anew, with
// a record that says nothing yet; one whose news it cannot store now does not.
func TestAnInstanceWhoseNewsAreRefusedRegistersAnew(t *testing.T) {
	invalid := apierrors.NewInvalid(shardingv1alpha1.SchemeGroupVersion.WithKind("ControllerInstance").GroupKind(), "a", field.ErrorList{field.Invalid(field.NewPath("status", "epoch"), 1, "no")})
	for what, tc := range map[string]struct {
		answer error
		lasts  time.Duration
		anew   bool
		// between is what every second request is answered with, if it is not nil.
		between error
	}{
		"invalid":                    {invalid, time.Hour, true, nil},
		"forbidden":                  {apierrors.NewForbidden(resource, "a", errors.New("no")), time.Hour, true, nil},
		"a bad request":              {apierrors.NewBadRequest("no"), time.Hour, true, nil},
		"too large":                  {apierrors.NewRequestEntityTooLargeError("no"), time.Hour, true, nil},
		"invalid, not quite so long": {invalid, 30 * time.Second, false, nil},
		"no answer":                  {errors.New("injected: no answer"), 4 * time.Minute, false, nil},
		"an internal error":          {apierrors.NewInternalError(errors.New("no")), 4 * time.Minute, false, nil},
		"too many requests":          {apierrors.NewTooManyRequests("no", 1), 4 * time.Minute, false, nil},
		"another's write":            {apierrors.NewConflict(resource, "a", errors.New("no")), 4 * time.Minute, false, nil},
		"invalid, and no answer":     {invalid, time.Hour, true, errors.New("injected: no answer")},
		"invalid, and too many":      {invalid, 4 * time.Minute, false, apierrors.NewTooManyRequests("no", 1)},
		"invalid, and another's":     {invalid, 4 * time.Minute, false, apierrors.NewConflict(resource, "a", errors.New("no"))},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t)
				i := newInstance(t, r)
				i.start()
				i.serves(hashkey.All())
				before := i.record()
				time.Sleep(lease)
				begin := time.Now()
				asked := 0
				r.intercept(func(_ context.Context, q request) error {
					if q.part == partNews && q.name == before.Name && time.Since(epoch) < lease+tc.lasts {
						if asked++; asked%2 == 0 && tc.between != nil {
							return tc.between
						}
						return tc.answer
					}
					return nil
				})
				for _, s := range i.sources {
					s.hold(low)
				}
				time.Sleep(i.cfg.StepLimit - time.Second)
				if _, ok := r.get(before.Name); !ok {
					t.Fatalf("the record is gone after %v", time.Since(begin))
				}
				time.Sleep(3 * time.Minute)
				if _, kept := r.get(before.Name); kept == tc.anew {
					t.Errorf("it is there: %t", kept)
				}
				if !tc.anew {
					return
				}
				i.serves(hashkey.All())
				if after := i.record(); after.Name == before.Name || after.Status.Phase != shardingv1alpha1.InstanceActive {
					t.Errorf("the record %s is %s", after.Name, after.Status.Phase)
				}
			})
		})
	}
}
