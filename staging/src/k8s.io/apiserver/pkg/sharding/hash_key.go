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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apisharding "k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// MaxRanges is the most ranges of hash keys that a request may select. Each costs memory
// for as long as a watch lives, and time for every event and page: whoever may list one
// namespace could otherwise ask for thousands. A ring's member needs a handful.
const MaxRanges = 128

// ParseFor parses the shard selector of a list or watch of that resource, as Parse does. It
// refuses paths of hash keys that the resource does not have. A refusal is the answer to the
// request: 400 (BadRequest).
func ParseFor(resource schema.GroupResource, expr string) (apisharding.Selector, error) {
	selector, err := Parse(expr)
	if err != nil {
		return nil, newBadSelector(expr, err)
	}
	keys, ok := selector.(apisharding.HashKeySelector)
	if !ok {
		return selector, nil
	}
	if n := len(keys.Requirements()); n > MaxRanges {
		return nil, newBadSelector(expr, tooManyRanges(n))
	}
	if only, ok := keys.Path().Only(); ok && resource != only {
		return nil, newBadSelector(expr, fmt.Errorf("only %s have %s, not %s", only, keys.Path(), resource))
	}
	return selector, nil
}

// checkNumberOfRanges refuses a selector of more than MaxRanges ranges of hash keys. It
// comes before the expression is parsed, which for long ones takes many milliseconds, and sees
// only those that are written as usual; ParseFor refuses the others.
// Upstream's own paths are not limited, so other clients' selectors stay good.
func checkNumberOfRanges(expr string) error {
	n := strings.Count(expr, "||") + 1
	if n <= MaxRanges || !strings.Contains(expr, ".hashKey") || !utilfeature.DefaultFeatureGate.Enabled(features.ControllerRing) {
		return nil
	}
	return tooManyRanges(n)
}

func tooManyRanges(n int) error {
	return fmt.Errorf("%d ranges, but at most %d are allowed: merge adjacent ranges, or send several requests", n, MaxRanges)
}

// fieldPaths returns the field paths that a selector may use.
func fieldPaths() []string {
	paths := []string{"object.metadata.uid", "object.metadata.namespace"}
	if utilfeature.DefaultFeatureGate.Enabled(features.ControllerRing) {
		for path := range apisharding.NumKeyPaths {
			paths = append(paths, path.String())
		}
	}
	return paths
}

// checkHashKeyPath says whether fieldPath is a path of hash keys, and returns an error if
// it is not. With the feature gate ControllerRing off it returns false for every path, and
// no error: upstream's own refusal follows.
func checkHashKeyPath(fieldPath string) (bool, error) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.ControllerRing) {
		return false, nil
	}
	if _, ok := apisharding.ParseKeyPath(fieldPath); !ok {
		return false, fmt.Errorf("unsupported field path %q", abbreviate(fieldPath, 100))
	}
	return true, nil
}

// newBadSelector returns the answer to a request whose shard selector is refused: 400
// (BadRequest), with the reason and the expected form. It is short, however long the
// selector is, and so is what the parser's error repeats of it.
func newBadSelector(selector string, reason error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("invalid shardSelector %q: %s; want shardRange(<path>, '<start>', '<end>'), several joined by ||, "+
		"where <path> is one of %s, and <start> (inclusive) and <end> (exclusive) are 0x and 16 lower-case hexadecimal digits, <end> at most 0x10000000000000000",
		abbreviate(selector, 100), abbreviate(reason.Error(), 200), strings.Join(fieldPaths(), ", ")))
}

// abbreviate cuts s off after n bytes.
func abbreviate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
}
