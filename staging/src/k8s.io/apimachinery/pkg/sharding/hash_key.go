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

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
)

// HashKeySelector is a Selector on ranges of hash keys. An index on the key can
// answer it. Matching does not allocate.
type HashKeySelector interface {
	Selector

	// Path returns which key of an object the selector is on.
	Path() KeyPath

	// Ranges returns the selected keys. It is empty if all bounds lie above the
	// highest key. The caller must not change it.
	Ranges() hashkey.Ranges
}

type hashKeySelector struct {
	shardSelector
	path   KeyPath
	ranges hashkey.Ranges
}

var _ HashKeySelector = &hashKeySelector{}

// newHashKeySelector returns the selector for reqs. It returns false if they are not
// all on one key path or have malformed bounds: shardSelector reports those errors.
func newHashKeySelector(reqs []ShardRangeRequirement) (*hashKeySelector, bool) {
	fieldPath := reqs[0].Key
	path, ok := ParseKeyPath(fieldPath)
	if !ok {
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
		path:          path,
		ranges:        hashkey.NewRanges(ranges...),
	}, true
}

// parseBound parses the bound of a range of hash keys. It returns Limit for 2^64, which
// uint64 cannot hold: all bounds above the highest key mean the same.
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

func (s *hashKeySelector) Path() KeyPath          { return s.path }
func (s *hashKeySelector) Ranges() hashkey.Ranges { return s.ranges }

func (s *hashKeySelector) Matches(obj runtime.Object) (bool, error) {
	key, found, err := s.path.KeyOf(obj)
	if err != nil {
		return false, err
	}
	return !found || s.ranges.Contains(key), nil
}

func (s *hashKeySelector) DeepCopySelector() Selector {
	selector, _ := newHashKeySelector(s.Requirements())
	return selector
}
