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
	"math"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/sharding"
	"k8s.io/utils/ptr"
)

func validInstance() *sharding.ControllerInstance {
	return &sharding.ControllerInstance{
		ObjectMeta: metav1.ObjectMeta{Name: "replicaset-controller-a", ResourceVersion: "1"},
		Spec: sharding.ControllerInstanceSpec{
			ControllerName:       "replicaset-controller",
			HolderIdentity:       "host-1_c3d3a1c6-6f0f-4e0b-9d7e-0d1f1b0e7d55",
			LeaseDurationSeconds: 6,
		},
	}
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
			i.Spec.HashKey, i.Spec.NextHashKey, i.Spec.Donor = ptr.To[int64](math.MaxInt64), ptr.To[int64](0), "replicaset-controller-b"
		}},
		"is to own its first range": {change: func(i *sharding.ControllerInstance) { i.Spec.NextHashKey = ptr.To[int64](0) }},
		"shortest lease":            {change: func(i *sharding.ControllerInstance) { i.Spec.LeaseDurationSeconds = 2 }},
		"longest lease":             {change: func(i *sharding.ControllerInstance) { i.Spec.LeaseDurationSeconds = 3600 }},
		"long names": {change: func(i *sharding.ControllerInstance) {
			i.Spec.ControllerName, i.Spec.HolderIdentity = strings.Repeat("c", 63), strings.Repeat("h", 253)
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
		"no controller": {
			change: func(i *sharding.ControllerInstance) { i.Spec.ControllerName = "" },
			want:   []wantErr{{field.ErrorTypeRequired, "spec.controllerName", "the controller this is an instance of"}},
		},
		"controller not a label": {
			change: func(i *sharding.ControllerInstance) { i.Spec.ControllerName = "ReplicaSet" },
			want:   []wantErr{{field.ErrorTypeInvalid, "spec.controllerName", "lower case alphanumeric"}},
		},
		"controller too long": {
			change: func(i *sharding.ControllerInstance) { i.Spec.ControllerName = strings.Repeat("c", 64) },
			want:   []wantErr{{field.ErrorTypeInvalid, "spec.controllerName", "no more than 63"}},
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
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			instance := validInstance()
			test.change(instance)
			checkErrors(t, ValidateControllerInstance(instance), test.want)
			// What is invalid at birth is so ever after, but for what metadata never lets change.
			if len(test.want) > 0 && strings.HasPrefix(test.want[0].field, "spec.") {
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
			i.Spec.LeaseDurationSeconds, i.Spec.HashKey, i.Spec.NextHashKey, i.Spec.Donor = 10, ptr.To[int64](5), nil, ""
		}},
		"controller": {
			change: func(i *sharding.ControllerInstance) { i.Spec.ControllerName = "job-controller" },
			want:   []wantErr{{field.ErrorTypeInvalid, "spec.controllerName", "field is immutable"}},
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
			old.Spec.HashKey, old.Spec.NextHashKey, old.Spec.Donor = ptr.To[int64](9), ptr.To[int64](5), "replicaset-controller-b"
			instance := old.DeepCopy()
			test.change(instance)
			checkErrors(t, ValidateControllerInstanceUpdate(instance, old), test.want)
		})
	}
}

func TestValidateControllerInstanceStatusUpdate(t *testing.T) {
	ranges := func(ends ...int64) []sharding.HashKeyRange {
		var out []sharding.HashKeyRange
		for i := 0; i < len(ends); i += 2 {
			out = append(out, sharding.HashKeyRange{First: ends[i], Last: ends[i+1]})
		}
		return out
	}
	many := func(n int64) []sharding.HashKeyRange {
		var out []sharding.HashKeyRange
		for i := range n {
			out = append(out, sharding.HashKeyRange{First: 2 * i, Last: 2 * i})
		}
		return out
	}
	tests := map[string]struct {
		status sharding.ControllerInstanceStatus
		want   []wantErr
	}{
		"empty":                    {},
		"init":                     {status: sharding.ControllerInstanceStatus{Phase: "Init"}},
		"locked":                   {status: sharding.ControllerInstanceStatus{Phase: "Locked", Cached: ranges(0, 0)}},
		"wait":                     {status: sharding.ControllerInstanceStatus{Phase: "Wait", Cached: ranges(0, math.MaxInt64)}},
		"active, round the seam":   {status: sharding.ControllerInstanceStatus{Phase: "Active", Cached: ranges(0, 10, 100, math.MaxInt64), Workloads: 3, Busy: 1}},
		"leaving, touching":        {status: sharding.ControllerInstanceStatus{Phase: "Leaving", Cached: ranges(0, 10, 11, 20)}},
		"as many ranges as it may": {status: sharding.ControllerInstanceStatus{Cached: many(64)}},

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
			status: sharding.ControllerInstanceStatus{Cached: many(65)},
			want:   []wantErr{{field.ErrorTypeTooMany, "status.cached", "must have at most 64 items"}},
		},
		"negative counts": {
			status: sharding.ControllerInstanceStatus{Workloads: -1, Busy: -1},
			want: []wantErr{
				{field.ErrorTypeInvalid, "status.workloads", "greater than or equal to 0"},
				{field.ErrorTypeInvalid, "status.busy", "greater than or equal to 0"},
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			instance := validInstance()
			instance.Status = test.status
			checkErrors(t, ValidateControllerInstanceStatusUpdate(instance, validInstance()), test.want)
		})
	}
}
