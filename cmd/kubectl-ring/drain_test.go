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
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	shardingclient "k8s.io/client-go/kubernetes/typed/sharding/v1alpha1"
	clienttesting "k8s.io/client-go/testing"
)

// registered returns an instance of that registration.
func registered(i *shardingv1alpha1.ControllerInstance, change func(*shardingv1alpha1.ControllerInstance)) *shardingv1alpha1.ControllerInstance {
	i.UID = types.UID("uid-of-" + i.Name)
	if change != nil {
		change(i)
	}
	return i
}

func drained(i *shardingv1alpha1.ControllerInstance) { i.Spec.Drained = true }

// idle owns nothing.
func idle(i *shardingv1alpha1.ControllerInstance) {
	i.Spec.HashKey, i.Status = nil, shardingv1alpha1.ControllerInstanceStatus{Phase: shardingv1alpha1.InstanceInit}
}

func leaves(i *shardingv1alpha1.ControllerInstance) {
	i.Status.Phase = shardingv1alpha1.InstanceLeaving
}

func records(client kubernetes.Interface) shardingclient.ControllerInstanceInterface {
	return client.ShardingV1alpha1().ControllerInstances()
}

func TestDrain(t *testing.T) {
	a := func(change func(*shardingv1alpha1.ControllerInstance)) *shardingv1alpha1.ControllerInstance {
		return registered(worker("a", "workloads", 1<<62), change)
	}
	b := func(change func(*shardingv1alpha1.ControllerInstance)) *shardingv1alpha1.ControllerInstance {
		return registered(worker("b", "workloads", math.MaxInt64), change)
	}
	elsewhere := registered(worker("c", "claims", math.MaxInt64), nil)
	const follow = "; follow it with:\n  kubectl ring workloads --watch\n"
	for name, tc := range map[string]struct {
		instances []runtime.Object
		instance  string
		says, err string
		drained   bool
	}{
		"one of two":         {[]runtime.Object{a(nil), b(nil)}, "a", "a gives its range away to b, and its process registers anew under another name" + follow, "", true},
		"one that joins":     {[]runtime.Object{a(idle), b(nil)}, "a", "a is drained: it owns no range; to let it own one again:\n  kubectl ring undrain a\n", "", true},
		"for one that joins": {[]runtime.Object{a(nil), b(idle)}, "a", "a gives its range away, and its process", "", true},
		"the only one":       {[]runtime.Object{a(nil), elsewhere}, "a", "", "no other instance of ring workloads can take over from a: its range would have no owner; start another one first", false},
		"others leave":       {[]runtime.Object{a(nil), b(leaves)}, "a", "", "its range would have no owner; start another one first", false},
		"others are drained": {[]runtime.Object{a(nil), b(func(i *shardingv1alpha1.ControllerInstance) { idle(i); drained(i) })}, "a", "",
			"its range would have no owner; start another one first, or undrain one of b", false},
		"again":             {[]runtime.Object{a(drained), b(nil)}, "a", "a is drained already\na gives its range away to b", "", true},
		"again, it is done": {[]runtime.Object{a(func(i *shardingv1alpha1.ControllerInstance) { idle(i); drained(i) }), b(nil)}, "a", "a is drained already\na is drained: it owns no range", "", true},
		"again, in vain":    {[]runtime.Object{a(drained)}, "a", "a is drained already\nIt keeps its range until another instance can own it\n", "", true},
		"nobody":            {[]runtime.Object{a(nil), b(nil)}, "x", "", `there is no ControllerInstance "x"; there are a, b`, false},
		"nobody at all":     {nil, "x", "", `there is no ControllerInstance "x": no ring has instances`, false},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(tc.instances...)
			var out strings.Builder
			err := drain(t.Context(), client, tc.instance, 0, &out)
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("got %v, want %q", err, tc.err)
			}
			if !strings.HasPrefix(out.String(), tc.says) || (out.Len() > 0) != (tc.says != "") {
				t.Errorf("got %q, want %q", out.String(), tc.says)
			}
			got, err := records(client).Get(t.Context(), tc.instance, metav1.GetOptions{})
			if err == nil && got.Spec.Drained != tc.drained {
				t.Errorf("drained: %t", got.Spec.Drained)
			}
		})
	}
}

// A write is for the registration that was read.
func TestDrainOfWhatIsGoneSaysSo(t *testing.T) {
	client := fake.NewClientset(registered(worker("a", "workloads", 1), nil), registered(worker("b", "workloads", 2), nil))
	client.PrependReactor("patch", "controllerinstances", func(a clienttesting.Action) (bool, runtime.Object, error) {
		want := `[{"op":"test","path":"/metadata/uid","value":"uid-of-a"},{"op":"add","path":"/spec/drained","value":true}]`
		if patch := string(a.(clienttesting.PatchAction).GetPatch()); patch != want {
			t.Errorf("the patch is %s", patch)
		}
		if options := a.(clienttesting.PatchActionImpl).PatchOptions; options.FieldValidation != metav1.FieldValidationStrict {
			t.Errorf("the options are %+v", options)
		}
		return true, nil, apierrors.NewInvalid(shardingv1alpha1.SchemeGroupVersion.WithKind("ControllerInstance").GroupKind(), "a", nil)
	})
	if err := drain(t.Context(), client, "a", 0, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), "a is gone meanwhile: look at the ring with kubectl ring workloads, and try again") {
		t.Errorf("got %v", err)
	}
}

// step is what happens some time after a drain has begun.
type step func(ctx context.Context, t *testing.T, client kubernetes.Interface)

func change(name string, how func(*shardingv1alpha1.ControllerInstance)) step {
	return func(ctx context.Context, t *testing.T, client kubernetes.Interface) {
		i, err := records(client).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		how(i)
		if _, err := records(client).Update(ctx, i, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func goes(name string) step {
	return func(ctx context.Context, t *testing.T, client kubernetes.Interface) {
		if err := records(client).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func comes(i *shardingv1alpha1.ControllerInstance) step {
	return func(ctx context.Context, t *testing.T, client kubernetes.Interface) {
		if _, err := records(client).Create(ctx, i, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDrainWaits(t *testing.T) {
	leavesWith := func(weight, busy int64) func(*shardingv1alpha1.ControllerInstance) {
		return func(i *shardingv1alpha1.ControllerInstance) {
			leaves(i)
			i.Status.Weight, i.Status.Busy = weight, busy
		}
	}
	anew := func(how func(*shardingv1alpha1.ControllerInstance)) *shardingv1alpha1.ControllerInstance {
		i := registered(worker("a2", "workloads", 1<<62), how)
		i.Spec.HolderIdentity = "host-a_1_x"
		return i
	}
	waiting := anew(func(i *shardingv1alpha1.ControllerInstance) { idle(i); drained(i) })
	for name, tc := range map[string]struct {
		steps []step
		want  string
		err   string
	}{
		"until the process owns nothing": {
			steps: []step{
				change("a", leavesWith(40, 2)), change("a", leavesWith(40, 1)), change("a", leavesWith(40, 0)), goes("a"), comes(waiting),
			},
			want: `a: Active, 0 objects left, which go to b
a: Leaving, 40 objects left, which go to b, whose caches follow 100 % of the range; 2 pieces of work under way
a: Leaving, 40 objects left, which go to b, whose caches follow 100 % of the range; 1 piece of work under way
a: Leaving, 40 objects left, which go to b, whose caches follow 100 % of the range
a is gone; its process, host-a_1_x, has not registered anew yet
a is gone; its process is a2 now
a2 is drained: it owns no range; to let it own one again:
  kubectl ring undrain a2
`,
		},
		"while it owns a range anew, as no other instance can": {
			steps: []step{
				goes("a"), comes(anew(drained)), change("a2", func(i *shardingv1alpha1.ControllerInstance) { i.Spec.HashKey = nil }),
			},
			want: `a: Active, 0 objects left, which go to b
a is gone; its process, host-a_1_x, has not registered anew yet
a is gone; its process is a2 now, and owns a range, as no other instance can
a is gone; its process is a2 now
a2 is drained: it owns no range; to let it own one again:
  kubectl ring undrain a2
`,
		},
		"not for a process that has ended": {
			steps: []step{goes("a")},
			want: `a: Active, 0 objects left, which go to b
a is gone; its process, host-a_1_x, has not registered anew yet
If it has ended, there is nothing to undrain
`,
		},
		"not where the process has been started anew": {
			steps: []step{goes("a"), comes(registered(worker("a3", "workloads", 1<<62), func(i *shardingv1alpha1.ControllerInstance) { i.Spec.HolderIdentity = "host-a_2_y" }))},
			want:  "a: Active, 0 objects left, which go to b\na is gone; its process, host-a_1_x, has not registered anew yet\n",
			err:   "the process of a has ended, and another has come on host-a: a3, which is not drained; to drain it: kubectl ring drain a3",
		},
		"no longer than it may": {
			want: "a: Active, 0 objects left, which go to b\n",
			err:  "after 1m0s, a is not known to be drained; it goes on, look at it with: kubectl ring workloads",
		},
		"not where somebody undrains it": {
			steps: []step{change("a", func(i *shardingv1alpha1.ControllerInstance) { i.Spec.Drained = false })},
			want:  "a: Active, 0 objects left, which go to b\n",
			err:   "a is not drained any more: somebody has undrained it",
		},
		"not where somebody undrains it late": {
			steps: []step{goes("a"), comes(anew(idle))},
			want:  "a: Active, 0 objects left, which go to b\na is gone; its process, host-a_1_x, has not registered anew yet\n",
			err:   "the process of a has registered anew as a2, which is not drained",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(registered(worker("a", "workloads", 1<<62), nil), registered(worker("b", "workloads", math.MaxInt64), nil),
					// The process is on other rings, too.
					registered(worker("other", "claims", math.MaxInt64), func(i *shardingv1alpha1.ControllerInstance) { i.Spec.HolderIdentity = "host-a_1_x" }))
				go func() {
					for _, step := range tc.steps {
						// Between two looks.
						time.Sleep(drainPeriod + drainPeriod/10)
						step(context.Background(), t, client)
					}
				}()
				var out strings.Builder
				err := drain(t.Context(), client, "a", time.Minute, &out)
				if out.String() != tc.want {
					t.Errorf("got\n%s\nwant\n%s", out.String(), tc.want)
				}
				if got := fmt.Sprint(err); tc.err == "" && err != nil || !strings.Contains(got, tc.err) {
					t.Errorf("got %v, want %q", err, tc.err)
				}
			})
		})
	}
}

// A server that restarts is waited for; one that refuses is not.
func TestDrainWaitsForAServerButNotForRights(t *testing.T) {
	for name, refusal := range map[string]error{
		"after 1m0s, a is not known to be drained": apierrors.NewServiceUnavailable("later"),
		"forbidden": apierrors.NewForbidden(shardingv1alpha1.Resource("controllerinstances"), "", nil),
	} {
		synctest.Test(t, func(t *testing.T) {
			client := fake.NewClientset(registered(worker("a", "workloads", 1<<62), nil), registered(worker("b", "workloads", math.MaxInt64), nil))
			client.PrependReactor("patch", "controllerinstances", func(clienttesting.Action) (bool, runtime.Object, error) {
				client.PrependReactor("list", "controllerinstances", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refusal })
				return false, nil, nil
			})
			begin := time.Now()
			err := drain(t.Context(), client, "a", time.Minute, &strings.Builder{})
			if err == nil || !strings.Contains(err.Error(), name) || strings.Contains(name, "forbidden") != (time.Since(begin) < time.Second) {
				t.Errorf("after %v: %v", time.Since(begin), err)
			}
		})
	}
}

func TestDrainsOptionsThatDoNotFit(t *testing.T) {
	for want, args := range map[string][]string{
		"--timeout is how long --wait waits: give both": {"drain", "a", "--timeout=1m"},
		"--timeout is 0s, want more than 0":             {"drain", "a", "--wait", "--timeout=0s"},
		"accepts 1 arg(s), received 0":                  {"drain"},
	} {
		command := newCommand()
		command.SetArgs(args)
		command.SilenceErrors, command.SilenceUsage = true, true
		if err := command.ExecuteContext(t.Context()); err == nil || err.Error() != want {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestUndrain(t *testing.T) {
	owner := registered(worker("owner", "workloads", math.MaxInt64), nil)
	waits := registered(worker("waits", "workloads", 0), func(i *shardingv1alpha1.ControllerInstance) { idle(i); drained(i) })
	other := registered(worker("other", "claims", 0), func(i *shardingv1alpha1.ControllerInstance) { idle(i); drained(i) })
	for name, tc := range map[string]struct {
		instances []runtime.Object
		instance  string
		says, err string
	}{
		"a drained one": {[]runtime.Object{owner, waits}, "waits", "waits is not drained any more, and joins ring workloads; follow it with:\n  kubectl ring workloads --watch\n", ""},
		"another":       {[]runtime.Object{owner, waits, other}, "owner", "owner is not drained; drained: other, waits\n", ""},
		"where none is": {[]runtime.Object{owner}, "owner", "owner is not drained; no instance is drained\n", ""},
		"a former name": {[]runtime.Object{owner, waits, other}, "former", "", `there is no ControllerInstance "former": one that is drained gets another name; drained: other, waits`},
		"nobody":        {nil, "former", "", `there is no ControllerInstance "former": one that is drained gets another name; no instance is drained`},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(tc.instances...)
			var out strings.Builder
			err := undrain(t.Context(), client, tc.instance, &out)
			if out.String() != tc.says || (err == nil) != (tc.err == "") || err != nil && err.Error() != tc.err {
				t.Errorf("got %q and %v, want %q and %q", out.String(), err, tc.says, tc.err)
			}
			for _, i := range tc.instances {
				i := i.(*shardingv1alpha1.ControllerInstance)
				got, err := records(client).Get(t.Context(), i.Name, metav1.GetOptions{})
				if want := i.Spec.Drained && i.Name != tc.instance; err != nil || got.Spec.Drained != want {
					t.Errorf("%s is drained: %t (%v), want %t", i.Name, got.Spec.Drained, err, want)
				}
			}
		})
	}
}
