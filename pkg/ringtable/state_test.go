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

package ringtable

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestStateHasWhatPeopleHaveSetAndWhatInstancesTell(t *testing.T) {
	pinnedTo := 3 * quarter
	a := instance("a", key(2*quarter), next(3*quarter), func(i *shardingv1alpha1.ControllerInstance) {
		i.Spec.PinnedHashKey = (*shardingv1alpha1.HashKey)(&pinnedTo)
		i.Status.Work, i.Status.PhaseSince = 347, &metav1.Time{Time: now.Add(-5 * time.Second)}
		i.Status.Heap = &shardingv1alpha1.ProcessHeap{LiveBytes: 1000, Objects: 10}
	})
	b := instance("b", key(math.MaxInt64), func(i *shardingv1alpha1.ControllerInstance) { i.Spec.Balance = shardingv1alpha1.BalanceDisabled })
	c := instance("c", phase(shardingv1alpha1.InstanceInit), func(i *shardingv1alpha1.ControllerInstance) { i.Spec.Drained = true })
	data, err := json.Marshal(of(t, []*shardingv1alpha1.ControllerInstance{a, b, c}).State())
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		BalanceOffBy string
		Notes        []string
		Instances    []map[string]any
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if got.BalanceOffBy != "b" || got.Notes == nil || len(got.Notes) != 0 || len(got.Instances) != 3 {
		t.Fatalf("got %s", data)
	}
	for n, want := range []map[string]any{
		{"pinnedHashKey": "6000000000000000", "pinned": true, "drained": nil, "work": 347.0, "phaseSince": "2026-01-02T03:04:00Z", "liveBytes": 1000.0, "heapObjects": 10.0},
		{"pinnedHashKey": nil, "pinned": nil, "drained": nil, "work": 0.0, "phaseSince": nil, "heapObjects": 0.0},
		{"pinned": nil, "drained": true},
	} {
		for field, value := range want {
			if !reflect.DeepEqual(got.Instances[n][field], value) {
				t.Errorf("%v: %s is %v, want %v", got.Instances[n]["name"], field, got.Instances[n][field], value)
			}
		}
	}
}
