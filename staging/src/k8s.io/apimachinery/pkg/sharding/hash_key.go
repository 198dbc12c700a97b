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
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// HashKeyPath is the field path of an object's own hash key, metadata.hashKey.
	HashKeyPath = "object.metadata.hashKey"

	// ControllerHashKeyPath is the field path of the hash key of an object's
	// controller: the hashKey of the owner reference with controller: true. An
	// object without a controller matches every range of this path, since any
	// instance may have to adopt it.
	ControllerHashKeyPath = "object.metadata.controllerRef.hashKey"
)

// IsHashKeyPath says whether fieldPath is one of the two paths of hash keys.
func IsHashKeyPath(fieldPath string) bool {
	return fieldPath == HashKeyPath || fieldPath == ControllerHashKeyPath
}

// HashKeySelector is a Selector on ranges of hash keys. It never hashes and never
// allocates on objects that carry their keys, and what it selects is known as
// ranges, so that it can be answered by an index on the key.
type HashKeySelector interface {
	Selector

	// FieldPath returns which key is selected on: HashKeyPath or ControllerHashKeyPath.
	FieldPath() string

	// Ranges returns the keys selected, none of them if all bounds lie above the
	// highest key. The caller must not change them.
	Ranges() hashkey.Ranges
}

type hashKeySelector struct {
	shardSelector
	fieldPath string
	// ofController says that fieldPath is ControllerHashKeyPath.
	ofController bool
	ranges       hashkey.Ranges
}

var _ HashKeySelector = &hashKeySelector{}

// newHashKeySelector returns the selector for reqs, and false if they are not all
// on one path of hash keys or have malformed bounds: shardSelector says what is
// wrong with those.
func newHashKeySelector(reqs []ShardRangeRequirement) (*hashKeySelector, bool) {
	fieldPath := reqs[0].Key
	if !IsHashKeyPath(fieldPath) {
		return nil, false
	}
	ranges := make([]hashkey.Range, 0, len(reqs))
	for _, req := range reqs {
		start, startOK := parseBound(req.Start)
		end, endOK := parseBound(req.End)
		if req.Key != fieldPath || !startOK || !endOK {
			return nil, false
		}
		ranges = append(ranges, hashkey.Range{Start: start, End: end})
	}
	return &hashKeySelector{
		shardSelector: shardSelector{requirements: reqs},
		fieldPath:     fieldPath,
		ofController:  fieldPath == ControllerHashKeyPath,
		ranges:        hashkey.NewRanges(ranges...),
	}, true
}

// parseBound returns the bound of a range on hash keys. All bounds above the
// highest key mean the same, so 2^64, which uint64 cannot hold, is Limit here.
func parseBound(bound string) (uint64, bool) {
	if bound == "0x10000000000000000" {
		return hashkey.Limit, true
	}
	digits, ok := strings.CutPrefix(bound, "0x")
	if !ok {
		return 0, false
	}
	value, err := strconv.ParseUint(digits, 16, 64)
	return value, err == nil
}

func (s *hashKeySelector) FieldPath() string      { return s.fieldPath }
func (s *hashKeySelector) Ranges() hashkey.Ranges { return s.ranges }

func (s *hashKeySelector) Matches(obj runtime.Object) (bool, error) {
	if s.ofController {
		// Nearly all objects know their controller's key themselves: one look at
		// their type is all that it takes to ask them.
		if keyed, ok := obj.(metav1.ControllerHashKeyed); ok {
			key, controlled := keyed.GetControllerHashKey()
			return !controlled || s.ranges.Contains(key), nil
		}
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return false, err
	}
	if s.ofController {
		key, controlled := metav1.HashKeyOfController(accessor)
		return !controlled || s.ranges.Contains(key), nil
	}
	return s.ranges.Contains(metav1.HashKeyOf(accessor)), nil
}

func (s *hashKeySelector) DeepCopySelector() Selector {
	selector, _ := newHashKeySelector(s.Requirements())
	return selector
}
