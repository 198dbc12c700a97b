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
	"errors"
	"maps"
	"net/http"
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
	"k8s.io/client-go/tools/ring/fence"
)

// renewing returns a term that does nothing but renew its record. ended is closed when
// it does so no more.
func (i *instance) renewing(ctx context.Context) (term *term, ended <-chan struct{}) {
	term = i.registered(ctx)
	return term, i.renew(ctx, term)
}

func (i *instance) renew(ctx context.Context, term *term) <-chan struct{} {
	ended := make(chan struct{})
	// Somebody decides.
	go func() {
		for ctx.Err() == nil {
			term.comeRound()
			select {
			case <-time.After(term.turn()):
			case <-ctx.Done():
			}
		}
	}()
	go func() {
		defer close(ended)
		term.renew(ctx)
	}()
	i.t.Cleanup(func() { <-ended })
	synctest.Wait()
	return ended
}

func TestARenewalIsSentEverySixthOfALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		i := newInstance(t, r)
		term, _ := i.renewing(testContext(t))
		stored := r.revision()
		time.Sleep(4*time.Second + time.Millisecond)
		expectTimes(t, r.got(ofPatch(partRenewal)), time.Second, 2*time.Second, 3*time.Second, 4*time.Second)
		if got, want := i.gate.Deadline(), epoch.Add(9*time.Second); !got.Equal(want) {
			t.Errorf("the deadline is %v, want %v", got, want)
		}
		if term.lost || len(term.events) > 0 {
			t.Error("renewals that succeed ask for something")
		}
		if got := r.revision(); got != stored {
			t.Errorf("renewals stored %d revisions", got-stored)
		}
		i.record()
		time.Sleep(10 * lease)
		i.record()
	})
}

// slowly has each request from that instant on take that long, half of it before it is carried out.
func (r *registry) slowly(from time.Duration, latency func() time.Duration) {
	half := func(ctx context.Context) error {
		if time.Since(epoch) < from {
			return nil
		}
		select {
		case <-time.After(latency() / 2):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	r.before = func(ctx context.Context, _ request) error { return half(ctx) }
	r.after = func(ctx context.Context, _ request, _ *shardingv1alpha1.ControllerInstance) error { return half(ctx) }
}

func TestARenewalDoesNotWaitForTheAnswerOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		i := newInstance(t, r)
		i.renewing(testContext(t))
		r.slowly(time.Second, func() time.Duration { return 4 * time.Second })
		time.Sleep(4*time.Second + time.Millisecond)
		expectTimes(t, r.got(ofPatch(partRenewal)), time.Second, 2*time.Second, 3*time.Second, 4*time.Second)
		if got, want := i.gate.Deadline(), epoch.Add(5*time.Second); !got.Equal(want) {
			t.Errorf("the deadline is %v, want %v: none was answered", got, want)
		}
		time.Sleep(2 * time.Second)
		if got, want := i.gate.Deadline(), epoch.Add(7*time.Second); !got.Equal(want) {
			t.Errorf("the deadline is %v, want %v: five seconds after the second, whose answer came last", got, want)
		}
		time.Sleep(10 * lease)
		i.record()
	})
}

func TestTheAnswerOfAnEarlierRenewalMovesTheDeadlineNotBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		i := newInstance(t, r)
		i.renewing(testContext(t))
		r.slowly(time.Second, func() time.Duration {
			if time.Since(epoch) < 2*time.Second {
				return 5 * time.Second
			}
			return time.Millisecond
		})
		time.Sleep(2500 * time.Millisecond)
		before := i.gate.Deadline()
		if want := epoch.Add(7 * time.Second); !before.Equal(want) {
			t.Errorf("the deadline is %v, want %v", before, want)
		}
		for time.Since(epoch) < 10*time.Second {
			time.Sleep(100 * time.Millisecond)
			if now := i.gate.Deadline(); now.Before(before) {
				t.Fatalf("the deadline went back from %v to %v", before, now)
			} else {
				before = now
			}
		}
	})
}

// Nobody is taken off by a server that outlasts no leader's election: each request takes so long,
// for so long, of which half is before it is carried out.
func TestASlowServerTakesNobodyOff(t *testing.T) {
	for _, latency := range []time.Duration{1500, 2100, 3000, 4500, 5500, 8000, 9000} {
		for _, span := range []time.Duration{4 * time.Second, 20 * time.Second, time.Minute} {
			latency := latency * time.Millisecond
			t.Run(latency.String()+" for "+span.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRegistry(t)
					var all []*instance
					for range 4 {
						i := newInstance(t, r, func(c *Config) { c.LeaseDuration = DefaultLeaseDuration })
						i.start()
						all = append(all, i)
						time.Sleep(20 * time.Second)
					}
					until := time.Since(epoch) + span
					r.slowly(0, func() time.Duration {
						if time.Since(epoch) < until {
							return latency
						}
						return 0
					})
					for _, i := range all {
						i.told.take()
					}
					for time.Since(epoch) < until+time.Minute {
						time.Sleep(100 * time.Millisecond)
						var open hashkey.Ranges
						for _, i := range all {
							if time.Now().Before(i.gate.Deadline()) {
								open = open.Union(i.door().serving())
							}
						}
						if !open.Covers(hashkey.All()) {
							t.Fatalf("after %v nobody works on %v", time.Since(epoch), hashkey.All().Minus(open))
						}
					}
					for n, i := range all {
						if i.told.has("registered") {
							t.Errorf("instance %d has lost its record", n)
						}
					}
				})
			})
		}
	}
}

// A renewal must change nothing and conflict with nothing, but it must find the instance's
// own record and no other's of the same name.
func TestARenewalHasTheUIDAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		term, _ := newInstance(t, r).renewing(testContext(t))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		got := r.got(ofPatch(partRenewal))[0]
		if want := map[string]any{"uid": string(term.self.UID)}; got.name != term.self.Name || !maps.Equal(got.body["metadata"].(map[string]any), want) || len(got.body) != 1 {
			t.Errorf("%s was patched with %v, want metadata %v alone", got.name, got.body, want)
		}
	})
}

func TestARenewalWhoseAnswerIsAnErrorIsRepeatedAfterHalfASecond(t *testing.T) {
	for name, injected := range map[string]error{
		"an error": apierrors.NewInternalError(errors.New("injected")),
		// A server that does not serve the group says nothing of the record.
		"the group is not served": apierrors.NewGenericServerResponse(http.StatusNotFound, "patch", resource, "a", "404 page not found", 0, true),
		// The epoch was raised while the renewal was on its way. It was answered.
		"a refusal by the fence": &apierrors.StatusError{ErrStatus: metav1.Status{
			Reason: metav1.StatusReasonConflict, Code: http.StatusConflict,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: fence.CauseFenced}}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t)
				r.intercept(func(_ context.Context, q request) error {
					if q.verb == "patch" && time.Since(epoch) < 1900*time.Millisecond {
						return injected
					}
					return nil
				})
				i := newInstance(t, r)
				term, _ := i.renewing(testContext(t))
				time.Sleep(3500 * time.Millisecond)
				at := times(r.got(ofPatch(partRenewal)))
				for n := range at[1:] {
					pause := at[n+1] - at[n]
					if failed := at[n] < 1900*time.Millisecond; failed && (pause < renewalPause || pause > renewalPause*3/2) || !failed && pause != time.Second {
						t.Errorf("requests were sent at %v", at)
					}
				}
				if !i.told.has("renewal failed") || !i.told.has("renewal renewed") {
					t.Error("was not told of both")
				}
				if got, want := i.gate.Deadline(), epoch.Add(at[len(at)-1]+5*time.Second); !got.Equal(want) {
					t.Errorf("the deadline is %v, want %v", got, want)
				}
				if term.settle(); term.lost {
					t.Error("the term ended")
				}
			})
		})
	}
}

func TestARenewalWithoutAnAnswerIsGivenUpAfterALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var givenUp []time.Duration
		r := newRegistry(t)
		r.after = func(ctx context.Context, q request, _ *shardingv1alpha1.ControllerInstance) error {
			if q.part != partRenewal {
				return nil
			}
			<-ctx.Done()
			r.lock.Lock()
			givenUp = append(givenUp, time.Since(epoch))
			r.lock.Unlock()
			return ctx.Err()
		}
		i := newInstance(t, r)
		i.renewing(testContext(t))
		time.Sleep(9*time.Second + time.Millisecond)
		r.lock.Lock()
		defer r.lock.Unlock()
		if want := []time.Duration{7 * time.Second, 8 * time.Second, 9 * time.Second}; !slices.Equal(givenUp, want) {
			t.Errorf("renewals were given up at %v, want %v", givenUp, want)
		}
		if got, want := i.gate.Deadline(), epoch.Add(5*time.Second); !got.Equal(want) {
			t.Errorf("the deadline is %v, want that of the registration, %v", got, want)
		}
	})
}

// Requests that get through without answers would keep the record alive for good.
func TestAfterALeaseWithoutAnAnswerTheRecordIsReadBeforeItIsRenewed(t *testing.T) {
	for name, late := range map[string]bool{"nothing is answered any more": false, "then there are answers again": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t)
				i := newInstance(t, r)
				term := i.registered(testContext(t))
				var answers atomic.Bool
				r.after = func(ctx context.Context, q request, _ *shardingv1alpha1.ControllerInstance) error {
					if answers.Load() {
						return nil
					}
					<-ctx.Done()
					return ctx.Err()
				}
				i.renew(testContext(t), term)
				time.Sleep(lease + 500*time.Millisecond)
				sent := len(r.got(ofPatch(partRenewal)))
				if sent != 5 {
					t.Errorf("%d renewals were sent in a lease, want 5", sent)
				}
				answers.Store(late)
				time.Sleep(lease - time.Second)
				if got := len(r.got(ofPatch(partRenewal))) - sent; (got > 0) != late {
					t.Errorf("%d renewals were sent after it", got)
				}
				if len(r.got(ofVerb("get"))) == 0 {
					t.Error("the record was not read")
				}
				time.Sleep(lease)
				if _, ok := r.get(term.self.Name); ok != late {
					t.Errorf("the record is there: %t, want %t", ok, late)
				}
			})
		})
	}
}

func TestARenewalThatFindsNoRecordOfItsOwnEndsTheTerm(t *testing.T) {
	for name, tc := range map[string]func(*registry, shardingv1alpha1.ControllerInstance){
		"the record is gone":    func(r *registry, own shardingv1alpha1.ControllerInstance) { r.remove(own.Name) },
		"the record is another": func(r *registry, own shardingv1alpha1.ControllerInstance) { own.UID = "uid-of-another"; r.edit(own) },
		"its lease has ended":   func(r *registry, own shardingv1alpha1.ControllerInstance) { r.leases[own.UID].Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t)
				i := newInstance(t, r)
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
				i.told.expect(t, "renewal lost", "event Fenced")
			})
		})
	}
}

// The lease may have begun as soon as the request was sent.
func TestConfidenceCountsFromWhenTheRenewalWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		r.after = func(_ context.Context, q request, _ *shardingv1alpha1.ControllerInstance) error {
			if q.verb == "patch" {
				time.Sleep(800 * time.Millisecond)
			}
			return nil
		}
		i := newInstance(t, r)
		i.renewing(testContext(t))
		time.Sleep(2900 * time.Millisecond)
		if got, want := i.gate.Deadline(), epoch.Add(7*time.Second); !got.Equal(want) {
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
					if q.verb == "patch" && time.Since(epoch) < 5300*time.Millisecond {
						return errors.New("injected")
					}
					return nil
				})
				i := newInstance(t, r)
				i.controller.Prepare(low)
				i.gate.set(low)
				term, _ := i.renewing(ctx)
				time.Sleep(5200 * time.Millisecond)
				if turnedAway {
					if _, ok := i.door().Enter(1); ok {
						t.Fatal("work was let in after the deadline")
					}
				}
				time.Sleep(700 * time.Millisecond)
				fenced := i.told.has("event Fenced")
				term.settle()
				if leave, ok := i.door().Enter(1); !ok {
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
		i := newInstance(t, r)
		ctx, cancel := context.WithCancel(testContext(t))
		_, ended := i.renewing(ctx)
		time.Sleep(3 * time.Second)
		cancel()
		<-ended
		if at := time.Since(epoch); at != 3*time.Second {
			t.Errorf("renewing ended after %v, want at once", at)
		}
	})
}

// Whoever does not decide does not shut its gate either, nor gives anything away.
func TestAMemberWhoseDecidingGoroutineIsBlockedLosesItsRecordAndThenItsRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		a, b := two(t, r)
		a.told.take()
		ctx, unblock := context.WithCancel(t.Context())
		t.Cleanup(unblock)
		name, began := a.record().Name, time.Now()
		// A boundary moves; its controller hangs as it is prepared for what it gains.
		a.controller.inPrepare = func() { <-ctx.Done() }
		record := b.record()
		record.Spec.NextHashKey = (*shardingv1alpha1.HashKey)(key(1 << 61))
		r.edit(record)
		eventually(t, "the record is gone", func() bool { _, ok := r.get(name); return !ok })
		if took := time.Since(began); took > 3*lease/2 {
			t.Errorf("the record lived for %v", took)
		}
		want := []string{"renewal renewed", "renewal withheld", "event RenewalWithheld", "renewal withheld"}
		got := slices.DeleteFunc(a.told.take(), func(line string) bool { return strings.HasPrefix(line, "news") || strings.HasPrefix(line, "weight") })
		if !slices.Equal(slices.Compact(got), want) {
			t.Errorf("was told %v, want %v", got, want)
		}
		b.serves(hashkey.All())
		if took := time.Since(began); took > 2*lease {
			t.Errorf("the range was taken over after %v, want two leases at most", took)
		}
		if now := time.Now(); now.Before(a.gate.Deadline()) {
			t.Error("the blocked member may still work")
		}
		unblock()
		// Its caches hold that still.
		a.serves(hashkey.Between(1<<61, hashkey.Max))
	})
}

func TestAMemberThatIsSlowForAMomentKeepsItsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		i := newInstance(t, r)
		i.controller.inPrepare = func() { time.Sleep(2*lease/3 + time.Second/2) }
		i.start()
		i.serves(hashkey.All())
		name := i.record().Name
		time.Sleep(10 * lease)
		if got := i.record().Name; got != name {
			t.Errorf("the record is %s, was %s", got, name)
		}
		if !i.told.has("event RenewalWithheld") || !i.told.has("renewal withheld") {
			t.Error("nothing was told of it")
		}
	})
}

// What takes time in proportion to a range keeps nothing else waiting.
func TestAControllerThatTakesLongToQueueAndToForgetTakesNobodyOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		long := func() { time.Sleep(2 * lease) }
		a := newInstance(t, r)
		a.controller.inAcquired, a.controller.inReleased = long, long
		a.start()
		a.serves(hashkey.All())
		b := newInstance(t, r)
		b.controller.inAcquired, b.controller.inReleased = long, long
		b.start()
		eventually(t, "the range is shared", func() bool { return b.gate.serving().Equal(lower) && a.gate.serving().Equal(upper) })
		time.Sleep(20 * lease)
		for _, i := range []*instance{a, b} {
			if told := i.told.take(); slices.Contains(told[1:], "registered") || slices.Contains(told, "renewal withheld") {
				t.Errorf("was told %v", told)
			}
		}
	})
}

// Each of these takes nearly a minute, as with a webhook that times out.
func TestWorkOfManySlowRequestsDoesNotHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		i := newInstance(t, r)
		i.start()
		i.serves(hashkey.All())
		name := i.record().Name
		leave := i.work(1)
		rt := i.gate.WrapTransport("controller")(&server{answer: func(*http.Request) (*http.Response, error) {
			time.Sleep(59 * time.Second)
			return response(http.StatusOK, strings.NewReader("")), nil
		}})
		for range 10 {
			resp, err := send(t, rt, http.MethodPost)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		leave()
		if got := i.record().Name; got != name || i.told.has("renewal withheld") {
			t.Errorf("the record is %s, was %s", got, name)
		}
	})
}

func TestARequestMayTakeLongerThanConfidenceWhileRenewalsSucceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		i := newInstance(t, r, func(c *Config) { c.LeaseDuration = 2 * time.Second })
		i.start()
		i.serves(hashkey.All())
		s := &server{answer: func(req *http.Request) (*http.Response, error) {
			select {
			case <-time.After(1800 * time.Millisecond):
				return response(http.StatusOK, strings.NewReader("")), nil
			case <-req.Context().Done():
				return nil, req.Context().Err()
			}
		}}
		rt := i.gate.WrapTransport("controller")(s)
		for n := range 10 {
			resp, err := send(t, rt, http.MethodPost)
			if err != nil {
				t.Fatalf("request %d: %v", n, err)
			}
			resp.Body.Close()
			time.Sleep(170 * time.Millisecond)
		}
	})
}

// As a mirror or a backup of etcd by key leaves it.
func TestARecordWithoutALeaseIsRemovedByItsInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		a, b := two(t, r)
		record := a.record()
		r.lock.Lock()
		r.leases[record.UID].Stop()
		r.lock.Unlock()
		leave := a.work(hashkey.Max)
		time.Sleep(lease)
		if _, ok := r.get(record.Name); !ok {
			t.Error("the record was removed while work goes on under it")
		}
		leave()
		eventually(t, "the record is gone", func() bool { _, ok := r.get(record.Name); return !ok })
		eventually(t, "the ring is whole", func() bool {
			return a.gate.serving().Union(b.gate.serving()).Equal(hashkey.All()) && a.record().Name != record.Name
		})
	})
}
