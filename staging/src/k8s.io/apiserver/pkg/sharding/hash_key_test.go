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
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/hashkey"
	apisharding "k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

func TestParseHashKeys(t *testing.T) {
	for _, path := range []string{apisharding.HashKeyPath, apisharding.ControllerHashKeyPath} {
		for name, tc := range map[string]struct {
			// P stands for the path.
			expr string
			// want is what the selector calls itself, expr where it is empty.
			want   string
			ranges hashkey.Ranges
		}{
			"one range": {
				expr:   "shardRange(P, '0x0000000000000000', '0x4000000000000000')",
				ranges: hashkey.Ranges{{Start: 0, End: 1 << 62}},
			},
			"one key": {
				expr:   "shardRange(P, '0x00000000000000ff', '0x0000000000000100')",
				ranges: hashkey.Ranges{{Start: 0xff, End: 0x100}},
			},
			"up to 2^63": {
				expr:   "shardRange(P, '0x7fffffffffffffff', '0x8000000000000000')",
				ranges: hashkey.Ranges{{Start: hashkey.Limit - 1, End: hashkey.Limit}},
			},
			"up to 2^64": {
				expr:   "shardRange(P, '0x0000000000000000', '0x10000000000000000')",
				ranges: hashkey.All(),
			},
			"above the highest key": {
				expr: "shardRange(P, '0x8000000000000000', '0x10000000000000000')",
			},
			"both sides of the seam": {
				expr:   "shardRange(P, '0x7000000000000000', '0x8000000000000000') || shardRange(P, '0x0000000000000000', '0x0000000000000010')",
				ranges: hashkey.Ranges{{Start: 0, End: 0x10}, {Start: 0x7 << 60, End: hashkey.Limit}},
			},
			"overlapping": {
				expr:   "shardRange(P, '0x0000000000000005', '0x0000000000000009') || shardRange(P, '0x0000000000000001', '0x0000000000000006')",
				ranges: hashkey.Ranges{{Start: 1, End: 9}},
			},
			"brackets, blanks and double quotes": {
				expr: " (shardRange( P ,\"0x0000000000000001\",'0x0000000000000002')||shardRange(P,'0x0000000000000003','0x0000000000000004'))  ",
				want: "shardRange(P, '0x0000000000000001', '0x0000000000000002') || " +
					"shardRange(P, '0x0000000000000003', '0x0000000000000004')",
				ranges: hashkey.Ranges{{Start: 1, End: 2}, {Start: 3, End: 4}},
			},
		} {
			t.Run(path+"/"+name, func(t *testing.T) {
				in := func(s string) string { return strings.ReplaceAll(s, "P", path) }
				want := in(tc.want)
				if want == "" {
					want = in(tc.expr)
				}
				expr := in(tc.expr)
				// What the selector calls itself is parsed to the same selector.
				for range 2 {
					parsed, err := Parse(expr)
					if err != nil {
						t.Fatalf("Parse(%q): %v", expr, err)
					}
					selector, ok := parsed.(apisharding.HashKeySelector)
					if !ok {
						t.Fatalf("Parse(%q) is a %T, not a HashKeySelector", expr, parsed)
					}
					if got := selector.Path().String(); got != path {
						t.Errorf("Path() = %q, want %q", got, path)
					}
					if !selector.Ranges().Equal(tc.ranges) {
						t.Errorf("Ranges() = %v, want %v", selector.Ranges(), tc.ranges)
					}
					if expr = selector.String(); expr != want {
						t.Fatalf("String() = %q, want %q", expr, want)
					}
				}
			})
		}
	}
}

// Every set of ranges makes a selector that parses to the same set.
func TestParseWhatRangesSelect(t *testing.T) {
	for _, ranges := range []hashkey.Ranges{
		hashkey.All(),
		hashkey.Between(0, 1),
		hashkey.Between(hashkey.Max-1, 5),
		hashkey.Between(1<<62, 1<<61),
	} {
		parsed, err := Parse(ranges.Selector(apisharding.HashKeyPath))
		if err != nil {
			t.Errorf("%v: %v", ranges, err)
			continue
		}
		if got := parsed.(apisharding.HashKeySelector).Ranges(); !got.Equal(ranges) {
			t.Errorf("%v becomes %v", ranges, got)
		}
	}
}

var malformed = []string{
	"shardRange(object.metadata.hashKey, '0x0', '0x8000000000000000')",
	"shardRange(object.metadata.hashKey, '0', '8000000000000000')",
	"shardRange(object.metadata.hashKey, 0, 5)",
	"shardRange(object.metadata.hashKey, '0x0000000000000000', '0x800000000000000G')",
	"shardRange(object.metadata.hashKey, '0x0000000000000000', '0xABCDEF0000000000')",
	"shardRange(object.metadata.hashKey, '0x0000000000000000', '0x10000000000000001')",
	"shardRange(object.metadata.hashKey, '0x0000000000000005', '0x0000000000000005')",
	"shardRange(object.metadata.hashKey, '0x0000000000000006', '0x0000000000000005')",
	"shardRange(object.metadata.hashKey, '0x0000000000000000')",
	"shardRange(object.metadata.hashkey, '0x0000000000000000', '0x8000000000000000')",
	"shardRange(metadata.hashKey, '0x0000000000000000', '0x8000000000000000')",
	"shardRange(object.metadata.controllerRef, '0x0000000000000000', '0x8000000000000000')",
	"shardRange(object.metadata.ownerReferences.hashKey, '0x0000000000000000', '0x8000000000000000')",
	"shardRange(object.metadata.hashKey, '0x0000000000000000', '0x8000000000000000') && " +
		"shardRange(object.metadata.hashKey, '0x0000000000000000', '0x8000000000000000')",
	"shardRange(object.metadata.hashKey, '0x0000000000000000', '0x1000000000000000') || " +
		"shardRange(object.metadata.controllerRef.hashKey, '0x2000000000000000', '0x3000000000000000')",
	"shardRange(object.metadata.hashKey, '0x0000000000000000', '0x1000000000000000') || " +
		"shardRange(object.metadata.uid, '0x2000000000000000', '0x3000000000000000')",
	"!shardRange(object.metadata.hashKey, '0x0000000000000000', '0x8000000000000000')",
	"hashKey in [0, 5)",
	" ",
}

func TestParseRefusesMalformedHashKeys(t *testing.T) {
	for _, expr := range malformed {
		if selector, err := Parse(expr); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", expr, selector)
		}
	}
}

func TestParseNamesTheSupportedPaths(t *testing.T) {
	_, err := Parse("shardRange(object.metadata.name, '0x0000000000000000', '0x8000000000000000')")
	if err == nil {
		t.Fatal("a selector on metadata.name was accepted")
	}
	for _, path := range []string{"object.metadata.uid", "object.metadata.namespace", apisharding.HashKeyPath, apisharding.ControllerHashKeyPath} {
		if !strings.Contains(err.Error(), path) {
			t.Errorf("%q does not name %s", err, path)
		}
	}
}

func TestParseHashKeysWithTheGateOff(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ControllerRing, false)
	for _, path := range []string{apisharding.HashKeyPath, apisharding.ControllerHashKeyPath} {
		_, err := Parse("shardRange(" + path + ", '0x0000000000000000', '0x8000000000000000')")
		// The exact words of an upstream server.
		if want := `unsupported field path "` + path + `"; supported: object.metadata.uid, object.metadata.namespace`; err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
	if _, err := Parse("shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"); err != nil {
		t.Errorf("upstream's path: %v", err)
	}
	if err := NewBadSelector("x", nil); strings.Contains(err.Error(), "hashKey") {
		t.Errorf("%q offers a path that the feature gate turns off", err)
	}
}

func TestNewBadSelector(t *testing.T) {
	selector := "shardRange(object.metadata.hashKey, '0x0', '0x5')"
	_, reason := Parse(selector)
	err := NewBadSelector(selector, reason)
	if !apierrors.IsBadRequest(err) {
		t.Errorf("%v is not a BadRequest", err)
	}
	for _, part := range []string{selector, reason.Error(), "shardRange(<path>", apisharding.ControllerHashKeyPath, "16"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q lacks %q", err, part)
		}
	}
}
