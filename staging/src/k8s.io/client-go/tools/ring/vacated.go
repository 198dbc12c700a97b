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

import "slices"

// vacated returns the keys in the range of an instance where ranges ended whose owners have gone,
// in no order: those known in the view before, which it does not change, and those of predecessors
// that are in that view only. A process that restarts gets back the keys that it had if the range
// is split there, so no load has to be evened out afterwards.
func vacated(known []int64, before, now *View, name string) []int64 {
	var gone []int64
	n, place := len(before.ring), before.Index(name)
	for step := 1; place >= 0 && step < n; step++ {
		r := before.ring[(place-step+n)%n]
		if later, _ := now.Get(r.Name); later.UID == r.UID {
			break
		}
		gone = append(gone, *r.Key)
	}
	if len(known)+len(gone) == 0 {
		return nil
	}
	owned := now.Owned(name)
	return slices.DeleteFunc(slices.Concat(known, gone), func(key int64) bool { return !owned.Contains(key) })
}
