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
	"math/big"
	"testing"

	apisharding "k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

// FuzzParse feeds anything to the parser of shard selectors. What it accepts must
// be said back in the same words, select the same when parsed again, and, on hash
// keys, hold just the keys between its bounds.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"shardRange(object.metadata.hashKey, '0x0000000000000000', '0x4000000000000000')",
		"shardRange(object.metadata.controllerRef.hashKey, '0x0000000000000000', '0x10000000000000000')",
		"shardRange(object.metadata.hashKey, '0x0000000000000000', '0x0000000000000001') || shardRange(object.metadata.hashKey, '0x7fffffffffffffff', '0x8000000000000000')",
		"shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')",
		"shardRange(object.metadata.hashKey, '0x4', '0x0')",
		"",
	} {
		f.Add(seed, int64(1)<<62)
	}
	featuregatetesting.SetFeatureGatesDuringTest(f, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{
		features.ShardedListAndWatch: true, features.ControllerRing: true,
	})
	f.Fuzz(func(t *testing.T, text string, key int64) {
		selector, err := Parse(text)
		if err != nil || selector == nil || selector.Empty() {
			return
		}
		again, err := Parse(selector.String())
		if err != nil {
			t.Fatalf("%q is accepted, but not %q, which it calls itself: %v", text, selector, err)
		}
		if again.String() != selector.String() {
			t.Fatalf("%q parsed again is %q", selector, again)
		}
		keys, ok := selector.(apisharding.HashKeySelector)
		if !ok || key < 0 {
			return
		}
		if got := again.(apisharding.HashKeySelector).Ranges(); !got.Equal(keys.Ranges()) {
			t.Fatalf("%q selects %v, and parsed again %v", text, keys.Ranges(), got)
		}
		within := false
		for _, r := range keys.Requirements() {
			start, end := new(big.Int), new(big.Int)
			if _, ok := start.SetString(r.Start, 0); !ok {
				t.Fatalf("%q is accepted with the bound %q", text, r.Start)
			}
			if _, ok := end.SetString(r.End, 0); !ok {
				t.Fatalf("%q is accepted with the bound %q", text, r.End)
			}
			k := big.NewInt(key)
			within = within || start.Cmp(k) <= 0 && k.Cmp(end) < 0
		}
		if got := keys.Ranges().Contains(key); got != within {
			t.Fatalf("%q selects key %x: %t", text, key, got)
		}
	})
}
