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

// Package svg has what the pictures of benchmarks share.
package svg

import (
	"fmt"
	"math"
)

// head begins a picture. Its classes are for the colours of all but the lines, on white and on
// black.
const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="Helvetica, Arial, sans-serif" font-size="12">
  <style>
    .paper { fill: #fff } .ink { fill: #222 } .faint { fill: #555 } .grid { stroke: #e3e6ea } .axis { stroke: #8a94a3 } .mark { stroke: #444 }
    @media (prefers-color-scheme: dark) {
      .paper { fill: #0d1117 } .ink { fill: #e6e6e6 } .faint { fill: #a8b0bb } .grid { stroke: #262c36 } .axis { stroke: #6b7480 } .mark { stroke: #b5bcc6 }
    }
  </style>
  <rect class="paper" width="%d" height="%d"/>
`

// Head returns the beginning of a picture of that size, in pixels.
func Head(width, height int) string { return fmt.Sprintf(head, width, height, width, height) }

// Tick returns a round step of which about five fit into the length.
func Tick(length float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(length/5)))
	for _, step := range []float64{1, 2, 5} {
		if step*power >= length/5 {
			return step * power
		}
	}
	return 10 * power
}
