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

package svg

import "testing"

func TestTick(t *testing.T) {
	for length, want := range map[float64]float64{1: 0.2, 3: 1, 17: 5, 120: 50, 100: 20} {
		if got := Tick(length); got != want {
			t.Errorf("Tick(%v) = %v, want %v", length, got, want)
		}
	}
}
