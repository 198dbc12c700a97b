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

import "k8s.io/apimachinery/pkg/hashkey"

// Arc is the range of an instance, along the ring from its first key, which lies above the last one
// if the range goes round the seam.
type Arc struct {
	first uint64
	// Width is how many keys it has.
	Width uint64
}

// NewArc returns the arc of the keys owned, the last of which is that key.
func NewArc(last int64, owned hashkey.Ranges) Arc {
	width := owned.Width()
	return Arc{first: (uint64(last) + 1 - width) & (hashkey.Limit - 1), Width: width}
}

// Distance returns how far the key lies from the first one.
func (a Arc) Distance(key int64) uint64 { return (uint64(key) - a.first) & (hashkey.Limit - 1) }

// Key returns the key at that distance.
func (a Arc) Key(distance uint64) int64 { return int64((a.first + distance) & (hashkey.Limit - 1)) }
