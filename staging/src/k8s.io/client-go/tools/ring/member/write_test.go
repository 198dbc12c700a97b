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
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/client-go/tools/ring"
)

// grant returns a write that gives the instance's own record a key.
func (i *instance) grant() ring.Write {
	i.t.Helper()
	record := i.record()
	revision, err := strconv.ParseInt(record.ResourceVersion, 10, 64)
	if err != nil {
		i.t.Fatal(err)
	}
	return ring.Write{Reason: ring.ReasonGrant, Name: record.Name, UID: record.UID, Revision: revision, Key: key(99)}
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
			metadata := map[string]any{"uid": string(before.UID), "resourceVersion": before.ResourceVersion}
			if got.name != before.Name || len(got.body) != 2 || !maps.Equal(got.body["metadata"].(map[string]any), metadata) || !maps.Equal(got.body["spec"].(map[string]any), tc.want) {
				t.Errorf("%s was patched with %v, want %v and %v", got.name, got.body, metadata, tc.want)
			}
		}
	})
}

func TestAWriteIsRefusedIfTheRecordHasChangedSinceTheDecision(t *testing.T) {
	for name, change := range map[string]func(*shardingv1alpha1.ControllerInstance){
		"it was written":      func(*shardingv1alpha1.ControllerInstance) {},
		"it is another's now": func(record *shardingv1alpha1.ControllerInstance) { record.UID = "uid-of-another" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := testContext(t)
				r := newRegistry(t)
				i := newInstance(t, r)
				term := i.registered(ctx)
				w := i.grant()
				record := i.record()
				change(&record)
				r.edit(record)
				if _, err := term.send(ctx, w); !apierrors.IsConflict(err) {
					t.Errorf("got %v, want a conflict", err)
				}
				if got := i.record(); got.Spec.HashKey != nil {
					t.Error("the record was written")
				}
			})
		})
	}
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

func TestAMemberPausesAfterAWriteThatFails(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want time.Duration
	}{
		"a conflict":        {apierrors.NewConflict(resource, "a", errors.New("injected")), 10 * time.Millisecond},
		"a record gone":     {apierrors.NewNotFound(resource, "a"), 10 * time.Millisecond},
		"a failing server":  {apierrors.NewInternalError(errors.New("injected")), 200 * time.Millisecond},
		"a lost connection": {errors.New("injected"), 200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				failures := 3
				r := newRegistry(t)
				r.intercept(func(_ context.Context, q request) error {
					if ofPatch("spec")(q) && failures > 0 {
						failures--
						return tc.err
					}
					return nil
				})
				i := newInstance(t, r)
				i.start()
				time.Sleep(time.Second)
				expectTimes(t, r.got(ofPatch("spec")), 0, tc.want, 2*tc.want, 3*tc.want)
				if !i.gate.ServesAll() {
					t.Errorf("the gate is open for %v, want all keys", i.gate.serving())
				}
			})
		})
	}
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
		if want := time.Now().Add(failurePause); term.writing || term.settled != 0 || !term.retryAt.Equal(want) {
			t.Errorf("writing is %t, settled %d and retryAt %v, want a failure that is tried again at %v", term.writing, term.settled, term.retryAt, want)
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
				shut(i.gate)
				term.write(ctx, i.grant())
				term.settle()
				if sent := r.got(ofPatch("spec")); len(sent) > 0 {
					t.Errorf("a write was sent at %v", times(sent))
				}
				if want := time.Now().Add(failurePause); term.writing || !term.retryAt.Equal(want) {
					t.Errorf("writing is %t and retryAt %v, want a failure that is tried again at %v", term.writing, term.retryAt, want)
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
