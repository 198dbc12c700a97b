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
	apisharding "k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

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
		return false, fmt.Errorf("unsupported field path %q; supported: %s", fieldPath, strings.Join(fieldPaths(), ", "))
	}
	return true, nil
}

// NewBadSelector returns the answer to a request whose shard selector does not parse:
// 400 (BadRequest), with the error of Parse as the reason, and the expected form.
func NewBadSelector(selector string, reason error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("invalid shardSelector %q: %v; want shardRange(<path>, '<start>', '<end>'), several joined by ||, "+
		"where <path> is one of %s, and <start> (inclusive) and <end> (exclusive) are 0x and 16 lower-case hexadecimal digits, <end> at most 0x10000000000000000",
		selector, reason, strings.Join(fieldPaths(), ", ")))
}
