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
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
)

// A write of an object is judged by the key that ranges are about. Its own governs only what no
// other does, before and after.
func TestEachPathGovernsByTheKeysBeforeAndAfter(t *testing.T) {
	byOwn, byController := orphan(), keyed()
	volume, free := &typedVolume{*orphan(), 7}, &typedVolume{*orphan(), 0}
	for by, tc := range map[string]struct {
		with, without runtime.Object
		changed, none []int64
	}{
		"Own":        {byController, byOwn, []int64{ownKey}, []int64{ownKey}},
		"Controller": {byController, byOwn, []int64{controllerKey}, nil},
		"Home":       {byController, byOwn, []int64{controllerKey}, []int64{ownKey}},
		"Namespace":  {inNamespace(keyed()), byOwn, []int64{hashkey.OfNamespace("team")}, nil},
		"Claim":      {volume, free, []int64{7}, nil},
		"Unknown":    {volume, free, nil, nil},
	} {
		for _, write := range []struct {
			before, after runtime.Object
			want          []int64
		}{
			{tc.without, tc.with, tc.changed},
			{tc.with, tc.without, tc.changed},
			{nil, tc.with, tc.changed},
			{tc.with, nil, tc.changed},
			{tc.without, tc.without, tc.none},
			{nil, tc.without, tc.none},
			{tc.without, nil, tc.none},
		} {
			var states [2]Keys
			for i, obj := range []runtime.Object{write.before, write.after} {
				if obj == nil {
					continue
				}
				var err error
				if states[i], err = KeysOf(obj); err != nil {
					t.Fatal(err)
				}
			}
			if keys, n := Governing(by, states[0], states[1]); !slices.Equal(keys[:n], write.want) {
				t.Errorf("%s, from %v to %v: keys %x, want %x", by, write.before, write.after, keys[:n], write.want)
			}
		}
	}
	if _, err := KeysOf(&metav1.Status{}); err == nil {
		t.Error("an object without metadata has keys")
	}
}
