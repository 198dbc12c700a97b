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
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apisharding "k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

func TestParseHashKeys(t *testing.T) {
	for p := range apisharding.NumKeyPaths {
		path := p.String()
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

var (
	pods    = schema.GroupResource{Resource: "pods"}
	volumes = schema.GroupResource{Resource: "persistentvolumes"}
)

// ranges returns a selector of n ranges that do not touch.
func ranges(path string, n int) string {
	var parts []string
	for i := range n {
		parts = append(parts, fmt.Sprintf("shardRange(%s, '0x%016x', '0x%016x')", path, 2*i, 2*i+1))
	}
	return strings.Join(parts, " || ")
}

func TestParseHashKeysWithTheGateOff(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ControllerRing, false)
	for p := range apisharding.NumKeyPaths {
		path := p.String()
		_, err := Parse("shardRange(" + path + ", '0x0000000000000000', '0x8000000000000000')")
		// The exact words of an upstream server.
		if want := `unsupported field path "` + path + `"; supported: object.metadata.uid, object.metadata.namespace`; err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
	if _, err := Parse("shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"); err != nil {
		t.Errorf("upstream's path: %v", err)
	}
	if _, err := ParseFor(pods, "x"); strings.Contains(err.Error(), "hashKey") {
		t.Errorf("%q offers a path that the feature gate turns off", err)
	}
	if _, err := Parse(ranges(apisharding.HashKeyPath, 129)); err == nil || !strings.Contains(err.Error(), "unsupported field path") {
		t.Errorf("129 ranges: %v, want upstream's refusal of the path", err)
	}
}

// The answer to a bad selector says what is wrong and what form is expected.
func TestBadSelectorIsABadRequest(t *testing.T) {
	for selector, reason := range map[string]string{
		"shardRange(object.metadata.hashKey, '0x0', '0x5')":                                         "16-digit",
		"shardRange(object.metadata.name, '0x0000000000000000', '0x8000000000000000')":              `unsupported field path "object.metadata.name"`,
		"shardRange(object.spec.claimRef.hashKey, '0x0000000000000000', '0x8000000000000000')":      "only persistentvolumes have object.spec.claimRef.hashKey, not pods",
		"shardRange(object.metadata.hashKey, '0x0000000000000006', '0x0000000000000005')":           "must be less than end",
		"shardRange(object.metadata.hashKey, '0x0000000000000000', '0x8000000000000000') && hashes": "only shardRange() and ||",
	} {
		_, err := ParseFor(pods, selector)
		if !apierrors.IsBadRequest(err) {
			t.Errorf("%s: got %v, want a BadRequest", selector, err)
			continue
		}
		want := append(fieldPaths(), selector, reason, "shardRange(<path>", "16")
		for _, part := range want {
			if len(part) <= 100 && !strings.Contains(err.Error(), part) {
				t.Errorf("%q lacks %q", err, part)
			}
		}
	}
}

func TestOnlyPersistentVolumesHaveClaims(t *testing.T) {
	selector := ranges(apisharding.ClaimHashKeyPath, 1)
	if _, err := ParseFor(volumes, selector); err != nil {
		t.Errorf("persistentvolumes: %v", err)
	}
	for _, resource := range []schema.GroupResource{pods, {Resource: "persistentvolumeclaims"}, {Group: "example.com", Resource: "persistentvolumes"}} {
		if _, err := ParseFor(resource, selector); !apierrors.IsBadRequest(err) {
			t.Errorf("%s: got %v, want a BadRequest", resource, err)
		}
		for p := range apisharding.NumKeyPaths {
			if _, err := ParseFor(resource, ranges(p.String(), 1)); err != nil && p != apisharding.KeyPathClaim {
				t.Errorf("%s by %s: %v", resource, p, err)
			}
		}
	}
}

func TestRangesOfHashKeysAreLimited(t *testing.T) {
	for p := range apisharding.NumKeyPaths {
		if _, err := Parse(ranges(p.String(), MaxRanges)); err != nil {
			t.Errorf("%d ranges of %s: %v", MaxRanges, p, err)
		}
		for _, n := range []int{MaxRanges + 1, 10 * MaxRanges} {
			_, err := ParseFor(volumes, ranges(p.String(), n))
			if !apierrors.IsBadRequest(err) {
				t.Errorf("%d ranges of %s: got %v, want a BadRequest", n, p, err)
				continue
			}
			for _, part := range []string{fmt.Sprint(n, " ranges"), "at most 128", "merge adjacent ranges", "several requests"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%d ranges of %s: %q lacks %q", n, p, err, part)
				}
			}
		}
	}
	// Blanks do not hide them.
	hidden := strings.ReplaceAll(ranges(apisharding.HashKeyPath, MaxRanges+1), ".hashKey", ". hashKey")
	if _, err := ParseFor(volumes, hidden); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "at most 128") {
		t.Errorf("%d ranges with blanks: got %v, want a BadRequest", MaxRanges+1, err)
	}
	// A stock server takes any number of these.
	if _, err := Parse(ranges("object.metadata.uid", 5*MaxRanges)); err != nil {
		t.Errorf("upstream's path: %v", err)
	}
}

// However long the selector is, and wherever its length is, the answer is short.
func TestErrorOfALongSelectorIsShort(t *testing.T) {
	for name, long := range map[string]func(n int) string{
		"nonsense": func(n int) string { return strings.Repeat("x", n) },
		"path":     func(n int) string { return ranges("object."+strings.Repeat("x", n), 1) },
		"bound": func(n int) string {
			return "shardRange(object.metadata.hashKey, '0x" + strings.Repeat("0", n) + "', '0x1')"
		},
		"unterminated bound": func(n int) string { return "shardRange(object.metadata.hashKey, '0x" + strings.Repeat("0", n) },
		"function":           func(n int) string { return strings.Repeat("f", n) + "()" },
		"many ranges":        func(n int) string { return ranges(apisharding.HashKeyPath, n/90) },
		"many of upstream's": func(n int) string { return ranges("object.metadata.uid", n/80) + "||" },
		"blanks":             func(n int) string { return strings.Repeat(" ", n) },
		"not ASCII":          func(n int) string { return strings.Repeat("鍵", n/3) },
		"not UTF-8":          func(n int) string { return strings.Repeat("\xff", n) },
	} {
		for _, n := range []int{90_000, 1_000_000} {
			_, err := ParseFor(pods, long(n))
			if !apierrors.IsBadRequest(err) {
				t.Errorf("%s, %d bytes: got %.200v, want a BadRequest", name, n, err)
			} else if len(err.Error()) > 1500 {
				t.Errorf("%s, %d bytes: an error of %d bytes: %.200q", name, n, len(err.Error()), err)
			}
		}
	}
}
