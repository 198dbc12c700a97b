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
	"encoding/json"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/balance"
	"k8s.io/utils/ptr"
)

// loaded returns an instance of workloads that holds so many objects.
func loaded(name string, key, weight int64, change func(*shardingv1alpha1.ControllerInstance)) *shardingv1alpha1.ControllerInstance {
	i := registered(worker(name, "workloads", key), nil)
	i.Status.Weight = weight
	if change != nil {
		change(i)
	}
	return i
}

func balanceIsOff(i *shardingv1alpha1.ControllerInstance) {
	i.Spec.Balance = shardingv1alpha1.BalanceDisabled
}

func TestBalance(t *testing.T) {
	const half = int64(1) << 62
	for name, tc := range map[string]struct {
		instances []runtime.Object
		rings     []string
		want, not []string
	}{
		"nobody": {want: []string{"No ring has instances.\n"}},
		"a ring without instances": {
			instances: []runtime.Object{loaded("a", half, 9, nil)}, rings: []string{"claims"},
			want: []string{"ring claims has no instance; rings with instances: workloads\n"},
		},
		"one instance": {
			instances: []runtime.Object{loaded("a", half, 9, nil)},
			want:      []string{"workloads: balance is on, unless a settings file says otherwise\n", "a          9        0%     200    200           0                 -\n", "Nothing to even out: fewer than two instances own a range\n"},
			not:       []string{"Held back", "Even enough"},
		},
		"even": {
			instances: []runtime.Object{loaded("a", half, 1050, nil), loaded("b", math.MaxInt64, 950, nil)},
			want:      []string{"Even enough: the largest load is 1.05 times the mean. A move is worth it where an instance has more than it should have by 10% of the mean, and by 20\n"},
			not:       []string{"would give", "Held back"},
		},
		"not even": {
			instances: []runtime.Object{loaded("a", half, 3000, nil), loaded("b", math.MaxInt64, 1000, nil)},
			want: []string{
				"INSTANCE   WEIGHT   WORK   LOAD   SHOULD HAVE   BESIDE THE RING   PINNED\n",
				"a          3000     0%     3000   2000          0                 -\n",
				"b          1000     0%     1000   2000          0                 -\n",
				"a would give about ", " to b: a has 3000 and should have 2000; by hand, about:\n  kubectl ring move a 2",
				"The largest load is 1.50 times the mean\nNo record holds that back. ",
			},
			not: []string{"Even enough", "Held back"},
		},
		"work counts": {
			instances: []runtime.Object{loaded("a", half, 1000, func(i *shardingv1alpha1.ControllerInstance) { i.Status.Work = 996 }), loaded("b", math.MaxInt64, 1000, nil)},
			want:      []string{"a          1000     100%   1992   1496 ", " to b: a has 1992 and should have 1496; by hand"},
		},
		"all boundaries are pinned": {
			instances: []runtime.Object{
				loaded("a", half, 3000, func(i *shardingv1alpha1.ControllerInstance) {
					i.Spec.PinnedHashKey = (*shardingv1alpha1.HashKey)(ptr.To(half))
				}),
				loaded("b", math.MaxInt64, 1000, func(i *shardingv1alpha1.ControllerInstance) {
					i.Spec.PinnedHashKey = ptr.To[shardingv1alpha1.HashKey](math.MaxInt64)
				}),
			},
			want: []string{"3000          0                 yes\n", "Even enough: ", "Held back:\n  the end of the range of a is pinned: no load passes it; to release it: kubectl ring release a\n  the end"},
			not:  []string{"would give"},
		},
		"one has come": {
			instances: []runtime.Object{loaded("a", half, 3000, nil), loaded("b", math.MaxInt64, 1000, func(i *shardingv1alpha1.ControllerInstance) { i.CreationTimestamp = metav1.Now() })},
			want:      []string{"An instance has come less than 2m0s ago: until then any number of keys may move in a minute\n"},
		},
		"one has come, says a clock that is fast": {
			instances: []runtime.Object{loaded("a", half, 3000, nil), loaded("b", math.MaxInt64, 1000, func(i *shardingv1alpha1.ControllerInstance) {
				i.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Hour))
			})},
			not: []string{"has come"},
		},
		"off": {
			instances: []runtime.Object{loaded("a", half, 3000, nil), loaded("b", math.MaxInt64, 1000, balanceIsOff)},
			want: []string{"workloads: balance is off, by b: the instances move no boundary to even out the load; to turn it on:\n  kubectl ring balance on workloads\n",
				" to b: a has 3000 and should have 2000"},
			not: []string{"No record"},
		},
		"held back": {
			instances: []runtime.Object{
				loaded("a", 1<<60, 3000, nil), loaded("b", half, 1000, leaves), loaded("c", 3<<61, 1000, drained),
				loaded("d", math.MaxInt64, 1000, func(i *shardingv1alpha1.ControllerInstance) {
					i.Spec.NextHashKey, i.Status.Phase = ptr.To[shardingv1alpha1.HashKey](7<<60), shardingv1alpha1.InstanceWait
				}),
				loaded("e", 0, 0, idle), loaded("f", 0, 0, func(i *shardingv1alpha1.ControllerInstance) { idle(i); drained(i) }),
			},
			want: []string{"Held back:\n  b leaves\n  c is drained, and owns a range until another instance can\n  d is Wait, not Active\n  e joins: whoever is to give to it does that first\n  a handover is open: d gives to a\n"},
			not:  []string{"f joins"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := printBalance(t.Context(), fake.NewClientset(tc.instances...), tc.rings, "", &out); err != nil {
				t.Fatal(err)
			}
			for _, want := range tc.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, out.String())
				}
			}
			for _, not := range tc.not {
				if strings.Contains(out.String(), not) {
					t.Errorf("%q in\n%s", not, out.String())
				}
			}
		})
	}
}

func TestBalanceForPrograms(t *testing.T) {
	client := fake.NewClientset(loaded("a", 1<<62, 3000, balanceIsOff), loaded("b", math.MaxInt64, 1000, nil), registered(worker("c", "claims", 5), nil))
	for format, want := range map[string]string{
		"json": `"estimatedHashKey": "2`, "yaml": "    estimatedHashKey: 2",
	} {
		var out strings.Builder
		if err := printBalance(t.Context(), client, nil, format, &out); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v, and\n%s", format, err, out.String())
		}
	}
	var out strings.Builder
	if err := printBalance(t.Context(), client, []string{"workloads"}, "json", &out); err != nil {
		t.Fatal(err)
	}
	var got struct{ Rings []balanceState }
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil || len(got.Rings) != 1 {
		t.Fatalf("%v, in\n%s", err, out.String())
	}
	if r := got.Rings[0]; r.OffBy != "a" || r.MaxToMean != 1.5 || len(r.Shifts) != 1 || r.Shifts[0].Load < 500 || r.Shifts[0].Donor != "a" || r.Shifts[0].Receiver != "b" || r.Instances[0].ShouldHave != 2000 || len(r.HeldBack) != 0 {
		t.Errorf("got %+v", r)
	}
}

func TestBalanceOfARingThatNobodyKnows(t *testing.T) {
	err := printBalance(t.Context(), fake.NewClientset(loaded("a", 1, 1, nil)), []string{"oof"}, "", &strings.Builder{})
	if want := "there is no ring oof, and no such command; rings with instances: workloads"; err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	command := newCommand()
	command.SetArgs([]string{"balance", "-o", "xml"})
	command.SilenceErrors, command.SilenceUsage = true, true
	if err := command.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "want json or yaml") {
		t.Errorf("got %v", err)
	}
}

// isOff returns the instances whose records say that balance is off.
func isOff(t *testing.T, client kubernetes.Interface) (names string) {
	t.Helper()
	list, err := records(client).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list.Items {
		if i.Spec.Balance == shardingv1alpha1.BalanceDisabled {
			names += i.Name + " "
		}
	}
	return names
}

func TestSwitchBalance(t *testing.T) {
	for name, tc := range map[string]struct {
		rings     []string
		off       bool
		says, err string
		left      string
	}{
		"off":         {[]string{"workloads"}, true, "workloads: balance is off\n", "", "a b "},
		"off for all": {nil, true, "claims: balance is off\nworkloads: balance is off\n", "", "a b c "},
		"on":          {[]string{"workloads"}, false, "workloads: balance is on\n", "", ""},
		"on already":  {[]string{"claims"}, false, "claims: balance is on already\n", "", "a "},
		"on for all":  {nil, false, "claims: balance is on already\nworkloads: balance is on\n", "", ""},
		"no ring":     {[]string{"namespaces"}, true, "", "ring namespaces has no instance; rings with instances: claims, workloads", "a "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(loaded("a", 1<<62, 1, balanceIsOff), loaded("b", math.MaxInt64, 1, nil), registered(worker("c", "claims", 5), nil))
				var out strings.Builder
				err := switchBalance(t.Context(), client, tc.rings, tc.off, &out)
				if out.String() != tc.says || (err == nil) != (tc.err == "") || err != nil && err.Error() != tc.err {
					t.Errorf("got %q and %v, want %q and %q", out.String(), err, tc.says, tc.err)
				}
				if left := isOff(t, client); left != tc.left {
					t.Errorf("off: %q, want %q", left, tc.left)
				}
			})
		})
	}
	if err := switchBalance(t.Context(), fake.NewClientset(), nil, true, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), "no ring has instances") {
		t.Errorf("got %v", err)
	}
}

// An instance that registers just now copies what it has read, and says so only then.
func TestOnIsForThoseThatRegisterMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(loaded("a", 1<<62, 1, balanceIsOff))
		go func() {
			time.Sleep(balancePeriod + balancePeriod/2)
			comes(loaded("b", math.MaxInt64, 1, balanceIsOff))(context.Background(), t, client)
		}()
		var out strings.Builder
		if err := switchBalance(t.Context(), client, nil, false, &out); err != nil || isOff(t, client) != "" {
			t.Errorf("got %v, off: %q", err, isOff(t, client))
		}
	})
}

func TestSwitchBalanceEnds(t *testing.T) {
	gone := apierrors.NewNotFound(shardingv1alpha1.Resource("controllerinstances"), "a")
	for want, refusal := range map[string]error{
		"after 30s, not all instances of ring workloads say that balance is off: a; try again": gone,
		"forbidden": apierrors.NewForbidden(shardingv1alpha1.Resource("controllerinstances"), "a", nil),
	} {
		synctest.Test(t, func(t *testing.T) {
			client := fake.NewClientset(loaded("a", 1<<62, 1, nil))
			client.PrependReactor("patch", "controllerinstances", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refusal })
			if err := switchBalance(t.Context(), client, nil, true, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}

// The guess takes the load to lie evenly in the donor's range, and is a key that the boundary can
// move to.
func TestEstimate(t *testing.T) {
	at := func(name string, key int64) ring.Record { return ring.Record{Name: name, Key: &key} }
	view := ring.NewView(1, at("a", 99), at("b", 199), at("c", 299))
	for name, tc := range map[string]struct {
		shift balance.Flow
		load  int64
		want  int64
		ok    bool
	}{
		"down":                   {balance.Flow{Boundary: "b", Donor: "b", Receiver: "c", Load: 25}, 100, 174, true},
		"up":                     {balance.Flow{Boundary: "b", Donor: "c", Receiver: "b", Load: 25}, 100, 224, true},
		"down, across the seam":  {balance.Flow{Boundary: "a", Donor: "a", Receiver: "b", Load: 50}, 100, 1<<62 + 199, true},
		"all of what it has":     {balance.Flow{Boundary: "b", Donor: "b", Receiver: "c", Load: 100}, 100, 0, false},
		"from one that has none": {balance.Flow{Boundary: "b", Donor: "b", Receiver: "c", Load: 1}, 0, 0, false},
		"too little for a key":   {balance.Flow{Boundary: "b", Donor: "b", Receiver: "c", Load: 1}, 1000, 0, false},
	} {
		got, ok := estimate(view, tc.shift, tc.load)
		if ok != tc.ok || ok && got != tc.want {
			t.Errorf("%s: got %d, %t, want %d, %t", name, got, ok, tc.want, tc.ok)
		}
	}
}
