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

package rangewatch

import (
	"testing"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/sharding"
)

func TestHandlerSeesEachChangeInTheRangeOnce(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	a1 := h.put("a", 10)
	h.put("out", 60)
	a2 := h.change("a", 10)
	h.put("b", 20)
	b := h.delete("b")
	h.wantEvents(at("add", "a", a1), at("update", "a", a2), at("add", "b", b-1), at("delete", "b", b))
}

// One watch is open while ranges are wanted, and none otherwise.
func TestReplacedWatchesAreClosed(t *testing.T) {
	h := newHarness(t, sharding.ControllerHashKeyPath)
	h.put("orphan", -1)
	h.put("a", 10)
	for _, r := range []hashkey.Ranges{percents(0, 50), percents(0, 70), percents(20, 30)} {
		h.source.SetRanges(r)
		h.settled(r)
		h.eventually("one watch", func() bool { return h.server.has(func() bool { return h.server.open == 1 }) })
	}
	h.source.SetRanges(nil)
	h.eventually("no watch", func() bool { return h.server.has(func() bool { return h.server.open == 0 }) })
	h.settled(nil)
}
