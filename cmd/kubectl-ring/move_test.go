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

package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

func TestMove(t *testing.T) {
	owner := instance("owner", "workloads").(*shardingv1alpha1.ControllerInstance)
	// Another bounds what can be moved.
	other := instance("other", "workloads").(*shardingv1alpha1.ControllerInstance)
	other.Spec.HashKey = ptr.To[shardingv1alpha1.HashKey](1 << 61)
	joining := instance("joining", "workloads").(*shardingv1alpha1.ControllerInstance)
	joining.Spec.HashKey = nil
	moving := instance("moving", "claims").(*shardingv1alpha1.ControllerInstance)
	moving.Spec.NextHashKey = ptr.To[shardingv1alpha1.HashKey](16)
	alone := instance("alone", "namespaces").(*shardingv1alpha1.ControllerInstance)
	owner.Status.Weight = 900
	for _, tc := range []struct {
		name, to, err string
		dryRun        bool
		want          int64
		says          []string
	}{
		{name: "owner", to: "3fffffffffffffff", want: 1<<62 - 1, says: []string{
			"owner gives (3fffffffffffffff, 7fffffffffffffff] to other: 66.7% of its keys, with about 600 of its 900 objects"}},
		{name: "owner", to: "3fffffffffffffff", dryRun: true, says: []string{"would move from 7fffffffffffffff to 3fffffffffffffff\n", "owner gives"}},
		{name: "other", to: "0x3000000000000000", want: 3 << 60, says: []string{"owner gives (2000000000000000, 3000000000000000] to other: 16.7%"}},
		{name: "other", to: "0000000000000010", want: 16, says: []string{"other gives"}},
		{name: "owner", to: "7fffffffffffffff", err: "must not be 7fffffffffffffff, the present one"},
		{name: "owner", to: "0000000000000001", want: 1},
		{name: "owner", to: "2000000000000000", err: "KEY 2000000000000000 must lie between 2000000000000000 and 2000000000000000"},
		{name: "owner", to: "8000000000000000", err: "KEY: \"8000000000000000\" is no hash key: want 16 hexadecimal digits, up to 7fffffffffffffff"},
		{name: "owner", to: "-1", err: "is no hash key"},
		{name: "owner", to: "5000", err: "want 16 hexadecimal digits"},
		{name: "owner", to: "half", err: "is no hash key"},
		{name: "nobody", to: "0000000000000010", err: `no ControllerInstance "nobody"; there are moving, alone, other, owner, joining`},
		{name: "joining", to: "0000000000000010", err: "owns no range yet"},
		{name: "alone", to: "0000000000000010", err: "there is no boundary to move"},
		{name: "moving", to: "0000000000000020", err: "already moves the end of its range to 0000000000000010"},
	} {
		t.Run(tc.name+" "+tc.to, func(t *testing.T) {
			client := fake.NewClientset(owner, other, joining, moving, alone)
			var out strings.Builder
			err := move(t.Context(), client, tc.name, tc.to, tc.dryRun, &out)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("got %v, want an error with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var options metav1.PatchOptions
			for _, a := range client.Actions() {
				if p, ok := a.(clienttesting.PatchActionImpl); ok {
					options = p.PatchOptions
				}
			}
			if tc.dryRun {
				// The fake stores what a server would only check.
				if !slices.Equal(options.DryRun, []string{metav1.DryRunAll}) || strings.Contains(out.String(), "--watch") || strings.Contains(out.String(), "pinned") {
					t.Errorf("the patch has the options %+v, and it says %q", options, out.String())
				}
			} else {
				got, err := client.ShardingV1alpha1().ControllerInstances().Get(t.Context(), tc.name, metav1.GetOptions{})
				if err != nil || got.Spec.NextHashKey == nil || int64(*got.Spec.NextHashKey) != tc.want {
					t.Errorf("got %+v (%v), want nextHashKey %d", got.Spec, err, tc.want)
				}
				if !strings.Contains(out.String(), "kubectl ring workloads --watch") {
					t.Errorf("no way to follow it in %q", out.String())
				}
				if want := "The boundary is pinned there: evening out the load does not move it. To release it:\n  kubectl ring release " + tc.name + "\n"; !strings.HasSuffix(out.String(), want) {
					t.Errorf("no %q at the end of %q", want, out.String())
				}
			}
			for _, want := range tc.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in %q", want, out.String())
				}
			}
		})
	}
}

func TestAMoveOfWhatHasChangedMeanwhileIsRefused(t *testing.T) {
	owner, other := instance("owner", "workloads").(*shardingv1alpha1.ControllerInstance), instance("other", "workloads").(*shardingv1alpha1.ControllerInstance)
	other.Spec.HashKey = ptr.To[shardingv1alpha1.HashKey](1 << 61)
	client := fake.NewClientset(owner, other)
	client.PrependReactor("patch", "controllerinstances", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if patch := string(a.(clienttesting.PatchAction).GetPatch()); !strings.Contains(patch, `"path":"/metadata/generation","value":1`) || !strings.Contains(patch, `"value":"uid"`) {
			t.Errorf("the patch is %s", patch)
		}
		changed := owner.DeepCopy()
		changed.Generation = 2
		if err := client.Tracker().Update(shardingv1alpha1.SchemeGroupVersion.WithResource("controllerinstances"), changed, ""); err != nil {
			t.Error(err)
		}
		return true, nil, apierrors.NewInvalid(shardingv1alpha1.SchemeGroupVersion.WithKind("ControllerInstance").GroupKind(), "owner", nil)
	})
	err := move(t.Context(), client, "owner", "3fffffffffffffff", false, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "has changed meanwhile: look at it, and try again") {
		t.Errorf("got %v", err)
	}
}

func TestCancel(t *testing.T) {
	owner := instance("owner", "workloads").(*shardingv1alpha1.ControllerInstance)
	joining := instance("joining", "workloads").(*shardingv1alpha1.ControllerInstance)
	joining.Spec.HashKey, joining.Spec.NextHashKey = nil, ptr.To[shardingv1alpha1.HashKey](7)
	moving := instance("moving", "claims").(*shardingv1alpha1.ControllerInstance)
	moving.Spec.NextHashKey, moving.Spec.PinnedHashKey = ptr.To[shardingv1alpha1.HashKey](16), ptr.To[shardingv1alpha1.HashKey](16)
	// An instance moves it, and an earlier move by hand has been released by that.
	balanced := instance("balanced", "namespaces").(*shardingv1alpha1.ControllerInstance)
	balanced.Spec.NextHashKey, balanced.Spec.PinnedHashKey = ptr.To[shardingv1alpha1.HashKey](32), ptr.To[shardingv1alpha1.HashKey](16)
	// It was pinned before it was moved by hand.
	again := instance("again", "claims").(*shardingv1alpha1.ControllerInstance)
	again.Spec.NextHashKey, again.Spec.PinnedHashKey = ptr.To[shardingv1alpha1.HashKey](48), ptr.To[shardingv1alpha1.HashKey](math.MaxInt64)
	for name, want := range map[string]string{
		"moving":   "moving: the end of its range stays 7fffffffffffffff, and does not move to 0000000000000010\n<nil>",
		"again":    "again: the end of its range stays 7fffffffffffffff, and does not move to 0000000000000030\n<nil>",
		"balanced": "and does not move to 0000000000000020\nIt was to even out the load, and the instances may move it again. To keep them from that:\n  kubectl ring balance off namespaces\n",
		"owner":    "the end of the range of owner does not move",
		"joining":  "it joins the ring, and no boundary moves",
		"nobody":   `no ControllerInstance "nobody"`,
	} {
		client := fake.NewClientset(owner, joining, moving, balanced, again)
		var out strings.Builder
		err := cancel(t.Context(), client, name, &out)
		if said := out.String() + fmt.Sprint(err); !strings.Contains(said, want) {
			t.Errorf("%s: %s, want %q", name, said, want)
		}
		for _, i := range []*shardingv1alpha1.ControllerInstance{moving, balanced, again} {
			got, err := client.ShardingV1alpha1().ControllerInstances().Get(t.Context(), i.Name, metav1.GetOptions{})
			if err != nil || (got.Spec.NextHashKey == nil) != (name == i.Name) {
				t.Errorf("%s: the move of %s is %v (%v)", name, i.Name, got.Spec.NextHashKey, err)
			}
			if released := got.Spec.PinnedHashKey == nil; released != (name == "moving" && i == moving) {
				t.Errorf("%s: %s is released: %t", name, i.Name, released)
			}
		}
	}
}
