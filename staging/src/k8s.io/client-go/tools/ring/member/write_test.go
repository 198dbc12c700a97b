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
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	shardingclient "k8s.io/client-go/kubernetes/typed/sharding/v1alpha1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/ring"
)

// grant returns a write that gives the instance's own record a key.
func (i *instance) grant() ring.Write {
	i.t.Helper()
	record := i.record()
	return ring.Write{Reason: ring.ReasonGrant, Name: record.Name, UID: record.UID, Generation: record.Generation, Key: key(99)}
}

func TestAWriteSetsTheSpecOfTheRecordThatItWasDecidedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		r := newRegistry(t)
		i := newInstance(t, r)
		term := i.registered(ctx)
		for _, tc := range []struct {
			key, next *int64
			donor     string
			want      map[string]any
		}{
			{nil, nil, "b", map[string]any{"hashKey": nil, "nextHashKey": nil, "donor": "b"}},
			{nil, key(99), "b", map[string]any{"hashKey": nil, "nextHashKey": json.Number("99"), "donor": "b"}},
			{key(99), nil, "", map[string]any{"hashKey": json.Number("99"), "nextHashKey": nil, "donor": ""}},
		} {
			before := i.record()
			w := i.grant()
			w.Key, w.Next, w.Donor = tc.key, tc.next, tc.donor
			settled, err := term.send(ctx, w)
			if err != nil || settled != r.revision() {
				t.Fatalf("got revision %d and %v, want %d", settled, err, r.revision())
			}
			patches := r.got(ofPatch("spec"))
			got := patches[len(patches)-1]
			metadata := map[string]any{"uid": string(before.UID), "generation": json.Number(strconv.FormatInt(before.Generation, 10))}
			if got.name != before.Name || len(got.body) != 2 || !maps.Equal(got.body["metadata"].(map[string]any), metadata) || !maps.Equal(got.body["spec"].(map[string]any), tc.want) {
				t.Errorf("%s was patched with %v, want %v and %v", got.name, got.body, metadata, tc.want)
			}
		}
	})
}

func TestAWriteIsRefusedIfTheSpecHasChangedSinceTheDecision(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(*shardingv1alpha1.ControllerInstance)
		refused bool
	}{
		"its spec was written": {func(record *shardingv1alpha1.ControllerInstance) { record.Generation++ }, true},
		"it is another's now":  {func(record *shardingv1alpha1.ControllerInstance) { record.UID = "uid-of-another" }, true},
		"it was renewed":       {func(record *shardingv1alpha1.ControllerInstance) { record.Status.Busy = 7 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := testContext(t)
				r := newRegistry(t)
				i := newInstance(t, r)
				term := i.registered(ctx)
				w := i.grant()
				record := i.record()
				tc.change(&record)
				r.edit(record)
				if _, err := term.send(ctx, w); (err != nil) != tc.refused || err != nil && !isChanged(err) {
					t.Errorf("got %v, want it refused as the record has changed: %t", err, tc.refused)
				}
				if written := i.record().Spec.HashKey != nil; written == tc.refused {
					t.Errorf("the record was written: %t", written)
				}
			})
		})
	}
}

// With a resource version as precondition a log that lags by more than the time between
// two heartbeats would refuse every grant for as long as it lags.
func TestAJoinEndsThoughTheLogLagsBehindHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lag = 3 * time.Second
		r := newRegistry(t)
		r.delay = lag
		first := newInstance(t, r)
		first.start()
		eventually(t, "the first serves all keys", first.gate.ServesAll)
		second := newInstance(t, r)
		second.start()
		began := time.Now()
		eventually(t, "the second has its half", func() bool { return !second.gate.serving().Empty() })
		// The log is read five times on the way: wish, split, warm caches, grant, and the
		// donor's end of it.
		if took := time.Since(began); took > 8*lag {
			t.Errorf("a join took %v with a log that lags by %v", took, lag)
		}
		refused := 0
		for _, q := range r.got(ofPatch("spec")) {
			if q.refused {
				refused++
			}
		}
		if refused > 20 {
			t.Errorf("%d writes were refused, want 20 at most", refused)
		}
	})
}

func TestADeletionNamesTheUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		r := newRegistry(t)
		i := newInstance(t, r)
		term := i.registered(ctx)
		w := ring.Write{Reason: ring.ReasonLeave, Name: term.self.Name, UID: term.self.UID, Delete: true}
		// The record may have changed since: renewals go on while the instance leaves.
		r.edit(i.record())
		if _, err := term.send(ctx, w); err != nil {
			t.Error(err)
		}
		if _, ok := r.get(term.self.Name); ok {
			t.Error("the record is still there")
		}
		got := r.got(ofVerb("delete"))[0].precondition
		if got == nil || got.UID == nil || *got.UID != term.self.UID || got.ResourceVersion != nil {
			t.Errorf("the precondition was %+v, want UID %s alone", got, term.self.UID)
		}

		other := newInstance(t, r)
		another := other.registered(ctx)
		w.Name = another.self.Name
		if _, err := term.send(ctx, w); !apierrors.IsConflict(err) {
			t.Errorf("the deletion of another's record: %v, want a conflict", err)
		}
		other.record()
	})
}

func TestADeletionEndsTheTermThoughTheRecordIsGoneAlready(t *testing.T) {
	for name, gone := range map[string]bool{"it is there": false, "it is gone": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := testContext(t)
				r := newRegistry(t)
				term := newInstance(t, r).registered(ctx)
				if gone {
					r.remove(term.self.Name)
				}
				term.write(ctx, ring.Write{Reason: ring.ReasonLeave, Name: term.self.Name, UID: term.self.UID, Delete: true})
				term.settle()
				if !term.lost || term.writing {
					t.Errorf("lost is %t and writing is %t", term.lost, term.writing)
				}
			})
		})
	}
}

func TestAMemberPausesLongerAfterEachWriteOfASpecThatFails(t *testing.T) {
	for name, err := range map[string]error{
		"a failed test":     apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", resource, "a", "injected", 0, false),
		"a conflict":        apierrors.NewConflict(resource, "a", errors.New("injected")),
		"a record gone":     apierrors.NewNotFound(resource, "a"),
		"a failing server":  apierrors.NewInternalError(errors.New("injected")),
		"a lost connection": errors.New("injected"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				failures := 9
				r := newRegistry(t)
				r.intercept(func(_ context.Context, q request) error {
					if ofPatch("spec")(q) && failures > 0 {
						failures--
						return err
					}
					return nil
				})
				i := newInstance(t, r)
				i.start()
				time.Sleep(10 * time.Second)
				var want []time.Duration
				at := time.Duration(0)
				for _, pause := range []int{0, 10, 20, 40, 80, 160, 320, 640, 1000, 1000} {
					at += time.Duration(pause) * time.Millisecond
					want = append(want, at)
				}
				expectTimes(t, r.got(ofPatch("spec")), want...)
				if !i.gate.ServesAll() {
					t.Errorf("the gate is open for %v, want all keys", i.gate.serving())
				}
			})
		})
	}
}

func TestAMemberDoesNotPauseBeforeAWriteOfAnotherSpec(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		term := newInstance(t, newRegistry(t)).registered(ctx)
		w := ring.Write{Name: "a", UID: "1", Generation: 3}
		for range 9 {
			term.refuse(&w)
		}
		if term.refused.pause != maxPause || !term.refused.of(&w) {
			t.Errorf("pauses %v, want %v", term.refused.pause, maxPause)
		}
		for _, other := range []ring.Write{{Name: "b", UID: "1", Generation: 3}, {Name: "a", UID: "2", Generation: 3}, {Name: "a", UID: "1", Generation: 4}} {
			if term.refused.of(&other) {
				t.Errorf("%+v has to wait too", other)
			}
		}
		w.Generation++
		term.refuse(&w)
		if term.refused.pause != firstPause {
			t.Errorf("pauses %v after the first refusal of another spec, want %v", term.refused.pause, firstPause)
		}
	})
}

// The write was carried out, but the log's order cannot be told by such a version.
func TestAnAnswerWithoutANumberForARevisionIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		r := newRegistry(t)
		r.after = func(_ context.Context, q request, answer *shardingv1alpha1.ControllerInstance) error {
			if ofPatch("spec")(q) {
				answer.ResourceVersion = "v9"
			}
			return nil
		}
		i := newInstance(t, r)
		term := i.registered(ctx)
		_, err := term.send(ctx, i.grant())
		if err == nil || !strings.Contains(err.Error(), term.self.Name) || !strings.Contains(err.Error(), `resourceVersion "v9", want a number`) {
			t.Errorf("got %v", err)
		}
		term.write(ctx, i.grant())
		term.settle()
		if want := time.Now().Add(firstPause); term.writing || term.settled != 0 || !term.refused.retryAt.Equal(want) {
			t.Errorf("writing is %t, settled %d and retryAt %v, want a failure that is tried again at %v", term.writing, term.settled, term.refused.retryAt, want)
		}
	})
}

func TestTheNextWriteWaitsUntilTheLogHasTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		r := newRegistry(t)
		term := newInstance(t, r).registered(ctx)
		term.decided(ctx)
		patches := r.got(ofPatch("spec"))
		if len(patches) != 1 || term.settled != r.revision() {
			t.Fatalf("%d writes were sent and the last has revision %d, want one with %d", len(patches), term.settled, r.revision())
		}
		// The machine does not know of its write, so it decides on it again.
		time.Sleep(time.Second)
		term.decided(ctx)
		// Another instance's change is not the own one.
		term.machine.Apply(ring.Record{Name: "b", Revision: term.settled - 1})
		term.decided(ctx)
		if n := len(r.got(ofPatch("spec"))); n != 1 {
			t.Errorf("%d writes were sent, want none before the log has the first", n-1)
		}
		own, _ := r.get(term.self.Name)
		record, err := ring.NewRecord(&own)
		if err != nil {
			t.Fatal(err)
		}
		term.machine.Apply(record)
		term.machine.Apply(ring.Record{Name: "b", Revision: term.settled + 1, Donor: term.self.Name})
		term.decided(ctx)
		if patches := r.got(ofPatch("spec")); len(patches) != 2 || patches[1].name != "b" {
			t.Errorf("got %v, want a write of b once the log has the first", patches[1:])
		}
	})
}

func TestOneWriteIsUnderWayAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		r := newRegistry(t)
		answer := make(chan struct{})
		r.intercept(func(_ context.Context, q request) error {
			if ofPatch("spec")(q) {
				<-answer
			}
			return nil
		})
		term := newInstance(t, r).registered(ctx)
		for range 3 {
			term.decided(ctx)
		}
		if n := len(r.got(ofPatch("spec"))); n != 1 {
			t.Errorf("%d writes are under way", n)
		}
		close(answer)
		term.settle()
	})
}

func TestAWriteIsNotSentAfterTheGatesDeadline(t *testing.T) {
	for name, shut := range map[string]func(*Gate){
		"the deadline has passed": func(g *Gate) { time.Sleep(time.Until(g.Deadline())) },
		"the record is gone":      func(g *Gate) { g.expire() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := testContext(t)
				r := newRegistry(t)
				i := newInstance(t, r)
				term := i.registered(ctx)
				w := i.grant()
				shut(i.gate)
				term.write(ctx, w)
				term.settle()
				if sent := r.got(ofPatch("spec")); len(sent) > 0 {
					t.Errorf("a write was sent at %v", times(sent))
				}
				if want := time.Now().Add(firstPause); term.writing || !term.refused.retryAt.Equal(want) {
					t.Errorf("writing is %t and retryAt %v, want a failure that is tried again at %v", term.writing, term.refused.retryAt, want)
				}
			})
		})
	}
}

func TestAWriteUnderWayIsGivenUpAtTheGatesDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		r := newRegistry(t)
		var gaveUp time.Time
		r.intercept(func(ctx context.Context, q request) error {
			if ofPatch("spec")(q) {
				<-ctx.Done()
				gaveUp = time.Now()
			}
			return nil
		})
		i := newInstance(t, r)
		term := i.registered(ctx)
		time.Sleep(time.Second)
		term.write(ctx, i.grant())
		time.Sleep(lease)
		synctest.Wait()
		if want := i.gate.Deadline(); !gaveUp.Equal(want) {
			t.Errorf("the write was given up at %v, want %v", gaveUp, want)
		}
		if got := i.record().Spec.HashKey; got != nil {
			t.Errorf("the write was carried out: hashKey %s", hashkey.FormatOptional(got))
		}
	})
}

// While an API server comes up, or when it runs with the feature gate off, a 404 says
// nothing of the record. A real client tells the two apart.
func TestOnlyTheAnswerOfAServerThatServesTheGroupSaysThatARecordIsGone(t *testing.T) {
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		gone   bool
	}{
		"the group is not served": {http.NotFound, false},
		"the record is gone": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			status := apierrors.NewNotFound(resource, "a").Status()
			status.APIVersion, status.Kind = "v1", "Status"
			_ = json.NewEncoder(w).Encode(status)
		}, true},
	} {
		server := httptest.NewServer(tc.answer)
		client, err := shardingclient.NewForConfig(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.ControllerInstances().Patch(t.Context(), "a", types.MergePatchType, []byte("{}"), metav1.PatchOptions{}, "status")
		if !apierrors.IsNotFound(err) || isGone(err) != tc.gone {
			t.Errorf("%s: %v is taken for gone: %t, want %t", name, err, isGone(err), tc.gone)
		}
		server.Close()
	}
}

// What validation or a policy refuses is an error that somebody has to see.
func TestOnlyAFailedTestOfAPatchIsTakenForAChange(t *testing.T) {
	failed := apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", resource, "a", "test failed", 0, false)
	invalid := apierrors.NewInvalid(shardingv1alpha1.SchemeGroupVersion.WithKind("ControllerInstance").GroupKind(), "a",
		field.ErrorList{field.Invalid(field.NewPath("spec", "hashKey"), -1, "must not be negative")})
	for err, changed := range map[error]bool{failed: true, invalid: false, errors.New("injected"): false} {
		if isChanged(err) != changed {
			t.Errorf("%v is taken for a change: %t, want %t", err, !changed, changed)
		}
	}
}
