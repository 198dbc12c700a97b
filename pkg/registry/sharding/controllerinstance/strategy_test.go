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

package controllerinstance

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/controllerring"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/kubernetes/pkg/apis/sharding"
	_ "k8s.io/kubernetes/pkg/apis/sharding/install"
	"k8s.io/utils/ptr"
)

func newInstance() *sharding.ControllerInstance {
	return &sharding.ControllerInstance{
		ObjectMeta: metav1.ObjectMeta{Name: "instance1", ResourceVersion: "4", Generation: 3, Labels: map[string]string{"zone": "a"}},
		Spec: sharding.ControllerInstanceSpec{
			Ring:                 "test",
			HolderIdentity:       "host1",
			LeaseDurationSeconds: 6,
			HashKey:              ptr.To[int64](99),
		},
		Status: sharding.ControllerInstanceStatus{Phase: sharding.InstanceActive, Weight: 7, Epoch: 2},
	}
}

func contextFor(verb, subresource string) context.Context {
	return genericapirequest.WithRequestInfo(genericapirequest.WithNamespace(genericapirequest.NewContext(), metav1.NamespaceNone), &genericapirequest.RequestInfo{
		APIGroup: "sharding.k8s.io", APIVersion: "v1alpha1", Resource: "controllerinstances", Subresource: subresource, Verb: verb,
	})
}

func TestCreate(t *testing.T) {
	ctx := contextFor("create", "")
	instance := newInstance()
	instance.ResourceVersion = ""
	leaving(instance)
	rest.WipeObjectMetaSystemFields(instance)
	rest.FillObjectMetaSystemFields(instance)
	if err := rest.BeforeCreate(Strategy, ctx, instance); err != nil {
		t.Fatal(err)
	}
	if !apiequality.Semantic.DeepEqual(instance.Status, sharding.ControllerInstanceStatus{}) {
		t.Errorf("status %+v is kept, want it cleared", instance.Status)
	}
	if instance.DeletionTimestamp != nil || instance.DeletionGracePeriodSeconds != nil {
		t.Errorf("it is deleted already: %v", instance.DeletionTimestamp)
	}
	if instance.Generation != 1 {
		t.Errorf("generation %d, want 1", instance.Generation)
	}

	instance.ResourceVersion, instance.Spec.LeaseDurationSeconds = "", 1
	if err := rest.BeforeCreate(Strategy, ctx, instance); err == nil {
		t.Errorf("an invalid spec was accepted")
	}
}

func TestUpdate(t *testing.T) {
	pinned := func(i *sharding.ControllerInstance) { i.Spec.PinnedHashKey = ptr.To[int64](30) }
	pinnedHere := func(i *sharding.ControllerInstance) { i.Spec.PinnedHashKey = ptr.To[int64](99) }
	moving := func(i *sharding.ControllerInstance) { i.Spec.NextHashKey = ptr.To[int64](50) }
	tests := map[string]struct {
		strategy       rest.RESTUpdateStrategy
		subresource    string
		byInstance     bool
		before         func(*sharding.ControllerInstance)
		change         func(*sharding.ControllerInstance)
		want           func(*sharding.ControllerInstance)
		wantGeneration int64
		wantErr        bool
	}{
		"spec": {
			strategy:       Strategy,
			change:         func(i *sharding.ControllerInstance) { i.Spec.Donor = "instance2" },
			want:           func(i *sharding.ControllerInstance) { i.Spec.Donor = "instance2" },
			wantGeneration: 4,
		},
		"a move by a person is pinned": {
			strategy: Strategy,
			before:   pinned,
			change:   moving,
			want: func(i *sharding.ControllerInstance) {
				i.Spec.NextHashKey, i.Spec.PinnedHashKey = ptr.To[int64](50), ptr.To[int64](50)
			},
			wantGeneration: 4,
		},
		"a move by an instance is not": {
			strategy:       Strategy,
			byInstance:     true,
			before:         pinned,
			change:         moving,
			want:           func(i *sharding.ControllerInstance) { pinned(i); moving(i) },
			wantGeneration: 4,
		},
		"a move by a person to another key than an instance has named is pinned": {
			strategy: Strategy,
			before:   moving,
			change:   func(i *sharding.ControllerInstance) { i.Spec.NextHashKey = ptr.To[int64](51) },
			want: func(i *sharding.ControllerInstance) {
				i.Spec.NextHashKey, i.Spec.PinnedHashKey = ptr.To[int64](51), ptr.To[int64](51)
			},
			wantGeneration: 4,
		},
		"another write during a move pins nothing": {
			strategy:       Strategy,
			before:         moving,
			change:         func(i *sharding.ControllerInstance) { i.Spec.Drained = true },
			want:           func(i *sharding.ControllerInstance) { moving(i); i.Spec.Drained = true },
			wantGeneration: 4,
		},
		"a move that is taken back pins nothing": {
			strategy:       Strategy,
			before:         moving,
			change:         func(i *sharding.ControllerInstance) { i.Spec.NextHashKey = nil },
			want:           func(i *sharding.ControllerInstance) { i.Spec.NextHashKey = nil },
			wantGeneration: 4,
		},
		"a pinned boundary that a person moves stays pinned until it is there": {
			strategy:       Strategy,
			before:         pinnedHere,
			change:         moving,
			want:           func(i *sharding.ControllerInstance) { pinnedHere(i); moving(i) },
			wantGeneration: 4,
		},
		"a pin follows its boundary": {
			strategy:   Strategy,
			byInstance: true,
			before:     func(i *sharding.ControllerInstance) { pinnedHere(i); moving(i) },
			change: func(i *sharding.ControllerInstance) {
				i.Spec.HashKey, i.Spec.NextHashKey = i.Spec.NextHashKey, nil
			},
			want: func(i *sharding.ControllerInstance) {
				i.Spec.HashKey, i.Spec.NextHashKey, i.Spec.PinnedHashKey = ptr.To[int64](50), nil, ptr.To[int64](50)
			},
			wantGeneration: 4,
		},
		"a pin of another key does not": {
			strategy:   Strategy,
			byInstance: true,
			before:     func(i *sharding.ControllerInstance) { pinned(i); moving(i) },
			change: func(i *sharding.ControllerInstance) {
				i.Spec.HashKey, i.Spec.NextHashKey = i.Spec.NextHashKey, nil
			},
			want: func(i *sharding.ControllerInstance) {
				pinned(i)
				i.Spec.HashKey, i.Spec.NextHashKey = ptr.To[int64](50), nil
			},
			wantGeneration: 4,
		},
		"a pinned boundary whose move is called off stays pinned": {
			strategy:       Strategy,
			byInstance:     true,
			before:         func(i *sharding.ControllerInstance) { pinnedHere(i); moving(i) },
			change:         func(i *sharding.ControllerInstance) { i.Spec.NextHashKey = nil },
			want:           func(i *sharding.ControllerInstance) { i.Spec.NextHashKey = nil },
			wantGeneration: 4,
		},
		"a boundary is released": {
			strategy:       Strategy,
			before:         func(i *sharding.ControllerInstance) { pinned(i); moving(i) },
			change:         func(i *sharding.ControllerInstance) { i.Spec.PinnedHashKey = nil },
			want:           func(i *sharding.ControllerInstance) { i.Spec.PinnedHashKey = nil },
			wantGeneration: 4,
		},
		"spec and status by the spec": {
			strategy: Strategy,
			change: func(i *sharding.ControllerInstance) {
				i.Spec.HashKey, i.Status.Phase, i.Status.Weight = nil, sharding.InstanceWait, 0
			},
			want:           func(i *sharding.ControllerInstance) { i.Spec.HashKey = nil },
			wantGeneration: 4,
		},
		"labels by the spec": {
			strategy:       Strategy,
			change:         func(i *sharding.ControllerInstance) { i.Labels = nil },
			want:           func(i *sharding.ControllerInstance) { i.Labels = nil },
			wantGeneration: 3,
		},
		"too much metadata": {
			strategy: Strategy,
			change: func(i *sharding.ControllerInstance) {
				i.Finalizers = slices.Repeat([]string{"example.com/hold"}, 4<<10)
			},
			wantErr: true,
		},
		"an instance writes in spite of what others have written": {
			strategy:   Strategy,
			byInstance: true,
			change: func(i *sharding.ControllerInstance) {
				i.Annotations = map[string]string{"a": strings.Repeat("x", 64<<10)}
			},
			want: func(i *sharding.ControllerInstance) {
				i.Annotations = map[string]string{"a": strings.Repeat("x", 64<<10)}
			},
			wantGeneration: 3,
		},
		"immutable": {
			strategy: Strategy,
			change:   func(i *sharding.ControllerInstance) { i.Spec.HolderIdentity = "host2" },
			wantErr:  true,
		},
		"without a resource version": {
			strategy: Strategy,
			change:   func(i *sharding.ControllerInstance) { i.ResourceVersion = "" },
			wantErr:  true,
		},
		"status": {
			strategy:       StatusStrategy,
			subresource:    "status",
			change:         func(i *sharding.ControllerInstance) { i.Status.Phase, i.Status.Busy = sharding.InstanceWait, 2 },
			want:           func(i *sharding.ControllerInstance) { i.Status.Phase, i.Status.Busy = sharding.InstanceWait, 2 },
			wantGeneration: 3,
		},
		"all by the status": {
			strategy:    StatusStrategy,
			subresource: "status",
			change: func(i *sharding.ControllerInstance) {
				i.Status.Busy, i.Spec.HashKey, i.Spec.HolderIdentity, i.Labels = 2, nil, "host2", nil
			},
			want:           func(i *sharding.ControllerInstance) { i.Status.Busy = 2 },
			wantGeneration: 3,
		},
		"unknown phase": {
			strategy:    StatusStrategy,
			subresource: "status",
			change:      func(i *sharding.ControllerInstance) { i.Status.Phase = "Dozing" },
			wantErr:     true,
		},
		"nothing, of a status that would be refused": {
			strategy:       StatusStrategy,
			subresource:    "status",
			before:         func(i *sharding.ControllerInstance) { i.Status.Phase, i.Status.Weight = "Dozing", -1 },
			change:         func(*sharding.ControllerInstance) {},
			want:           func(*sharding.ControllerInstance) {},
			wantGeneration: 3,
		},
		"lower epoch": {
			strategy:    StatusStrategy,
			subresource: "status",
			change:      func(i *sharding.ControllerInstance) { i.Status.Epoch = 1 },
			wantErr:     true,
		},
		"status without a resource version": {
			strategy:    StatusStrategy,
			subresource: "status",
			change:      func(i *sharding.ControllerInstance) { i.ResourceVersion = "" },
			wantErr:     true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ctx := contextFor("update", test.subresource)
			if test.byInstance {
				ctx = controllerring.NewContext(ctx, fence.Identity{Ring: "test", Name: "instance2"})
			}
			before := newInstance()
			if test.before != nil {
				test.before(before)
			}
			old, got := before.DeepCopy(), before.DeepCopy()
			test.change(got)
			err := rest.BeforeUpdate(test.strategy, ctx, got, old)
			if (err != nil) != test.wantErr {
				t.Fatalf("got error %v, want one: %v", err, test.wantErr)
			}
			if test.wantErr {
				return
			}
			want := before
			test.want(want)
			want.Generation = test.wantGeneration
			if want.Status.Phase != old.Status.Phase {
				// TestAPhaseHasATime says when that is.
				want.Status.PhaseSince = got.Status.PhaseSince
			}
			if !apiequality.Semantic.DeepEqual(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// The server says since when an instance has its phase, whatever the instance says.
func TestAPhaseHasATime(t *testing.T) {
	then := metav1.NewTime(time.Now().Add(-time.Hour))
	for name, test := range map[string]struct {
		phase, next sharding.InstancePhase
		changes     bool
	}{
		"the first phase": {"", sharding.InstanceInit, true},
		"another phase":   {sharding.InstanceActive, sharding.InstanceWait, true},
		"the same phase":  {sharding.InstanceActive, sharding.InstanceActive, false},
	} {
		for claim, claimed := range map[string]*metav1.Time{"none": nil, "one": ptr.To(metav1.NewTime(then.Add(-time.Hour)))} {
			old := newInstance()
			old.Status.Phase, old.Status.PhaseSince = test.phase, &then
			got := old.DeepCopy()
			got.Status.Phase, got.Status.Weight, got.Status.PhaseSince = test.next, 99, claimed
			begin := time.Now()
			if err := rest.BeforeUpdate(StatusStrategy, contextFor("update", "status"), got, old); err != nil {
				t.Fatal(err)
			}
			switch since := got.Status.PhaseSince; {
			case since == nil:
				t.Errorf("%s, with %s sent: no time", name, claim)
			case test.changes && since.Time.Before(begin), !test.changes && !since.Equal(&then):
				t.Errorf("%s, with %s sent: since %v", name, claim, since)
			}
		}
	}
}

// The server says when the presence of an instance ended; a report of the instance says that it
// lives.
func TestAReportUnsetsWhenAPresenceEnded(t *testing.T) {
	then, claimed := metav1.NewMicroTime(time.Now().Add(-time.Second)), metav1.NowMicro()
	for name, test := range map[string]struct {
		weight int64
		claim  *metav1.MicroTime
		want   *metav1.MicroTime
	}{
		"a renewal":                {7, &then, &then},
		"a renewal that says none": {7, nil, &then},
		"a renewal that claims":    {7, &claimed, &then},
		"a report":                 {99, &then, nil},
		"a report that claims":     {99, &claimed, nil},
	} {
		old := newInstance()
		old.Status.Phase, old.Status.PhaseSince = sharding.InstanceActive, ptr.To(metav1.Now())
		old.Status.Weight, old.Status.PresenceEnded = 7, &then
		got := old.DeepCopy()
		got.Status.Weight, got.Status.PresenceEnded = test.weight, test.claim
		if err := rest.BeforeUpdate(StatusStrategy, contextFor("update", "status"), got, old); err != nil {
			t.Fatal(err)
		}
		if !got.Status.PresenceEnded.Equal(test.want) {
			t.Errorf("%s: the presence ended at %v, want %v", name, got.Status.PresenceEnded, test.want)
		}
	}
}

// A delete marks an instance that owns a range, and lets it drain; its lease ends that wait.
func TestADeleteOfAnOwnerIsARequestToLeave(t *testing.T) {
	for name, test := range map[string]struct {
		change       func(*sharding.ControllerInstance)
		grace        *int64
		wantGraceful bool
		wantPending  bool
		wantGrace    *int64
		wantMarked   bool
	}{
		"an owner":                         {wantGraceful: true, wantGrace: ptr.To[int64](6), wantMarked: true},
		"an owner, in a hurry":             {grace: ptr.To[int64](1), wantGraceful: true, wantGrace: ptr.To[int64](6), wantMarked: true},
		"an owner, with time":              {grace: ptr.To[int64](600), wantGraceful: true, wantGrace: ptr.To[int64](6), wantMarked: true},
		"an owner, at once":                {grace: ptr.To[int64](0), wantGrace: ptr.To[int64](0)},
		"one that owns nothing":            {change: func(i *sharding.ControllerInstance) { i.Spec.HashKey = nil }},
		"one that owns the lowest range":   {change: func(i *sharding.ControllerInstance) { i.Spec.HashKey = ptr.To[int64](0) }, wantGraceful: true, wantGrace: ptr.To[int64](6), wantMarked: true},
		"one that leaves already":          {change: leaving, wantPending: true, wantGrace: ptr.To[int64](6), wantMarked: true},
		"one that leaves already, at once": {change: leaving, grace: ptr.To[int64](0), wantGraceful: true, wantGrace: ptr.To[int64](0), wantMarked: true},
	} {
		t.Run(name, func(t *testing.T) {
			instance := newInstance()
			if test.change != nil {
				test.change(instance)
			}
			options := &metav1.DeleteOptions{GracePeriodSeconds: test.grace}
			graceful, pending, err := rest.BeforeDelete(Strategy, contextFor("delete", ""), instance, options)
			if err != nil {
				t.Fatal(err)
			}
			if graceful != test.wantGraceful || pending != test.wantPending {
				t.Errorf("graceful: %v, pending: %v, want %v, %v", graceful, pending, test.wantGraceful, test.wantPending)
			}
			if !ptr.Equal(options.GracePeriodSeconds, test.wantGrace) {
				t.Errorf("grace period %v, want %v", options.GracePeriodSeconds, test.wantGrace)
			}
			if marked := instance.DeletionTimestamp != nil; marked != test.wantMarked {
				t.Errorf("marked: %v, want %v", marked, test.wantMarked)
			}
		})
	}
}

func leaving(i *sharding.ControllerInstance) {
	i.DeletionTimestamp, i.DeletionGracePeriodSeconds = ptr.To(metav1.Now()), ptr.To[int64](6)
}

func TestMatch(t *testing.T) {
	instance := newInstance()
	for selector, want := range map[string]bool{
		"":                        true,
		"metadata.name=instance1": true,
		"metadata.name=instance2": false,
		"spec.ring=test":          true,
		"spec.ring!=test":         false,
		"spec.ring=claims":        false,
	} {
		predicate := Match(labels.Everything(), fields.ParseSelectorOrDie(selector))
		if got, err := predicate.Matches(instance); err != nil || got != want {
			t.Errorf("%q matches: %v (%v), want %v", selector, got, err, want)
		}
	}
	predicate := Match(labels.SelectorFromSet(labels.Set{"zone": "b"}), fields.Everything())
	if got, err := predicate.Matches(instance); err != nil || got {
		t.Errorf("another label matches: %v (%v)", got, err)
	}
	if _, _, err := GetAttrs(&metav1.Status{}); err == nil {
		t.Errorf("got attributes of another type, want an error")
	}
}
