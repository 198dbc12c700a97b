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
	"context"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/client-go/tools/cache"
)

func TestInformerWithoutRangesSyncsWithoutARequest(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
	h.put("a", 10)
	if !cache.WaitFor(h.ctx, "sync", h.informer.HasSyncedChecker()) {
		t.Fatal("an informer without ranges does not sync")
	}
	h.settled(nil)
	if lists, _, watches := h.requests(); lists+watches > 0 {
		t.Errorf("without ranges there were %d lists and %d watches", lists, watches)
	}
	if held := h.source.Held(); !held.Empty() {
		t.Errorf("held: %s", held)
	}
}

func TestRangesSetBeforeTheStartAreInTheFirstList(t *testing.T) {
	for _, old := range []bool{false, true} {
		t.Run(fmt.Sprintf("old=%t", old), func(t *testing.T) { testRangesSetBeforeTheStart(t, old) })
	}
}

func testRangesSetBeforeTheStart(t *testing.T, old bool) {
	server := newFakeServer(sharding.HashKeyPath)
	server.old = old
	for i := range 20 {
		server.write(newPod(sharding.HashKeyPath, fmt.Sprintf("pod-%d", i), i*5), false)
	}
	source, err := NewSource(Config{Field: sharding.HashKeyPath, ListWatch: server, Object: &v1.Pod{}})
	if err != nil {
		t.Fatal(err)
	}
	source.SetRanges(percents(0, 50))
	informer := source.NewInformer(cache.SharedIndexInformerOptions{})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	go informer.RunWithContext(ctx)
	if !cache.WaitFor(ctx, "sync", informer.HasSyncedChecker()) {
		t.Fatal("not synced")
	}
	if got := len(informer.GetStore().ListKeys()); got != 10 {
		t.Errorf("%d pods when synced, want 10", got)
	}
	server.write(newPod(sharding.HashKeyPath, "more", 0), false)
	if err := source.WaitFor(ctx, percents(0, 50)); err != nil {
		t.Fatal(err)
	}
	if got := len(informer.GetStore().ListKeys()); got != 11 {
		t.Errorf("%d pods after another, want 11", got)
	}
}

// Nothing of the interrupted list may be left.
func TestInterruptedFirstListStartsOver(t *testing.T) {
	server := newFakeServer(sharding.HashKeyPath)
	server.streams = true
	for i := range 30 {
		server.write(newPod(sharding.HashKeyPath, fmt.Sprintf("pod-%02d", i), i), false)
	}
	server.setOnPage(func(_ context.Context, page int) {
		if page == 1 {
			server.setOnPage(nil)
			for i := range 15 {
				server.write(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%02d", 2*i)}}, true)
			}
			server.cutWatches()
		}
	})
	source, err := NewSource(Config{Field: sharding.HashKeyPath, ListWatch: server, Object: &v1.Pod{}})
	if err != nil {
		t.Fatal(err)
	}
	source.SetRanges(percents(0, 100))
	informer := source.NewInformer(cache.SharedIndexInformerOptions{})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	go informer.RunWithContext(ctx)
	if err := source.WaitFor(ctx, percents(0, 100)); err != nil {
		t.Fatal(err)
	}
	if n := len(informer.GetStore().List()); n != 15 {
		t.Errorf("the store has %d objects, want 15", n)
	}
}
