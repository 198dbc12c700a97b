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
	"strings"
	"testing"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
)

func TestMove(t *testing.T) {
	owner := instance("owner", "workloads").(*shardingv1alpha1.ControllerInstance)
	joining := instance("joining", "workloads").(*shardingv1alpha1.ControllerInstance)
	joining.Spec.HashKey = nil
	moving := instance("moving", "workloads").(*shardingv1alpha1.ControllerInstance)
	moving.Spec.NextHashKey = ptr.To[int64](16)
	for _, tc := range []struct {
		name, to, err string
		want          int64
	}{
		{name: "owner", to: "3fffffffffffffff", want: 1<<62 - 1},
		{name: "owner", to: "0x10", want: 16},
		{name: "owner", to: "10", want: 16},
		{name: "owner", to: "0", want: 0},
		{name: "owner", to: "8000000000000000", err: "want a hash key from 0 to 7fffffffffffffff"},
		{name: "owner", to: "-1", err: "want a hash key"},
		{name: "owner", to: "half", err: "want a hash key"},
		{name: "nobody", to: "10", err: "not found"},
		{name: "joining", to: "10", err: "owns no range yet"},
		{name: "moving", to: "20", err: "already moves the end of its range to 0000000000000010"},
	} {
		t.Run(tc.name+" "+tc.to, func(t *testing.T) {
			client := fake.NewClientset(owner, joining, moving)
			var out strings.Builder
			err := move(t.Context(), client, tc.name, tc.to, &out)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("got %v, want an error with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := client.ShardingV1alpha1().ControllerInstances().Get(t.Context(), tc.name, metav1.GetOptions{})
			if err != nil || got.Spec.NextHashKey == nil || *got.Spec.NextHashKey != tc.want {
				t.Errorf("got %+v (%v), want nextHashKey %d", got.Spec, err, tc.want)
			}
			if !strings.Contains(out.String(), "kubectl ring workloads --watch") {
				t.Errorf("no way to follow it in %q", out.String())
			}
		})
	}
}
