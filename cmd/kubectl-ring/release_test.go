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
	"io"
	"math"
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
	pinned := func(i *shardingv1alpha1.ControllerInstance) { i.Spec.PinnedHashKey = ptr.To[shardingv1alpha1.HashKey](16) }
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
