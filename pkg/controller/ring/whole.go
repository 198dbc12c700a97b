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
	"context"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/client-go/tools/rangewatch"
)

// wholeSource feeds an informer of a resource that an instance holds all of, whatever its ranges,
// while it has any. For each range it waits as a source of that range does: what the previous owner
// has seen of the resource is then in the store.
type wholeSource struct{ *rangewatch.Source }

// SetRanges implements member.Source.
func (s wholeSource) SetRanges(ranges hashkey.Ranges) { s.Source.SetRanges(wholeOf(ranges)) }

// Held implements member.Source.
func (s wholeSource) Held() hashkey.Ranges {
	if held := s.Source.Held(); held.Covers(hashkey.All()) {
		return held
	}
	return nil
}

// WaitFor implements member.Source.
func (s wholeSource) WaitFor(ctx context.Context, ranges hashkey.Ranges) error {
	return s.Source.WaitFor(ctx, wholeOf(ranges))
}

// Keys implements member.Source. The objects are no load of a range.
func (wholeSource) Keys(hashkey.Ranges) []int64 { return nil }

func wholeOf(ranges hashkey.Ranges) hashkey.Ranges {
	if ranges.Empty() {
		return nil
	}
	return hashkey.All()
}
