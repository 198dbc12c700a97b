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

package validation

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/sharding"
	"k8s.io/utils/ptr"
)

func validInstance() *sharding.ControllerInstance {
	return &sharding.ControllerInstance{
		ObjectMeta: metav1.ObjectMeta{Name: "workloads-a", ResourceVersion: "1"},
		Spec: sharding.ControllerInstanceSpec{
			Ring:                 "workloads",
			HolderIdentity:       "host-1_c3d3a1c6-6f0f-4e0b-9d7e-0d1f1b0e7d55",
			LeaseDurationSeconds: 6,
		},
	}
}

func manyControllers(n int) []string {
	var controllers []string
	for i := range n {
		controllers = append(controllers, fmt.Sprintf("controller-%d", i))
	}
	return controllers
}

func manyLines(n int) []sharding.Governs {
	return slices.Repeat([]sharding.Governs{{Controller: "*", Resource: "pods", By: "Own"}}, n)
}

// ranges returns those with these first and last keys, in turn.
func ranges(ends ...int64) []sharding.HashKeyRange {
	var out []sharding.HashKeyRange
	for i := 0; i < len(ends); i += 2 {
		out = append(out, sharding.HashKeyRange{First: ends[i], Last: ends[i+1]})
	}
	return out
}

func manyRanges(n int64) []sharding.HashKeyRange {
	var out []sharding.HashKeyRange
	for i := range n {
		out = append(out, sharding.HashKeyRange{First: 2 * i, Last: 2 * i})
	}
	return out
}

// wantErr is an error that a test expects: its type, its field, and a part of what it says.
type wantErr struct {
	typ   field.ErrorType
	field string
	says  string
}

func checkErrors(t *testing.T, got field.ErrorList, want []wantErr) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d errors, want %d: %v", len(got), len(want), got.ToAggregate())
	}
	for i, w := range want {
		if got[i].Type != w.typ || got[i].Field != w.field || !strings.Contains(got[i].Error(), w.says) {
			t.Errorf("error %d: got %q (%s), want %s at %s saying %q", i, got[i], got[i].Type, w.typ, w.field, w.says)
		}
	}
}

func TestValidateControllerInstance(t *testing.T) {
	tests := map[string]struct {
		change func(*sharding.ControllerInstance)
		want   []wantErr
	}{
		"owns nothing": {change: func(*sharding.ControllerInstance) {}},
		"all of spec": {change: func(i *sharding.ControllerInstance) {
			i.Spec.HashKey, i.Spec.NextHashKey, i.Spec.Donor = ptr.To[int64](math.MaxInt64), ptr.To[int64](0), "workloads-b"
			i.Spec.Controllers = []string{"replicaset-controller", "deployment-controller"}
			i.Spec.Governs = []sharding.Governs{
				{Controller: "replicaset-controller", Group: "apps", Resource: "replicasets", By: "Own"},
				{Controller: "deployment-controller", Group: "apps", Resource: "replicasets", By: "Controller"},
				{Controller: "*", Group: "", Resource: "pods", By: "Home"},
				{Controller: "a", Resource: "persistentvolumes", By: "Claim"},
				{Controller: "*", Group: "*", Resource: "*", By: "Namespace"},
			}
			i.Spec.PinnedHashKey, i.Spec.Drained, i.Spec.Balance = ptr.To[int64](math.MaxInt64), true, sharding.BalanceDisabled
			i.Spec.Held = ranges(0, 10, 100, math.MaxInt64)
		}},
		"holds everything":         {change: func(i *sharding.ControllerInstance) { i.Spec.Held = ranges(0, math.MaxInt64) }},
		"holds ranges that touch":  {change: func(i *sharding.ControllerInstance) { i.Spec.Held = ranges(0, 0, 1, 20) }},
		"holds as much as it may":  {change: func(i *sharding.ControllerInstance) { i.Spec.Held = manyRanges(64) }},
		"pinned to the lowest key": {change: func(i *sharding.ControllerInstance) { i.Spec.PinnedHashKey = ptr.To[int64](0) }},
		"as many controllers and lines as it may": {change: func(i *sharding.ControllerInstance) {
			i.Spec.Controllers, i.Spec.Governs = manyControllers(64), manyLines(256)
		}},
		"is to own its first range": {change: func(i *sharding.ControllerInstance) { i.Spec.NextHashKey = ptr.To[int64](0) }},
		"shortest lease":            {change: func(i *sharding.ControllerInstance) { i.Spec.LeaseDurationSeconds = 2 }},
		"longest lease":             {change: func(i *sharding.ControllerInstance) { i.Spec.LeaseDurationSeconds = 3600 }},
		"long names": {change: func(i *sharding.ControllerInstance) {
			i.Name, i.Spec.Ring, i.Spec.HolderIdentity = "long", strings.Repeat("c", 63), strings.Repeat("h", 253)
		}},
		"of a ring like one of kube-controller-manager": {change: func(i *sharding.ControllerInstance) {
			i.Name, i.Spec.Ring = "workload-a", "my-workloads"
		}},
		"as ring and instance of an operator may be named": {change: func(i *sharding.ControllerInstance) {
			i.Name, i.Spec.Ring = "workloads", "workloads2"
		}},
		"holder with an address and upper case": {change: func(i *sharding.ControllerInstance) { i.Spec.HolderIdentity = "Host.example:10257_4711" }},

		"no name": {
			change: func(i *sharding.ControllerInstance) { i.Name = "" },
			want:   []wantErr{{field.ErrorTypeRequired, "metadata.name", "name or generateName is required"}},
		},
		"a namespace": {
			change: func(i *sharding.ControllerInstance) { i.Namespace = "default" },
			want:   []wantErr{{field.ErrorTypeForbidden, "metadata.namespace", "not allowed on this type"}},
		},
		"of a ring of kube-controller-manager, under another name": {
			change: func(i *sharding.ControllerInstance) { i.Name, i.Spec.Ring = "workloads-a", "claims" },
			want: []wantErr{
				{field.ErrorTypeInvalid, "metadata.name", `must not begin with "workloads-", which is reserved for the ring "workloads" of kube-controller-manager; use another name`},
				{field.ErrorTypeInvalid, "metadata.name", `must begin with "claims-", as every instance of the ring "claims" of kube-controller-manager; set generateName to that instead`},
			},
		},
		"a ring as name": {
			change: func(i *sharding.ControllerInstance) { i.Name = "workloads" },
			want:   []wantErr{{field.ErrorTypeInvalid, "metadata.name", `must begin with "workloads-"`}},
		},
		"of another ring, under a reserved name": {
			change: func(i *sharding.ControllerInstance) { i.Spec.Ring = "mine" },
			want:   []wantErr{{field.ErrorTypeInvalid, "metadata.name", `must not begin with "workloads-"`}},
		},
		"of a reserved ring": {
			change: func(i *sharding.ControllerInstance) { i.Name, i.Spec.Ring = "mine", "namespaces-2" },
			want:   []wantErr{{field.ErrorTypeInvalid, "spec.ring", `must not begin with "namespaces-", which is reserved for kube-controller-manager; use another ring`}},
		},
		"no ring": {
			change: func(i *sharding.ControllerInstance) { i.Name, i.Spec.Ring = "a", "" },
			want:   []wantErr{{field.ErrorTypeRequired, "spec.ring", "the ring that the instance is on"}},
		},
		"ring not a label": {
			change: func(i *sharding.ControllerInstance) { i.Name, i.Spec.Ring = "a", "Workloads" },
			want:   []wantErr{{field.ErrorTypeInvalid, "spec.ring", "lower case alphanumeric"}},
		},
		"ring too long": {
			change: func(i *sharding.ControllerInstance) { i.Name, i.Spec.Ring = "a", strings.Repeat("r", 64) },
			want:   []wantErr{{field.ErrorTypeInvalid, "spec.ring", "no more than 63"}},
		},
		"no holder": {
			change: func(i *sharding.ControllerInstance) { i.Spec.HolderIdentity = "" },
			want:   []wantErr{{field.ErrorTypeRequired, "spec.holderIdentity", "the host and the process"}},
		},
		"holder too long": {
			change: func(i *sharding.ControllerInstance) { i.Spec.HolderIdentity = strings.Repeat("h", 254) },
			want:   []wantErr{{field.ErrorTypeTooLong, "spec.holderIdentity", "253"}},
		},
		"holder with a space": {
			change: func(i *sharding.ControllerInstance) { i.Spec.HolderIdentity = "host 1" },
			want:   []wantErr{{field.ErrorTypeInvalid, "spec.holderIdentity", "must consist of letters, digits"}},
		},
		"holder with a line end": {
			change: func(i *sharding.ControllerInstance) { i.Spec.HolderIdentity = "host\n" },
			want:   []wantErr{{field.ErrorTypeInvalid, "spec.holderIdentity", "must start and end with a letter or a digit"}},
		},
		"no lease": {
			change: func(i *sharding.ControllerInstance) { i.Spec.LeaseDurationSeconds = 0 },
			want:   []wantErr{{field.ErrorTypeInvalid, "spec.leaseDurationSeconds", "between 2 and 3600 seconds"}},
		},
		"lease too short": {
			change: func(i *sharding.ControllerInstance) { i.Spec.LeaseDurationSeconds = 1 },
			want:   []wantErr{{field.ErrorTypeInvalid, "spec.leaseDurationSeconds", "between 2 and 3600 seconds"}},
		},
		"lease too long": {
			change: func(i *sharding.ControllerInstance) { i.Spec.LeaseDurationSeconds = 3601 },
			want:   []wantErr{{field.ErrorTypeInvalid, "spec.leaseDurationSeconds", "between 2 and 3600 seconds"}},
		},
		"negative keys": {
			change: func(i *sharding.ControllerInstance) {
				i.Spec.HashKey, i.Spec.NextHashKey = ptr.To[int64](-1), ptr.To[int64](math.MinInt64)
			},
			want: []wantErr{
				{field.ErrorTypeInvalid, "spec.hashKey", "between 0 and 9223372036854775807"},
				{field.ErrorTypeInvalid, "spec.nextHashKey", "between 0 and 9223372036854775807"},
			},
		},
		"pinned to a negative key": {
			change: func(i *sharding.ControllerInstance) { i.Spec.PinnedHashKey = ptr.To[int64](-1) },
			want:   []wantErr{{field.ErrorTypeInvalid, "spec.pinnedHashKey", "between 0 and 9223372036854775807"}},
		},
		"balance neither on nor off": {
			change: func(i *sharding.ControllerInstance) { i.Spec.Balance = "On" },
			want:   []wantErr{{field.ErrorTypeNotSupported, "spec.balance", `supported values: "Disabled"`}},
		},
		"holds keys out of bounds": {
			change: func(i *sharding.ControllerInstance) { i.Spec.Held = ranges(-2, -1) },
			want: []wantErr{
				{field.ErrorTypeInvalid, "spec.held[0].first", "between 0 and 9223372036854775807"},
				{field.ErrorTypeInvalid, "spec.held[0].last", "between 0 and 9223372036854775807"},
			},
		},
		"holds a range with its ends swapped": {
			change: func(i *sharding.ControllerInstance) { i.Spec.Held = ranges(10, 9) },
			want:   []wantErr{{field.ErrorTypeInvalid, "spec.held[0].last", "must not be below first (10)"}},
		},
		"holds ranges that overlap": {
			change: func(i *sharding.ControllerInstance) { i.Spec.Held = ranges(0, 10, 10, 20) },
			want:   []wantErr{{field.ErrorTypeInvalid, "spec.held[1].first", "must be above the last key of the range before it (10)"}},
		},
		"holds ranges out of order": {
			change: func(i *sharding.ControllerInstance) { i.Spec.Held = ranges(20, 30, 0, 10) },
			want:   []wantErr{{field.ErrorTypeInvalid, "spec.held[1].first", "in ascending order"}},
		},
		"holds too many ranges": {
			change: func(i *sharding.ControllerInstance) { i.Spec.Held = manyRanges(65) },
			want:   []wantErr{{field.ErrorTypeTooMany, "spec.held", "must have at most 64 items"}},
		},
		"move to where it is": {
			change: func(i *sharding.ControllerInstance) {
				i.Spec.HashKey, i.Spec.NextHashKey = ptr.To[int64](7), ptr.To[int64](7)
			},
			want: []wantErr{{field.ErrorTypeInvalid, "spec.nextHashKey", "must differ from hashKey"}},
		},
		"donor no name": {
			change: func(i *sharding.ControllerInstance) { i.Spec.Donor = "A_b" },
			want:   []wantErr{{field.ErrorTypeInvalid, "spec.donor", "RFC 1123 subdomain"}},
		},
		"own donor": {
			change: func(i *sharding.ControllerInstance) { i.Spec.Donor = i.Name },
			want:   []wantErr{{field.ErrorTypeInvalid, "spec.donor", "another ControllerInstance"}},
		},
		"controllers not labels, twice": {
			change: func(i *sharding.ControllerInstance) {
				i.Spec.Controllers = []string{"ReplicaSet", "", "job-controller", "job-controller"}
			},
			want: []wantErr{
				{field.ErrorTypeInvalid, "spec.controllers[0]", "lower case alphanumeric"},
				{field.ErrorTypeRequired, "spec.controllers[1]", "the name of a controller"},
				{field.ErrorTypeDuplicate, "spec.controllers[3]", "job-controller"},
			},
		},
		"too many controllers": {
			change: func(i *sharding.ControllerInstance) { i.Spec.Controllers = manyControllers(65) },
			want:   []wantErr{{field.ErrorTypeTooMany, "spec.controllers", "must have at most 64 items"}},
		},
		"an empty line": {
			change: func(i *sharding.ControllerInstance) { i.Spec.Governs = []sharding.Governs{{}} },
			want: []wantErr{
				{field.ErrorTypeRequired, "spec.governs[0].controller", "the controller that writes, or \"*\""},
				{field.ErrorTypeRequired, "spec.governs[0].resource", "the plural name of a resource, or \"*\""},
				{field.ErrorTypeNotSupported, "spec.governs[0].by", `supported values: "Claim", "Controller", "Home", "Namespace", "Own"`},
			},
		},
		"a line of nonsense": {
			change: func(i *sharding.ControllerInstance) {
				i.Spec.Governs = []sharding.Governs{{Controller: "a/b", Group: "*.k8s.io", Resource: "pods/status", By: "own"}}
			},
			want: []wantErr{
				{field.ErrorTypeInvalid, "spec.governs[0].controller", "lower case alphanumeric"},
				{field.ErrorTypeInvalid, "spec.governs[0].group", "RFC 1123 subdomain"},
				{field.ErrorTypeInvalid, "spec.governs[0].resource", "lower case alphanumeric"},
				{field.ErrorTypeNotSupported, "spec.governs[0].by", `"own"`},
			},
		},
		"too many lines": {
			change: func(i *sharding.ControllerInstance) { i.Spec.Governs = manyLines(257) },
			want:   []wantErr{{field.ErrorTypeTooMany, "spec.governs", "must have at most 256 items"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			instance := validInstance()
			test.change(instance)
			checkErrors(t, ValidateControllerInstance(instance), test.want)
			// What is invalid at birth is so ever after, but for what metadata never lets change
			// and for names that were not reserved yet.
			if len(test.want) > 0 && strings.HasPrefix(test.want[0].field, "spec.") && len(validateReservedNames(instance)) == 0 {
				checkErrors(t, ValidateControllerInstanceUpdate(instance, instance.DeepCopy()), test.want)
			}
		})
	}
}

func TestValidateControllerInstanceUpdate(t *testing.T) {
	tests := map[string]struct {
		change func(*sharding.ControllerInstance)
		want   []wantErr
	}{
		"nothing": {change: func(*sharding.ControllerInstance) {}},
		"all that may change": {change: func(i *sharding.ControllerInstance) {
			i.Labels = map[string]string{"a": "b"}
			i.Spec.HashKey, i.Spec.NextHashKey, i.Spec.Donor = ptr.To[int64](5), nil, ""
			i.Spec.PinnedHashKey, i.Spec.Drained, i.Spec.Balance = ptr.To[int64](5), true, sharding.BalanceDisabled
		}},
		"ring": {
			change: func(i *sharding.ControllerInstance) { i.Spec.Ring = "claims" },
			want:   []wantErr{{field.ErrorTypeInvalid, "spec.ring", "field is immutable"}},
		},
		"lease": {
			change: func(i *sharding.ControllerInstance) { i.Spec.LeaseDurationSeconds++ },
			want:   []wantErr{{field.ErrorTypeInvalid, "spec.leaseDurationSeconds", "field is immutable"}},
		},
		"controllers": {
			change: func(i *sharding.ControllerInstance) { i.Spec.Controllers = nil },
			want:   []wantErr{{field.ErrorTypeInvalid, "spec.controllers", "field is immutable"}},
		},
		"governs": {
			change: func(i *sharding.ControllerInstance) { i.Spec.Governs[0].By = "Home" },
			want:   []wantErr{{field.ErrorTypeInvalid, "spec.governs", "field is immutable"}},
		},
		"held, by less": {
			change: func(i *sharding.ControllerInstance) { i.Spec.Held = nil },
			want:   []wantErr{{field.ErrorTypeInvalid, "spec.held", "field is immutable"}},
		},
		"held, by more": {
			change: func(i *sharding.ControllerInstance) { i.Spec.Held = ranges(0, 10, 12, 20) },
			want:   []wantErr{{field.ErrorTypeInvalid, "spec.held", "field is immutable"}},
		},
		"holder": {
			change: func(i *sharding.ControllerInstance) { i.Spec.HolderIdentity = "host-2" },
			want:   []wantErr{{field.ErrorTypeInvalid, "spec.holderIdentity", "field is immutable"}},
		},
		"name": {
			change: func(i *sharding.ControllerInstance) { i.Name = "other" },
			want:   []wantErr{{field.ErrorTypeInvalid, "metadata.name", "field is immutable"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			old := validInstance()
			old.Spec.HashKey, old.Spec.NextHashKey, old.Spec.Donor = ptr.To[int64](9), ptr.To[int64](5), "workloads-b"
			old.Spec.Controllers, old.Spec.Governs = manyControllers(2), manyLines(2)
			old.Spec.Held = ranges(0, 10)
			instance := old.DeepCopy()
			test.change(instance)
			checkErrors(t, ValidateControllerInstanceUpdate(instance, old), test.want)
		})
	}
}

func TestValidateControllerInstanceStatusUpdate(t *testing.T) {
	states := func(names ...string) []sharding.ControllerState {
		var out []sharding.ControllerState
		for _, name := range names {
			out = append(out, sharding.ControllerState{Name: name})
		}
		return out
	}
	tests := map[string]struct {
		// owns is spec.hashKey, epoch and before are those of the status before.
		owns   *int64
		epoch  int64
		before sharding.InstancePhase
		status sharding.ControllerInstanceStatus
		want   []wantErr
	}{
		"empty":                   {},
		"init":                    {status: sharding.ControllerInstanceStatus{Phase: "Init"}},
		"locked":                  {status: sharding.ControllerInstanceStatus{Phase: "Locked", Cached: ranges(0, 0)}},
		"wait":                    {owns: ptr.To[int64](5), status: sharding.ControllerInstanceStatus{Phase: "Wait", Cached: ranges(0, math.MaxInt64)}},
		"active, round the seam":  {owns: ptr.To[int64](10), status: sharding.ControllerInstanceStatus{Phase: "Active", Cached: ranges(0, 10, 100, math.MaxInt64), Weight: 3, Busy: 1, Heap: &sharding.ProcessHeap{}, PhaseSince: &metav1.Time{}}},
		"workers that never rest": {status: sharding.ControllerInstanceStatus{Work: 1000}},
		"leaving, touching":       {status: sharding.ControllerInstanceStatus{Phase: "Leaving", Cached: ranges(0, 10, 11, 20)}},
		"same epoch":              {epoch: 3, status: sharding.ControllerInstanceStatus{Epoch: 3}},
		"higher epoch":            {epoch: 3, owns: ptr.To[int64](5), status: sharding.ControllerInstanceStatus{Epoch: 5, Gives: &sharding.Gift{To: "workloads-b", HashKey: math.MaxInt64}}},
		"highest step":            {epoch: 1 << 61, status: sharding.ControllerInstanceStatus{Epoch: 1<<61 + 1024}},
		"its own upper part":      {owns: ptr.To[int64](5), status: sharding.ControllerInstanceStatus{Epoch: 1, Gives: &sharding.Gift{To: "workloads-a", HashKey: 3}}},
		// It has moved the boundary already, and what it gives is told with the next news.
		"its own upper part, given": {owns: ptr.To[int64](3), status: sharding.ControllerInstanceStatus{Epoch: 1, Gives: &sharding.Gift{To: "workloads-a", HashKey: 3}}},
		// The log shows it what it owns later than the server knows.
		"owns a range, and does not know yet": {owns: ptr.To[int64](3), before: "Locked", status: sharding.ControllerInstanceStatus{Phase: "Init"}},
		"gives a key up":                      {before: "Locked", status: sharding.ControllerInstanceStatus{Phase: "Init"}},
		"stays after all":                     {before: "Leaving", status: sharding.ControllerInstanceStatus{Phase: "Init"}},
		"as much as it may":                   {status: sharding.ControllerInstanceStatus{Weight: 1 << 40, Busy: 1 << 40, Heaviest: 1 << 39, BeforeHeaviest: 1 << 39, Heap: &sharding.ProcessHeap{LiveBytes: 1 << 50, Objects: 1 << 40}}},
		"controllers, in any order": {status: sharding.ControllerInstanceStatus{Controllers: []sharding.ControllerState{
			{Name: "controller-63", Working: true}, {Name: "controller-0", Reason: strings.Repeat("→", 1024)},
		}}},
		"every controller":         {status: sharding.ControllerInstanceStatus{Controllers: states(manyControllers(64)...)}},
		"as many ranges as it may": {status: sharding.ControllerInstanceStatus{Cached: manyRanges(64)}},

		"unknown phase": {
			status: sharding.ControllerInstanceStatus{Phase: "active"},
			want:   []wantErr{{field.ErrorTypeNotSupported, "status.phase", `supported values: "Active", "Init", "Leaving", "Locked", "Wait"`}},
		},
		"keys out of bounds": {
			status: sharding.ControllerInstanceStatus{Cached: ranges(-2, -1)},
			want: []wantErr{
				{field.ErrorTypeInvalid, "status.cached[0].first", "between 0 and 9223372036854775807"},
				{field.ErrorTypeInvalid, "status.cached[0].last", "between 0 and 9223372036854775807"},
			},
		},
		"ends swapped": {
			status: sharding.ControllerInstanceStatus{Cached: ranges(10, 9)},
			want:   []wantErr{{field.ErrorTypeInvalid, "status.cached[0].last", "must not be below first (10)"}},
		},
		"overlap": {
			status: sharding.ControllerInstanceStatus{Cached: ranges(0, 10, 10, 20)},
			want:   []wantErr{{field.ErrorTypeInvalid, "status.cached[1].first", "must be above the last key of the range before it (10)"}},
		},
		"order": {
			status: sharding.ControllerInstanceStatus{Cached: ranges(20, 30, 0, 10)},
			want:   []wantErr{{field.ErrorTypeInvalid, "status.cached[1].first", "in ascending order"}},
		},
		"too many ranges": {
			status: sharding.ControllerInstanceStatus{Cached: manyRanges(65)},
			want:   []wantErr{{field.ErrorTypeTooMany, "status.cached", "must have at most 64 items"}},
		},
		"negative counts": {
			status: sharding.ControllerInstanceStatus{Weight: -1, Busy: -1, Heaviest: -1, Heap: &sharding.ProcessHeap{LiveBytes: -1, Objects: -1}, Work: -1},
			want: []wantErr{
				{field.ErrorTypeInvalid, "status.weight", "must be between 0 and 1099511627776, inclusive"},
				{field.ErrorTypeInvalid, "status.busy", "must be between 0 and 1099511627776, inclusive"},
				{field.ErrorTypeInvalid, "status.heaviest", "must be between 0 and 1099511627776, inclusive"},
				{field.ErrorTypeInvalid, "status.heap.liveBytes", "must be between 0 and 1125899906842624, inclusive"},
				{field.ErrorTypeInvalid, "status.heap.objects", "must be between 0 and 1099511627776, inclusive"},
				{field.ErrorTypeInvalid, "status.work", "must be between 0 and 1000, inclusive"},
			},
		},
		"more work than there is time": {
			status: sharding.ControllerInstanceStatus{Work: 1001},
			want:   []wantErr{{field.ErrorTypeInvalid, "status.work", "must be between 0 and 1000, inclusive"}},
		},
		"controllers not labels, not listed, twice": {
			status: sharding.ControllerInstanceStatus{Controllers: states("", "Controller-1", "controller-64", "controller-1", "controller-1")},
			want: []wantErr{
				{field.ErrorTypeRequired, "status.controllers[0].name", "the name of a controller"},
				{field.ErrorTypeInvalid, "status.controllers[1].name", "lower case alphanumeric"},
				{field.ErrorTypeInvalid, "status.controllers[2].name", "must be one of spec.controllers"},
				{field.ErrorTypeDuplicate, "status.controllers[4].name", "controller-1"},
			},
		},
		"too many controllers": {
			status: sharding.ControllerInstanceStatus{Controllers: states(manyControllers(65)...)},
			want:   []wantErr{{field.ErrorTypeTooMany, "status.controllers", "must have at most 64 items"}},
		},
		"too long a reason": {
			status: sharding.ControllerInstanceStatus{Controllers: []sharding.ControllerState{{Name: "controller-0", Reason: strings.Repeat("→", 1025)}}},
			want:   []wantErr{{field.ErrorTypeTooLong, "status.controllers[0].reason", "more than 1024 characters"}},
		},
		"lower epoch": {
			epoch:  3,
			status: sharding.ControllerInstanceStatus{Epoch: 2},
			want:   []wantErr{{field.ErrorTypeInvalid, "status.epoch", "must not fall: it is 3 already"}},
		},
		"negative epoch": {
			status: sharding.ControllerInstanceStatus{Epoch: -1},
			want:   []wantErr{{field.ErrorTypeInvalid, "status.epoch", "must be between 0 and 4611686018427387904, inclusive"}},
		},
		"highest epoch of all": {
			status: sharding.ControllerInstanceStatus{Epoch: 1 << 62},
			want:   []wantErr{{field.ErrorTypeInvalid, "status.epoch", "must not rise by more than 1024 at once: it is 0 now"}},
		},
		"too high a step": {
			epoch:  7,
			status: sharding.ControllerInstanceStatus{Epoch: 7 + 1025},
			want:   []wantErr{{field.ErrorTypeInvalid, "status.epoch", "must not rise by more than 1024 at once: it is 7 now"}},
		},
		"counts that no process has": {
			status: sharding.ControllerInstanceStatus{Weight: 1<<40 + 1, Busy: math.MaxInt64, BeforeHeaviest: 1<<40 + 1, Heap: &sharding.ProcessHeap{LiveBytes: 1<<50 + 1, Objects: math.MaxInt64}},
			want: []wantErr{
				{field.ErrorTypeInvalid, "status.weight", "1099511627776"},
				{field.ErrorTypeInvalid, "status.busy", "1099511627776"},
				{field.ErrorTypeInvalid, "status.beforeHeaviest", "1099511627776"},
				{field.ErrorTypeInvalid, "status.heap.liveBytes", "1125899906842624"},
				{field.ErrorTypeInvalid, "status.heap.objects", "1099511627776"},
			},
		},
		"more on one key than there is": {
			status: sharding.ControllerInstanceStatus{Weight: 9, Heaviest: 5, BeforeHeaviest: 5},
			want:   []wantErr{{field.ErrorTypeInvalid, "status.heaviest", "must not be more than weight (9) with beforeHeaviest (5)"}},
		},
		"works on nothing": {
			before: "Init",
			status: sharding.ControllerInstanceStatus{Phase: "Active"},
			want:   []wantErr{{field.ErrorTypeInvalid, "status.phase", "must be Init, Locked or Leaving"}},
		},
		"gives nothing away": {
			before: "Locked",
			status: sharding.ControllerInstanceStatus{Phase: "Wait"},
			want:   []wantErr{{field.ErrorTypeInvalid, "status.phase", "must be Init, Locked or Leaving"}},
		},
		"forgets what it owns": {
			owns:   ptr.To[int64](5),
			before: "Active",
			status: sharding.ControllerInstanceStatus{Phase: "Init"},
			want:   []wantErr{{field.ErrorTypeInvalid, "status.phase", "must not follow Active"}},
		},
		"forgets its phase": {
			before: "Init",
			status: sharding.ControllerInstanceStatus{Weight: 1},
			want:   []wantErr{{field.ErrorTypeRequired, "status.phase", "always has one: it is Init"}},
		},
		"gift of who owns nothing": {
			status: sharding.ControllerInstanceStatus{Epoch: 1, Gives: &sharding.Gift{To: "workloads-b"}},
			want:   []wantErr{{field.ErrorTypeForbidden, "status.gives", "owns no range"}},
		},
		"gift in the first epoch": {
			owns:   ptr.To[int64](5),
			status: sharding.ControllerInstanceStatus{Gives: &sharding.Gift{To: "workloads-b"}},
			want:   []wantErr{{field.ErrorTypeInvalid, "status.gives", "nothing is given in epoch 0"}},
		},
		"gift of its own key": {
			owns:   ptr.To[int64](5),
			status: sharding.ControllerInstanceStatus{Epoch: 1, Gives: &sharding.Gift{To: "workloads-b", HashKey: 5}},
			want:   []wantErr{{field.ErrorTypeInvalid, "status.gives.hashKey", "must differ from spec.hashKey"}},
		},
		"gift to nobody": {
			owns:   ptr.To[int64](5),
			status: sharding.ControllerInstanceStatus{Epoch: 1, Gives: &sharding.Gift{HashKey: -1}},
			want: []wantErr{
				{field.ErrorTypeRequired, "status.gives.to", "the name of the ControllerInstance whose hashKey is granted"},
				{field.ErrorTypeInvalid, "status.gives.hashKey", "between 0 and 9223372036854775807"},
			},
		},
		"gift to no name": {
			owns:   ptr.To[int64](5),
			status: sharding.ControllerInstanceStatus{Epoch: 1, Gives: &sharding.Gift{To: "A_b"}},
			want:   []wantErr{{field.ErrorTypeInvalid, "status.gives.to", "RFC 1123 subdomain"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			old, instance := validInstance(), validInstance()
			instance.Spec.Controllers = manyControllers(64)
			old.Spec.HashKey, instance.Spec.HashKey = test.owns, test.owns
			old.Status.Epoch, old.Status.Phase, instance.Status = test.epoch, test.before, test.status
			checkErrors(t, ValidateControllerInstanceStatusUpdate(instance, old), test.want)
			// A renewal is let in whatever is stored.
			checkErrors(t, ValidateControllerInstanceStatusUpdate(instance, instance.DeepCopy()), nil)
		})
	}
}

// Nobody makes a record so large that its instance cannot write it any more.
func TestMetadataOfOthersIsBounded(t *testing.T) {
	labels := func(n int) map[string]string {
		out := map[string]string{}
		for i := range n {
			out[fmt.Sprintf("label-%05d", i)] = strings.Repeat("x", 63)
		}
		return out
	}
	for name, test := range map[string]struct{ before, after metav1.ObjectMeta }{
		"labels":           {after: metav1.ObjectMeta{Labels: labels(1000)}},
		"finalizers":       {after: metav1.ObjectMeta{Finalizers: slices.Repeat([]string{"example.com/hold"}, 4000)}},
		"owner references": {after: metav1.ObjectMeta{OwnerReferences: slices.Repeat([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "a", UID: "b"}}, 6000)}},
		"field managers":   {after: metav1.ObjectMeta{ManagedFields: slices.Repeat([]metav1.ManagedFieldsEntry{{Manager: strings.Repeat("m", 128)}}, 600)}},
		"more of it":       {before: metav1.ObjectMeta{Labels: labels(1000)}, after: metav1.ObjectMeta{Labels: labels(1001)}},
	} {
		t.Run(name, func(t *testing.T) {
			old, instance := validInstance(), validInstance()
			old.ObjectMeta, instance.ObjectMeta = test.before, test.after
			want := []wantErr{{field.ErrorTypeInvalid, "metadata", "may not be more than 65536 bytes"}}
			checkErrors(t, ValidateControllerInstanceMetadataUpdate(instance, old), want)
			// What is too much already may become less, or stay.
			checkErrors(t, ValidateControllerInstanceMetadataUpdate(instance, instance), nil)
			checkErrors(t, ValidateControllerInstanceMetadataUpdate(old, instance), nil)
		})
	}
	instance := validInstance()
	instance.Labels = labels(1000)
	checkErrors(t, ValidateControllerInstance(instance), []wantErr{{field.ErrorTypeInvalid, "metadata", "may not be more than 65536 bytes"}})
	// Annotations have a bound of their own, that of every object.
	instance.Labels, instance.Annotations = labels(700), map[string]string{"a": strings.Repeat("x", 256<<10-1)}
	checkErrors(t, ValidateControllerInstance(instance), nil)
}
