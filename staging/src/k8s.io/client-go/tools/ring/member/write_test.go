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
	"slices"
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
	"k8s.io/client-go/tools/ring/fence"
)

// wish returns a write of the instance's own record that names a donor.
func (i *instance) wish() ring.Write {
	i.t.Helper()
	record := i.record()
	return ring.Write{Reason: ring.ReasonWish, Name: record.Name, UID: record.UID, Generation: record.Generation, Donor: "b"}
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
			{key(hashkey.Max), nil, "", map[string]any{"hashKey": json.Number("9223372036854775807"), "nextHashKey": nil, "donor": ""}},
		} {
			before := i.record()
			w := i.wish()
			w.Key, w.Next, w.Donor = tc.key, tc.next, tc.donor
			written, err := term.send(ctx, w, 0)
			if err != nil || written.Revision != r.revision() {
				t.Fatalf("got revision %d and %v, want %d", written.Revision, err, r.revision())
			}
			patches := r.got(ofPatch(partSpec))
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
		"it has news":          {func(record *shardingv1alpha1.ControllerInstance) { record.Status.Busy = 7 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := testContext(t)
				r := newRegistry(t)
				i := newInstance(t, r)
				term := i.registered(ctx)
				w := i.wish()
				record := i.record()
				tc.change(&record)
				r.edit(record)
				_, err := term.send(ctx, w, 0)
				if (err != nil) != tc.refused || err != nil && !isChanged(err) {
					t.Errorf("got %v, want it refused as the record has changed: %t", err, tc.refused)
				}
				if written := i.record().Spec.Donor != ""; written == tc.refused {
					t.Errorf("the record was written: %t", written)
				}
			})
		})
	}
}

// Somebody may have taken a drain back meanwhile.
func TestADeletionIsOfTheRecordAsItWasKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		r := newRegistry(t)
		i := newInstance(t, r)
		term := i.registered(ctx)
		w := ring.Write{Reason: ring.ReasonLeave, Name: term.self.Name, UID: term.self.UID, Delete: true}
		known := r.revision()
		r.edit(i.record())
		if _, err := term.send(ctx, w, known); !apierrors.IsConflict(err) {
			t.Errorf("the deletion of a record that has changed: %v, want a conflict", err)
		}
		i.record()
		if _, err := term.send(ctx, w, r.revision()); err != nil {
			t.Error(err)
		}
		if _, ok := r.get(term.self.Name); ok {
			t.Error("the record is still there")
		}
		got := r.got(ofVerb("delete"))[0].precondition
		if got == nil || got.UID == nil || *got.UID != term.self.UID {
			t.Errorf("the precondition was %+v, want UID %s", got, term.self.UID)
		}

		other := newInstance(t, r)
		another := other.registered(ctx)
		w.Name = another.self.Name
		if _, err := term.send(ctx, w, r.revision()); !apierrors.IsConflict(err) {
			t.Errorf("the deletion of another's record: %v, want a conflict", err)
		}
		other.record()
	})
}

// An answer may be ahead of the log.
func TestADeletionWaitsForTheLogIfAnAnswerHasShownAnotherSpec(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		r := newRegistry(t)
		term := newInstance(t, r).registered(ctx)
		term.news.stored = ring.Record{Name: term.self.Name, UID: term.self.UID, Generation: 2, Revision: r.revision()}
		term.write(ctx, ring.Write{Reason: ring.ReasonLeave, Name: term.self.Name, UID: term.self.UID, Generation: 1, Delete: true})
		term.settle()
		if got := r.got(ofVerb("delete")); len(got) > 0 || term.writing || term.refused.pause == 0 {
			t.Errorf("%d deletions were sent", len(got))
		}
	})
}

func TestADeletionEndsTheTermThoughTheRecordIsGoneAlready(t *testing.T) {
	for name, gone := range map[string]bool{"it is there": false, "it is gone": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := testContext(t)
				r := newRegistry(t)
				term := newInstance(t, r).registered(ctx)
				own, _ := term.machine.View().Get(term.self.Name)
				term.learn(own)
				if gone {
					r.remove(term.self.Name)
				}
				term.write(ctx, ring.Write{Reason: ring.ReasonLeave, Name: term.self.Name, UID: term.self.UID, Generation: own.Generation, Delete: true})
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
					if ofPatch(partSpec)(q) && failures > 0 {
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
				expectTimes(t, r.got(ofPatch(partSpec)), want...)
				if !i.door().ServesAll() {
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
			if ofPatch(partSpec)(q) {
				answer.ResourceVersion = "v9"
			}
			return nil
		}
		i := newInstance(t, r)
		term := i.registered(ctx)
		_, err := term.send(ctx, i.wish(), 0)
		if err == nil || !strings.Contains(err.Error(), term.self.Name) || !strings.Contains(err.Error(), `resourceVersion "v9", want a number`) {
			t.Errorf("got %v", err)
		}
		term.write(ctx, i.wish())
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
		var written string
		r.after = func(_ context.Context, q request, answer *shardingv1alpha1.ControllerInstance) error {
			if q.part == partSpec {
				written = answer.ResourceVersion
			}
			return nil
		}
		term := newInstance(t, r).registered(ctx)
		term.decided(ctx)
		patches := r.got(ofPatch(partSpec))
		if len(patches) != 1 || strconv.FormatInt(term.settled, 10) != written {
			t.Fatalf("%d writes were sent and the last has revision %d, want one with %s", len(patches), term.settled, written)
		}
		// The machine does not know of its write, so it decides on it again.
		time.Sleep(lookInterval / 2)
		term.decided(ctx)
		// Another instance's change is not the own one.
		term.machine.Apply(ring.Record{Name: "b", Revision: term.settled - 1, Controllers: listed})
		term.decided(ctx)
		if n := len(r.got(ofPatch(partSpec))); n != 1 {
			t.Errorf("%d writes were sent, want none before the log has the first", n-1)
		}
		own, _ := r.get(term.self.Name)
		record, err := ring.NewRecord(&own)
		if err != nil {
			t.Fatal(err)
		}
		term.machine.Apply(record)
		term.machine.Apply(ring.Record{Name: "b", Revision: r.revision() + 1, Donor: term.self.Name, Controllers: listed})
		term.decided(ctx)
		if patches := r.got(ofPatch(partSpec)); len(patches) != 2 || patches[1].name != "b" {
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
			if ofPatch(partSpec)(q) {
				<-answer
			}
			return nil
		})
		term := newInstance(t, r).registered(ctx)
		for range 3 {
			term.decided(ctx)
		}
		if n := len(r.got(ofPatch(partSpec))); n != 1 {
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
				w := i.wish()
				shut(i.gate)
				term.write(ctx, w)
				term.settle()
				if sent := r.got(ofPatch(partSpec)); len(sent) > 0 {
					t.Errorf("a write was sent at %v", times(sent))
				}
				if want := time.Now().Add(firstPause); term.writing || !term.refused.retryAt.Equal(want) {
					t.Errorf("writing is %t and retryAt %v, want a failure that is tried again at %v", term.writing, term.refused.retryAt, want)
				}
			})
		})
	}
}

func TestAWriteUnderWayIsGivenUpWhenTheLeaseMayHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		r := newRegistry(t)
		var gaveUp time.Time
		r.intercept(func(ctx context.Context, q request) error {
			if ofPatch(partSpec)(q) {
				<-ctx.Done()
				gaveUp = time.Now()
			}
			return nil
		})
		i := newInstance(t, r)
		term := i.registered(ctx)
		time.Sleep(time.Second)
		term.write(ctx, i.wish())
		time.Sleep(lease)
		synctest.Wait()
		if want := i.gate.Deadline().Add(lease - fence.Confidence(lease)); !gaveUp.Equal(want) {
			t.Errorf("the write was given up at %v, want %v", gaveUp, want)
		}
		if got, ok := r.get(term.self.Name); ok && got.Spec.Donor != "" {
			t.Errorf("the write was carried out: donor %s", got.Spec.Donor)
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

func TestAWriteMayTakeLongerThanConfidenceWhileRenewalsSucceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		slow := func(ctx context.Context, q request) error {
			if q.part == partSpec || q.part == partNews {
				select {
				case <-time.After(1800 * time.Millisecond):
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		}
		short := func(c *Config) { c.LeaseDuration = 2 * time.Second }
		a, b := newInstance(t, r, short), newInstance(t, r, short)
		r.intercept(slow)
		a.start()
		a.serves(hashkey.All())
		b.start()
		b.serves(lower)
		a.serves(upper)
	})
}

// The answer may be lost though renewals get through.
func TestAWriteWithoutAnAnswerIsGivenUpAfterALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		var gaveUp []time.Duration
		r.intercept(func(ctx context.Context, q request) error {
			if q.part == partSpec {
				<-ctx.Done()
				gaveUp = append(gaveUp, time.Since(epoch))
				return ctx.Err()
			}
			return nil
		})
		i := newInstance(t, r)
		i.start()
		time.Sleep(2*lease + time.Second)
		synctest.Wait()
		if want := []time.Duration{lease, 2*lease + firstPause}; !slices.Equal(gaveUp, want) {
			t.Errorf("writes were given up at %v, want %v", gaveUp, want)
		}
	})
}
