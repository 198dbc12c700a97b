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
	"context"
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
	"k8s.io/client-go/kubernetes"
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

func TestRelease(t *testing.T) {
	pinned := func(key int64) func(*shardingv1alpha1.ControllerInstance) {
		return func(i *shardingv1alpha1.ControllerInstance) { i.Spec.PinnedHashKey = (*shardingv1alpha1.HashKey)(&key) }
	}
	low := registered(worker("low", "workloads", 16), pinned(16))
	stale := registered(worker("stale", "workloads", 1<<62), pinned(32))
	moving := registered(worker("moving", "workloads", math.MaxInt64), func(i *shardingv1alpha1.ControllerInstance) {
		pinned(64)(i)
		i.Spec.NextHashKey = ptr.To[shardingv1alpha1.HashKey](64)
	})
	free := registered(worker("free", "claims", math.MaxInt64), nil)
	type of func(ctx context.Context, client kubernetes.Interface, name string, out io.Writer) error
	for name, tc := range map[string]struct {
		release   of
		name      string
		says, err string
		// left is whose pins are left.
		left string
	}{
		"a boundary":            {release, "low", "low: the end of its range is released: it was pinned to 0000000000000010\n", "", "moving stale "},
		"one that moves":        {release, "moving", "moving: the end of its range is released: it was pinned to 0000000000000040\n", "", "low stale "},
		"one that has left":     {release, "stale", "stale: the end of its range was not pinned any more: it has left 0000000000000020\n", "", "low moving "},
		"one that is free":      {release, "free", "free: the end of its range is not pinned\n", "", "low moving stale "},
		"nobody's":              {release, "x", "", `there is no ControllerInstance "x"; there are free, low, stale, moving`, "low moving stale "},
		"all of a ring":         {releaseRing, "workloads", "low: the end of its range is released: it was pinned to 0000000000000010\nmoving: the end", "", ""},
		"all of a ring of none": {releaseRing, "claims", "claims: no boundary is pinned\n", "", "low moving stale "},
		"no ring":               {releaseRing, "x", "", "ring x has no instance; rings with instances: claims, workloads", "low moving stale "},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(low, stale, moving, free)
			var out strings.Builder
			err := tc.release(t.Context(), client, tc.name, &out)
			if !strings.HasPrefix(out.String(), tc.says) || (out.Len() > 0) != (tc.says != "") || (err == nil) != (tc.err == "") || err != nil && err.Error() != tc.err {
				t.Errorf("got %q and %v, want %q and %q", out.String(), err, tc.says, tc.err)
			}
			list, err := records(client).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			left := ""
			for _, i := range list.Items {
				if i.Spec.PinnedHashKey != nil {
					left += i.Name + " "
				}
			}
			if left != tc.left {
				t.Errorf("pinned: %q, want %q", left, tc.left)
			}
		})
	}
}

func TestReleaseOfARingGoesOnWhereAnInstanceHasGone(t *testing.T) {
	pinned := func(i *shardingv1alpha1.ControllerInstance) {
		i.Spec.PinnedHashKey = ptr.To[shardingv1alpha1.HashKey](16)
	}
	client := fake.NewClientset(registered(worker("gone", "workloads", 16), pinned), registered(worker("here", "workloads", math.MaxInt64), pinned))
	client.PrependReactor("patch", "controllerinstances", func(action clienttesting.Action) (bool, runtime.Object, error) {
		name := action.(clienttesting.PatchAction).GetName()
		return name == "gone", nil, apierrors.NewNotFound(shardingv1alpha1.Resource("controllerinstances"), name)
	})
	var out strings.Builder
	if err := releaseRing(t.Context(), client, "workloads", &out); err != nil || !strings.HasPrefix(out.String(), "gone: it is gone meanwhile, and its pin with it\nhere: ") {
		t.Errorf("got %v, and %s", err, out.String())
	}
}

func TestReleaseWantsAnInstanceOrARing(t *testing.T) {
	for _, args := range [][]string{{"release"}, {"release", "a", "--ring=workloads"}} {
		command := newCommand()
		command.SetArgs(args)
		command.SilenceErrors, command.SilenceUsage = true, true
		if err := command.ExecuteContext(t.Context()); err == nil || err.Error() != "give either INSTANCE, or --ring for all of a ring" {
			t.Errorf("%v: %v", args, err)
		}
	}
}
