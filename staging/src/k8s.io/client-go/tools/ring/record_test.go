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
	"strings"
	"testing"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
)

func TestARecordHoldsWhatDecisionsUse(t *testing.T) {
	got, err := NewRecord(&shardingv1alpha1.ControllerInstance{
		ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid", ResourceVersion: "41", DeletionTimestamp: &metav1.Time{}},
		Spec:       shardingv1alpha1.ControllerInstanceSpec{Ring: "workloads", HolderIdentity: "host_1", HashKey: (*shardingv1alpha1.HashKey)(at(5)), NextHashKey: (*shardingv1alpha1.HashKey)(at(6)), Donor: "d", PinnedHashKey: (*shardingv1alpha1.HashKey)(at(11)), Drained: true, Balance: shardingv1alpha1.BalanceDisabled},
		Status: shardingv1alpha1.ControllerInstanceStatus{
			Phase: shardingv1alpha1.InstanceWait, Weight: 7, Heaviest: 6, BeforeHeaviest: 1, Cached: []shardingv1alpha1.HashKeyRange{{First: 1, Last: 5}},
			Epoch: 3, Gives: &shardingv1alpha1.Gift{To: "b", HashKey: 4}, Heap: &shardingv1alpha1.ProcessHeap{LiveBytes: 8, Objects: 9}, Work: 10,
		},
	})
	want := Record{
		Name: "a", UID: "uid", Ring: "workloads", Holder: "host_1", Revision: 41, Key: at(5), Next: at(6), Donor: "d",
		Phase: shardingv1alpha1.InstanceWait, Cached: keys(0, 5), Weight: 7, Heaviest: 6, BeforeHeaviest: 1, LiveBytes: 8, HeapObjects: 9, Work: 10, PinnedKey: at(11), Drained: true, BalanceOff: true, Report: Report{3, &Gift{"b", 4}}, Deleting: true,
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("record %+v, %v; want %+v", got, err, want)
	}
	if _, err := NewRecord(&shardingv1alpha1.ControllerInstance{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "x1"}}); err == nil || !strings.Contains(err.Error(), `ControllerInstance a has resourceVersion "x1"`) {
		t.Errorf("a resource version that is no number: error %v", err)
	}
}

func TestCachedRangesAreReportedWithBothEndsIncluded(t *testing.T) {
	for name, tc := range map[string]struct {
		ranges hashkey.Ranges
		want   []shardingv1alpha1.HashKeyRange
	}{
		"nothing":         {nil, []shardingv1alpha1.HashKeyRange{}},
		"everything":      {hashkey.All(), []shardingv1alpha1.HashKeyRange{{First: 0, Last: shardingv1alpha1.HashKey(hashkey.Max)}}},
		"one key":         {keys(6, 7), []shardingv1alpha1.HashKeyRange{{First: 7, Last: 7}}},
		"across the seam": {keys(300, 100), []shardingv1alpha1.HashKeyRange{{First: 0, Last: 100}, {First: 301, Last: shardingv1alpha1.HashKey(hashkey.Max)}}},
	} {
		t.Run(name, func(t *testing.T) {
			cached := StatusCached(tc.ranges)
			if !reflect.DeepEqual(cached, tc.want) {
				t.Errorf("reported as %v, want %v", cached, tc.want)
			}
			if got := CachedRanges(cached); !got.Equal(tc.ranges) {
				t.Errorf("read back as %v, want %v", got, tc.ranges)
			}
		})
	}
}

func TestReportsAreEqualIfTheirEpochsAndGiftsAre(t *testing.T) {
	report := Report{1, &Gift{"n", 100}}
	for name, tc := range map[string]struct {
		other Report
		want  bool
	}{
		"a copy":           {Report{1, &Gift{"n", 100}}, true},
		"another epoch":    {Report{2, &Gift{"n", 100}}, false},
		"another receiver": {Report{1, &Gift{"o", 100}}, false},
		"another key":      {Report{1, &Gift{"n", 101}}, false},
		"nothing given":    {Report{Epoch: 1}, false},
	} {
		if report.Equal(tc.other) != tc.want || tc.other.Equal(report) != tc.want {
			t.Errorf("%s: equal is not %t", name, tc.want)
		}
	}
	if !(Report{Epoch: 1}).Equal(Report{Epoch: 1}) {
		t.Error("two that give nothing are not equal")
	}
}

func TestAPinHoldsWhereTheBoundaryIsOrIsToBe(t *testing.T) {
	for name, tc := range map[string]struct {
		key, next, pinned *int64
		want              bool
	}{
		"none":              {at(1), at(2), nil, false},
		"where it is":       {at(1), at(2), at(1), true},
		"where it is to be": {at(1), at(2), at(2), true},
		"elsewhere":         {at(1), at(2), at(3), false},
		"nothing is owned":  {nil, nil, at(3), false},
	} {
		if got := (Record{Key: tc.key, Next: tc.next, PinnedKey: tc.pinned}).Pinned(); got != tc.want {
			t.Errorf("%s: pinned %t", name, got)
		}
	}
}
