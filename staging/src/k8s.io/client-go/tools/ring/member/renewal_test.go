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
	"testing"
	"testing/synctest"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/client-go/tools/ring"
)

// renewing returns a term that does nothing but renew its record. ended is closed when
// it does so no more.
func (i *instance) renewing(ctx context.Context) (term *term, ended <-chan struct{}) {
	term = i.registered(ctx)
	return term, i.renew(ctx, term)
}

func (i *instance) renew(ctx context.Context, term *term) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		term.renew(ctx)
	}()
	i.t.Cleanup(func() { <-ended })
	synctest.Wait()
	return ended
}

func TestARenewalIsSentEveryThirdOfALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		i := newInstance(t, r)
		term, _ := i.renewing(testContext(t))
		time.Sleep(6*time.Second + time.Millisecond)
		expectTimes(t, r.got(ofPatch("status")), 0, 2*time.Second, 4*time.Second, 6*time.Second)
		if got, want := i.gate.Deadline(), epoch.Add(11*time.Second); !got.Equal(want) {
			t.Errorf("the deadline is %v, want %v", got, want)
		}
		renewed := i.record().Status.RenewTime
		if renewed == nil || !renewed.Time.Equal(epoch.Add(6*time.Second)) {
			t.Errorf("the record was renewed at %v by its status", renewed)
		}
		if term.lost || len(term.events) > 0 {
			t.Error("renewals that succeed ask for something")
		}
	})
}

// The time that an answer takes does not make renewals rarer.
func TestTheNextRenewalCountsFromWhenTheLastWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		r.after = func(_ context.Context, q request, _ *shardingv1alpha1.ControllerInstance) error {
			if q.verb == "patch" {
				time.Sleep(1500 * time.Millisecond)
			}
			return nil
		}
		newInstance(t, r).renewing(testContext(t))
		time.Sleep(5 * time.Second)
		expectTimes(t, r.got(ofPatch("status")), 0, 2*time.Second, 4*time.Second)
	})
}

func TestARenewalIsSentAtOnceWhenOthersWaitForWhatItSays(t *testing.T) {
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
		"what is owned": {
			func(_ *instance, d *ring.Decision) { d.Owned = low },
			func(s shardingv1alpha1.ControllerInstanceStatus) bool { return s.Workloads == 2 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t)
				i := newInstance(t, r).slow()
				i.controller.keys = []int64{1, 2, 150}
				term, _ := i.renewing(testContext(t))
				d := ring.Decision{Phase: shardingv1alpha1.InstanceInit, Follow: both}

				time.Sleep(500 * time.Millisecond)
				term.report(d)
				synctest.Wait()
				expectTimes(t, r.got(ofPatch("status")), 0)

				tc.change(i, &d)
				term.report(d)
				term.report(d)
				synctest.Wait()
				expectTimes(t, r.got(ofPatch("status")), 0, 500*time.Millisecond)
				if status := i.record().Status; !tc.want(status) {
					t.Errorf("the record says %+v", status)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				expectTimes(t, r.got(ofPatch("status")), 0, 500*time.Millisecond, 2500*time.Millisecond)
			})
		})
	}
}

// A renewal must not conflict with the writes of a donor, but it must find the instance's
// own record and no other's of the same name.
func TestARenewalNamesTheUIDAndNoResourceVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		term, _ := newInstance(t, r).renewing(testContext(t))
		got := r.got(ofPatch("status"))[0]
		if want := map[string]any{"uid": string(term.self.UID)}; got.name != term.self.Name || !maps.Equal(got.body["metadata"].(map[string]any), want) || len(got.body) != 2 {
			t.Errorf("%s was patched with %v, want metadata %v and a status", got.name, got.body, want)
		}
	})
}

// statusNames returns the names of all status fields in JSON.
func statusNames() []string {
	var names []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[shardingv1alpha1.ControllerInstanceStatus]()) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// fill sets everything below v to something else than its zero value.
func fill(t *testing.T, v reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[metav1.MicroTime]():
		v.Set(reflect.ValueOf(metav1.NewMicroTime(epoch)))
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
	default:
		t.Fatalf("fill cannot set a %v", v.Type())
	}
}

func TestAPatchOfTheStatusHasEveryField(t *testing.T) {
	full := &shardingv1alpha1.ControllerInstanceStatus{}
	fill(t, reflect.ValueOf(full).Elem())
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

// A field that is added to the status has to be set by the renewal, and by this test.
func TestARenewalSetsEveryFieldOfTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		r := newRegistry(t)
		i := newInstance(t, r)
		i.controller.keys = []int64{1, 2, 150}
		term := i.owner(ctx)
		term.decided(ctx)
		leave, _ := i.gate.Enter(1)
		i.renew(ctx, term)
		status := i.record().Status
		want := shardingv1alpha1.ControllerInstanceStatus{
			Phase:     shardingv1alpha1.InstanceActive,
			Cached:    ring.StatusCached(hashkey.All()),
			Workloads: 3,
			Busy:      1,
			RenewTime: status.RenewTime,
		}
		if !reflect.DeepEqual(status, want) {
			t.Errorf("the record says %+v, want %+v", status, want)
		}
		for field, value := range reflect.ValueOf(status).Fields() {
			if value.IsZero() {
				t.Errorf("%s is not set", field.Name)
			}
		}
		if !i.told.has("3 workloads, 1 busy") {
			t.Errorf("the metrics were not told the load: %v", i.told.take())
		}

		// What has become nothing again is cleared.
		leave()
		i.controller.keys = nil
		for _, s := range i.sources {
			s.hold(nil)
		}
		term.report(ring.Decision{Phase: shardingv1alpha1.InstanceInit})
		synctest.Wait()
		want = shardingv1alpha1.ControllerInstanceStatus{Phase: shardingv1alpha1.InstanceInit, RenewTime: status.RenewTime}
		if status := i.record().Status; !reflect.DeepEqual(status, want) {
			t.Errorf("the record says %+v, want %+v", status, want)
		}
	})
}

func TestARenewalThatFailsIsRepeatedAfterANinthOfALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := 0
		r := newRegistry(t)
		r.intercept(func(_ context.Context, q request) error {
			if q.verb == "patch" && time.Since(epoch) < time.Second {
				return apierrors.NewInternalError(errors.New("injected"))
			}
			return nil
		})
		i := newInstance(t, r, func(c *Config) { c.RenewalFailed = func() { failed++ } })
		i.renewing(testContext(t))
		time.Sleep(4 * time.Second)
		ninth := 2 * time.Second / 3
		expectTimes(t, r.got(ofPatch("status")), 0, ninth, 2*ninth, 2*ninth+2*time.Second)
		if failed != 2 {
			t.Errorf("RenewalFailed was called %d times, want 2", failed)
		}
		i.told.expect(t, "0 workloads, 0 busy", "renewal failed", "0 workloads, 0 busy", "renewal failed",
			"0 workloads, 0 busy", "renewal renewed", "0 workloads, 0 busy", "renewal renewed")
		if got, want := i.gate.Deadline(), epoch.Add(2*ninth+2*time.Second+5*time.Second); !got.Equal(want) {
			t.Errorf("the deadline is %v, want %v", got, want)
		}
	})
}

func TestARenewalThatIsNotServedSaysNothingOfTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		r.intercept(func(_ context.Context, q request) error {
			if q.verb == "patch" && time.Since(epoch) < time.Second {
				return apierrors.NewGenericServerResponse(http.StatusNotFound, "patch", resource, q.name, "404 page not found", 0, true)
			}
			return nil
		})
		i := newInstance(t, r)
		term, _ := i.renewing(testContext(t))
		time.Sleep(2 * time.Second)
		term.settle()
		if term.lost {
			t.Error("the term ended")
		}
		i.told.expect(t, "0 workloads, 0 busy", "renewal failed", "0 workloads, 0 busy", "renewal failed", "0 workloads, 0 busy", "renewal renewed")
	})
}

func TestARenewalWithoutAnAnswerIsGivenUpAfterAThirdOfALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failed []time.Duration
		r := newRegistry(t)
		r.intercept(func(ctx context.Context, q request) error {
			if q.verb == "patch" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		i := newInstance(t, r, func(c *Config) {
			c.RenewalFailed = func() { failed = append(failed, time.Since(epoch)) }
		})
		i.renewing(testContext(t))
		time.Sleep(5 * time.Second)
		expectTimes(t, r.got(ofPatch("status")), 0, 2*time.Second, 4*time.Second)
		if want := []time.Duration{2 * time.Second, 4 * time.Second}; !slices.Equal(failed, want) {
			t.Errorf("RenewalFailed was called at %v, want %v", failed, want)
		}
		if got, want := i.gate.Deadline(), epoch.Add(5*time.Second); !got.Equal(want) {
			t.Errorf("the deadline is %v, want that of the registration, %v", got, want)
		}
	})
}

func TestARenewalThatFindsNoRecordOfItsOwnEndsTheTerm(t *testing.T) {
	for name, tc := range map[string]func(*registry, shardingv1alpha1.ControllerInstance){
		"the record is gone":    func(r *registry, own shardingv1alpha1.ControllerInstance) { r.remove(own.Name) },
		"the record is another": func(r *registry, own shardingv1alpha1.ControllerInstance) { own.UID = "uid-of-another"; r.edit(own) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t)
				i := newInstance(t, r, func(c *Config) {
					c.RenewalFailed = func() { t.Error("RenewalFailed was called for an answer") }
				})
				term, ended := i.renewing(testContext(t))
				i.told.take()
				tc(r, i.record())
				time.Sleep(2 * time.Second)
				synctest.Wait()
				select {
				case <-ended:
				default:
					t.Error("renewals go on")
				}
				term.settle()
				if !term.lost {
					t.Error("the term goes on")
				}
				i.told.expect(t, "0 workloads, 0 busy", "renewal lost", "event Fenced")
			})
		})
	}
}

// The lease may have begun as soon as the request was sent.
func TestConfidenceCountsFromWhenTheRenewalWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		r := newRegistry(t)
		r.after = func(_ context.Context, q request, _ *shardingv1alpha1.ControllerInstance) error {
			if q.verb == "patch" {
				time.Sleep(800 * time.Millisecond)
			}
			return nil
		}
		i := newInstance(t, r)
		term := i.registered(ctx)
		time.Sleep(time.Second)
		i.renew(ctx, term)
		time.Sleep(900 * time.Millisecond)
		if got, want := i.gate.Deadline(), epoch.Add(6*time.Second); !got.Equal(want) {
			t.Errorf("the deadline is %v, want %v: 5s after the request", got, want)
		}
	})
}

func TestAGateThatHadShutByItselfIsOpenAgainAfterARenewal(t *testing.T) {
	for name, turnedAway := range map[string]bool{"work was turned away": true, "no work was turned away": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := testContext(t)
				r := newRegistry(t)
				r.intercept(func(_ context.Context, q request) error {
					if q.verb == "patch" && time.Since(epoch) < 5500*time.Millisecond {
						return errors.New("injected")
					}
					return nil
				})
				i := newInstance(t, r)
				i.gate.set(low)
				term, _ := i.renewing(ctx)
				time.Sleep(5200 * time.Millisecond)
				if turnedAway {
					if _, ok := i.gate.Enter(1); ok {
						t.Fatal("work was let in after the deadline")
					}
				}
				time.Sleep(time.Second)
				fenced := i.told.has("event Fenced")
				term.settle()
				if leave, ok := i.gate.Enter(1); !ok {
					t.Error("the gate is not open again")
				} else {
					leave()
				}
				if fenced {
					t.Error("an event was sent by another than the deciding goroutine")
				}
				// What was turned away has to be worked on anew.
				var want []string
				if turnedAway {
					want = []string{"acquired " + low.String()}
				}
				i.calls.expect(t, want...)
				if got := i.told.has("event Fenced"); got != turnedAway {
					t.Errorf("an event was sent: %t, want %t", got, turnedAway)
				}
			})
		})
	}
}

func TestRenewalsEndWithTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		r.intercept(func(ctx context.Context, q request) error {
			if q.verb == "patch" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		i := newInstance(t, r, func(c *Config) {
			c.RenewalFailed = func() { t.Error("RenewalFailed was called at the end of the term") }
		})
		ctx, cancel := context.WithCancel(testContext(t))
		_, ended := i.renewing(ctx)
		cancel()
		<-ended
		if at := time.Since(epoch); at != 0 {
			t.Errorf("renewing ended after %v, want at once", at)
		}
	})
}
