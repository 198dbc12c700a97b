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

package ring

import (
	"reflect"
	"testing"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestALeaderSignsWhatItRuns(t *testing.T) {
	for name, tc := range map[string]struct {
		list []string
		// runs says whether that leader runs x.
		runs bool
	}{
		"all":                          {[]string{"*"}, true},
		"all but another":              {[]string{"*", "-y"}, true},
		"all but it":                   {[]string{"*", "-x"}, false},
		"all but it, the other way":    {[]string{"-x", "*"}, false},
		"it alone":                     {[]string{"x"}, true},
		"another alone":                {[]string{"y"}, false},
		"no controller":                {nil, false},
		"all but it, then it":          {[]string{"*", "-x", "x"}, false},
		"it, then not":                 {[]string{"x", "-x"}, true},
		"one whose name begins with x": {[]string{"xy", "-xyz"}, false},
		"all but such a one":           {[]string{"*", "-xy"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, process := range []string{"host_1f3c", "", "host;controllers=*,x_1f3c", "host,-x"} {
				l := Leader{SignLeader(process, tc.list)}
				if !l.Signed() || l.Process() != process || l.Runs("x") != tc.runs {
					t.Errorf("%q: signed %v, process %q, runs x: %v; want true, %q, %v", l.Holder, l.Signed(), l.Process(), l.Runs("x"), process, tc.runs)
				}
			}
		})
	}
}

func TestAStockLeaderMayRunEverythingAndNobodyNothing(t *testing.T) {
	for holder, runs := range map[string]bool{"": false, "host_1f3c": true, "*,-x": true, "host;controllers:*,-x": true} {
		if l := (Leader{holder}); l.Signed() || l.Process() != holder || l.Runs("x") != runs {
			t.Errorf("%q: signed %v, process %q, runs x: %v; want false, %q, %v", holder, l.Signed(), l.Process(), l.Runs("x"), holder, runs)
		}
	}
}

func TestARingSharesWhatAllOfItsInstancesList(t *testing.T) {
	lists := func(name string, controllers ...string) Record { return Record{Name: name, Controllers: controllers} }
	for name, tc := range map[string]struct {
		view *View
		want bool
	}{
		"no instance":          {NewView(0), false},
		"one that lists it":    {NewView(0, lists("a", "y", "x")), true},
		"one that does not":    {NewView(0, lists("a", "y")), false},
		"one that lists none":  {NewView(0, lists("a")), false},
		"all list it":          {NewView(0, lists("a", "x"), lists("b", "x", "y")), true},
		"the first does not":   {NewView(0, lists("a", "y"), lists("b", "x")), false},
		"the last does not":    {NewView(0, lists("a", "x"), lists("b", "x"), lists("c")), false},
		"one works on it only": {NewView(0, Record{Name: "a", Working: []string{"x"}}), false},
	} {
		if got := tc.view.Shares("x"); got != tc.want {
			t.Errorf("%s: shares x: %v, want %v", name, got, tc.want)
		}
	}
}

func TestAViewNamesTheInstancesThatMayBeWorking(t *testing.T) {
	works := func(name string, controllers ...string) Record {
		return Record{Name: name, Controllers: []string{"x", "y"}, Working: controllers}
	}
	view := NewView(0, works("c", "y", "x"), works("b", "y"), works("a", "x"), works("d"))
	for controller, want := range map[string][]string{"x": {"a", "c"}, "y": {"b", "c"}, "z": nil} {
		if got := view.WorkingOn(controller); !reflect.DeepEqual(got, want) {
			t.Errorf("at work on %s: %v, want %v", controller, got, want)
		}
	}
}

func TestARecordHoldsWhatItsInstanceListsAndMayWorkOn(t *testing.T) {
	r, err := NewRecord(&shardingv1alpha1.ControllerInstance{
		ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"},
		Spec:       shardingv1alpha1.ControllerInstanceSpec{Controllers: []string{"x", "y", "z"}},
		Status: shardingv1alpha1.ControllerInstanceStatus{Controllers: []shardingv1alpha1.ControllerState{
			{Name: "x", Working: true}, {Name: "y", Reason: "it must not"}, {Name: "z", Working: true, Reason: "it is about to cease"},
		}},
	})
	if lists, works := []string{"x", "y", "z"}, []string{"x", "z"}; err != nil || !reflect.DeepEqual(r.Controllers, lists) || !reflect.DeepEqual(r.Working, works) {
		t.Errorf("lists %v and works on %v, %v; want %v and %v", r.Controllers, r.Working, err, lists, works)
	}
}
