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

package sharding

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const (
	ownUID        = types.UID("a0000000-0000-4000-8000-000000000001")
	controllerUID = types.UID("c0000000-0000-4000-8000-000000000002")
	otherOwnerUID = types.UID("d0000000-0000-4000-8000-000000000003")
)

var (
	ownKey        = hashkey.OfUID(ownUID)
	controllerKey = hashkey.OfUID(controllerUID)
)

// keyed returns the object with keys that do not follow from its UIDs, as a client may send them:
// they count as little as none.
func keyed() *testObject {
	obj := unkeyed()
	obj.HashKey = ptr.To(ownKey ^ 1<<62)
	for i := range obj.OwnerReferences {
		obj.OwnerReferences[i].HashKey = ptr.To(hashkey.OfUID(obj.OwnerReferences[i].UID) ^ 1<<62)
	}
	return obj
}

func unkeyed() *testObject {
	return &testObject{ObjectMeta: metav1.ObjectMeta{
		Name: "name",
		UID:  ownUID,
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Other", Name: "other", UID: otherOwnerUID},
			{APIVersion: "v1", Kind: "Other", Name: "no longer", UID: otherOwnerUID, Controller: ptr.To(false)},
			{APIVersion: "v1", Kind: "Controller", Name: "controller", UID: controllerUID, Controller: ptr.To(true)},
		},
	}}
}

func orphan() *testObject {
	obj := keyed()
	obj.OwnerReferences = obj.OwnerReferences[:2]
	return obj
}

func asUnstructured(t testing.TB, obj *testObject) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

func selectorOn(path string, ranges ...hashkey.Range) Selector {
	var reqs []ShardRangeRequirement
	for _, r := range ranges {
		reqs = append(reqs, ShardRangeRequirement{Key: path, Start: fmt.Sprintf("0x%016x", r.Start), End: fmt.Sprintf("0x%016x", r.End)})
	}
	return NewSelector(reqs...)
}

func around(key int64) hashkey.Range {
	return hashkey.Range{Start: uint64(key), End: uint64(key) + 1}
}

func TestHashKeySelectorMatches(t *testing.T) {
	objects := map[string]runtime.Object{
		"typed":                  keyed(),
		"typed, no keys":         unkeyed(),
		"unstructured":           asUnstructured(t, keyed()),
		"unstructured, no keys":  asUnstructured(t, unkeyed()),
		"orphan":                 orphan(),
		"orphan, unstructured":   asUnstructured(t, orphan()),
		"no owner":               &testObject{ObjectMeta: metav1.ObjectMeta{UID: ownUID}},
		"no owner, unstructured": asUnstructured(t, &testObject{ObjectMeta: metav1.ObjectMeta{UID: ownUID}}),
	}
	controlled := map[string]bool{"typed": true, "typed, no keys": true, "unstructured": true, "unstructured, no keys": true}
	for _, tc := range []struct {
		path string
		key  int64
	}{{HashKeyPath, ownKey}, {ControllerHashKeyPath, controllerKey}} {
		key := uint64(tc.key)
		for _, r := range []struct {
			ranges []hashkey.Range
			want   bool
		}{
			{[]hashkey.Range{{Start: 0, End: hashkey.Limit}}, true},
			{[]hashkey.Range{around(tc.key)}, true},
			{[]hashkey.Range{{Start: 0, End: key}}, false},
			{[]hashkey.Range{{Start: 0, End: key + 1}}, true},
			{[]hashkey.Range{{Start: key + 1, End: hashkey.Limit}}, false},
			{[]hashkey.Range{{Start: key, End: hashkey.Limit}}, true},
			{[]hashkey.Range{{Start: 0, End: key}, {Start: key + 1, End: hashkey.Limit}}, false},
			{[]hashkey.Range{{Start: key + 1, End: hashkey.Limit}, {Start: 0, End: 1}, {Start: key - 1, End: key + 1}}, true},
			// No key lies above the highest.
			{[]hashkey.Range{{Start: hashkey.Limit, End: hashkey.Limit + 1}}, false},
		} {
			selector := selectorOn(tc.path, r.ranges...)
			for name, obj := range objects {
				want := r.want || tc.path == ControllerHashKeyPath && !controlled[name]
				got, err := selector.Matches(obj)
				if err != nil || got != want {
					t.Errorf("%s: %v matches %s: %t, %v; want %t", name, selector, tc.path, got, err, want)
				}
			}
		}
	}
}

func TestHashKeySelectorTakesTheWholeLineUpTo2To64(t *testing.T) {
	selector := NewSelector(ShardRangeRequirement{Key: HashKeyPath, Start: "0x0000000000000000", End: "0x10000000000000000"})
	if got := selector.(HashKeySelector).Ranges(); !got.Equal(hashkey.All()) {
		t.Errorf("ranges %v, want everything", got)
	}
	if got, err := selector.Matches(keyed()); err != nil || !got {
		t.Errorf("Matches() = %t, %v", got, err)
	}
}

// A selector on hash keys finds the same objects as upstream's on twice the bounds.
func TestHashKeySelectorAgreesWithUpstreamsUIDSelector(t *testing.T) {
	for i := range 500 {
		obj := &testObject{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprintf("uid-%d", i))}}
		for _, quarter := range []uint64{0, 1, 2, 3} {
			start, end := quarter<<61, (quarter+1)<<61
			ours := selectorOn(HashKeyPath, hashkey.Range{Start: start, End: end})
			upstreamEnd := fmt.Sprintf("0x%016x", 2*end)
			if end == hashkey.Limit {
				upstreamEnd = "0x10000000000000000"
			}
			upstreams := NewSelector(ShardRangeRequirement{Key: "object.metadata.uid", Start: fmt.Sprintf("0x%016x", 2*start), End: upstreamEnd})
			got, err := ours.Matches(obj)
			if err != nil {
				t.Fatal(err)
			}
			want, err := upstreams.Matches(obj)
			if err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("%s: %v says %t, %v says %t", obj.UID, ours, got, upstreams, want)
			}
		}
	}
}

func TestHashKeySelectorDescribesItself(t *testing.T) {
	reqs := []ShardRangeRequirement{
		{Key: ControllerHashKeyPath, Start: "0x7000000000000000", End: "0x8000000000000000"},
		{Key: ControllerHashKeyPath, Start: "0x0000000000000000", End: "0x0000000000000010"},
	}
	original, ok := NewSelector(reqs...).(HashKeySelector)
	if !ok {
		t.Fatalf("%T is not a HashKeySelector", NewSelector(reqs...))
	}
	copied, ok := original.DeepCopySelector().(HashKeySelector)
	if !ok {
		t.Fatalf("the copy, a %T, is not a HashKeySelector", original.DeepCopySelector())
	}
	wantRanges := hashkey.Ranges{{Start: 0, End: 0x10}, {Start: 0x7 << 60, End: hashkey.Limit}}
	// The selector is written as it was requested, not in the order of its ranges.
	wantString := "shardRange(object.metadata.controllerRef.hashKey, '0x7000000000000000', '0x8000000000000000') || " +
		"shardRange(object.metadata.controllerRef.hashKey, '0x0000000000000000', '0x0000000000000010')"
	for name, selector := range map[string]HashKeySelector{"original": original, "copy": copied} {
		if got := selector.Path().String(); got != ControllerHashKeyPath {
			t.Errorf("%s: Path() = %q", name, got)
		}
		if !selector.Ranges().Equal(wantRanges) {
			t.Errorf("%s: Ranges() = %v, want %v", name, selector.Ranges(), wantRanges)
		}
		if selector.String() != wantString {
			t.Errorf("%s: String() = %q, want %q", name, selector.String(), wantString)
		}
		if selector.Empty() {
			t.Errorf("%s: a selector with requirements is not empty", name)
		}
		if got := selector.Requirements(); len(got) != 2 || got[0] != reqs[0] || got[1] != reqs[1] {
			t.Errorf("%s: Requirements() = %v", name, got)
		}
	}
}

// Requirements that the parser would refuse must cause an error, not a silent mismatch.
func TestHashKeySelectorWithMalformedRequirements(t *testing.T) {
	good := ShardRangeRequirement{Key: HashKeyPath, Start: "0x0000000000000000", End: "0x8000000000000000"}
	for name, bad := range map[string]ShardRangeRequirement{
		"another path": {Key: ControllerHashKeyPath, Start: good.Start, End: good.End},
		"uid":          {Key: "object.metadata.uid", Start: good.Start, End: good.End},
		"no prefix":    {Key: HashKeyPath, Start: "0000000000000000", End: good.End},
		"no number":    {Key: HashKeyPath, Start: good.Start, End: "0xg"},
	} {
		for _, selector := range []Selector{NewSelector(good, bad), NewSelector(bad, good)} {
			if matched, err := selector.Matches(keyed()); err == nil {
				t.Errorf("%s: %v matches without an error: %t", name, selector, matched)
			}
		}
	}
}

func TestHashKeySelectorNeedsMetadata(t *testing.T) {
	if _, err := selectorOn(HashKeyPath, hashkey.Range{End: 1}).Matches(&metav1.Status{}); err == nil {
		t.Error("an object without metadata has no key, yet there is no error")
	}
}

func TestHashKeySelectorDoesNotAllocate(t *testing.T) {
	for name, obj := range map[string]runtime.Object{
		"typed":                keyed(),
		"typed, no keys":       unkeyed(),
		"typed orphan":         orphan(),
		"unstructured":         asUnstructured(t, keyed()),
		"unstructured, orphan": asUnstructured(t, orphan()),
	} {
		for _, path := range []string{HashKeyPath, ControllerHashKeyPath} {
			selector := selectorOn(path, hashkey.Range{Start: 0, End: 1}, around(ownKey), around(controllerKey))
			var matched bool
			var err error
			if allocs := testing.AllocsPerRun(100, func() { matched, err = selector.Matches(obj) }); allocs != 0 {
				t.Errorf("%s, %s: %v allocations for one match", name, path, allocs)
			}
			if err != nil || !matched {
				t.Errorf("%s, %s: Matches() = %t, %v", name, path, matched, err)
			}
		}
	}
}
