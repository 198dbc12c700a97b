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
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/client-go/tools/cache"
)

// A change back cancels the growth.
func TestNewRangesSupersedeAGrowthBeingListed(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
	for i := range 100 {
		h.put(fmt.Sprintf("pod-%02d", i), i)
	}
	h.source.SetRanges(percents(0, 30))
	h.settled(percents(0, 30))
	for _, hangAt := range []int{0, 1} {
		for _, next := range []hashkey.Ranges{percents(0, 30), percents(10, 30), percents(20, 40), percents(0, 90), nil} {
			h.source.SetRanges(percents(0, 30))
			h.settled(percents(0, 30))
			hanging := make(chan struct{})
			var once sync.Once
			h.server.setOnPage(func(ctx context.Context, page int) {
				if page == hangAt {
					once.Do(func() {
						close(hanging)
						<-ctx.Done()
					})
				}
			})
			h.source.SetRanges(percents(0, 60))
			<-hanging
			h.change("pod-00", 0)
			h.change("pod-35", 35)
			h.delete("pod-31")
			h.put("pod-31", 31)
			if held := h.source.Held(); !held.Equal(percents(0, 30)) {
				t.Errorf("held while the growth is listed: %s", held)
			}
			h.source.SetRanges(next)
			h.settled(next)
		}
	}
}

func TestSlowWatchDoesNotDelayItsReplacement(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
	for i := range 100 {
		h.put(fmt.Sprintf("pod-%02d", i), i)
	}
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))

	hang := func(hanging, given chan struct{}) cache.ListerWatcherWithContext {
		var once sync.Once
		return cache.ToListerWatcherWithContext(interceptedServer{fakeServer: h.server, opening: func(ctx context.Context) {
			once.Do(func() {
				close(hanging)
				<-ctx.Done()
				close(given)
			})
		}})
	}

	// The watch of a growth, replaced by that of a smaller growth and by a change back.
	for _, r := range []hashkey.Ranges{percents(0, 70), percents(0, 60)} {
		hanging, given := make(chan struct{}), make(chan struct{})
		h.source.listWatch = hang(hanging, given)
		h.source.SetRanges(percents(0, 80))
		<-hanging
		h.source.SetRanges(r)
		<-given
		h.settled(r)
	}

	// The watch of what is held, which was cut, replaced by that of a growth.
	hanging, given := make(chan struct{}), make(chan struct{})
	h.source.listWatch = hang(hanging, given)
	h.server.setOnPage(func(_ context.Context, page int) {
		if page == 1 {
			h.server.setOnPage(nil)
			h.server.cutWatches()
			<-hanging
			h.change("pod-00", 0)
			h.change("pod-75", 75)
		}
	})
	h.source.SetRanges(percents(0, 90))
	<-given
	h.settled(percents(0, 90))
}

// The first list is the reflector's own.
func TestNewRangesSupersedeTheFirstList(t *testing.T) {
	server := newFakeServer(sharding.HashKeyPath)
	hanging := make(chan struct{})
	server.setOnPage(func(ctx context.Context, _ int) {
		server.setOnPage(nil)
		close(hanging)
		<-ctx.Done()
	})
	source, err := NewSource(Config{Field: sharding.HashKeyPath, ListWatch: server, Object: &v1.Pod{}})
	if err != nil {
		t.Fatal(err)
	}
	server.write(newPod(sharding.HashKeyPath, "a", 10), false)
	server.write(newPod(sharding.HashKeyPath, "b", 60), false)
	source.SetRanges(percents(0, 50))
	informer := source.NewInformer(cache.SharedIndexInformerOptions{})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	go informer.RunWithContext(ctx)
	<-hanging
	source.SetRanges(percents(50, 100))
	if err := source.WaitFor(ctx, percents(50, 100)); err != nil {
		t.Fatal(err)
	}
	if keys := informer.GetStore().ListKeys(); fmt.Sprint(keys) != "[b]" {
		t.Errorf("the store has %v", keys)
	}
}
