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
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// An old server does not know the selector and sends everything.
func TestOldServerIsFilteredByTheClient(t *testing.T) {
	for _, field := range []string{sharding.HashKeyPath, sharding.ControllerHashKeyPath} {
		t.Run(string(field), func(t *testing.T) {
			server := newFakeServer(field)
			server.old = true
			h := newHarnessFor(t, server, cache.Indexers{})
			for i := range 40 {
				h.put(fmt.Sprintf("pod-%02d", i), i*2)
			}
			if field == sharding.ControllerHashKeyPath {
				h.put("orphan", -1)
			}
			for _, r := range []hashkey.Ranges{percents(0, 50), percents(0, 70), percents(10, 40), percents(50, 90)} {
				server.setOnPage(func(context.Context, int) {
					h.change("pod-10", 20)
					h.change("pod-30", 60)
					h.put("brief", 40)
					h.delete("brief")
				})
				h.source.SetRanges(r)
				h.eventually("the change", func() bool { return h.source.Held().Equal(r) })
				server.setOnPage(nil)
				h.settled(r)
			}
			h.record.taken()
			if field == sharding.ControllerHashKeyPath {
				before := h.stored(percents(50, 90))["pod-31"]
				gone := h.change("pod-31", 10)
				h.eventually("the watch", func() bool { return h.stored(percents(50, 90))["pod-31"] == nil })
				h.settled(percents(50, 90))
				h.wantEvents(at("delete", "pod-31", gone))
				if got := h.record.deleted["pod-31"]; got.OwnerReferences[0].UID != before.OwnerReferences[0].UID {
					t.Errorf("left with the new controller %v, last known was %v", got.OwnerReferences, before.OwnerReferences)
				}
				come := h.change("pod-31", 55)
				h.settled(percents(50, 90))
				h.wantEvents(at("add", "pod-31", come))
			}
		})
	}
}

// The watch of an old server brings events of ranges that are still being listed. It ignores
// questions, and its bookmarks come in time.
func TestOldServerWatchLeavesTheGrowthToTheList(t *testing.T) {
	server := newFakeServer(sharding.HashKeyPath)
	server.old, server.streams, server.patient = true, true, true
	h := newHarnessFor(t, server, cache.Indexers{})
	for i := range 40 {
		h.put(fmt.Sprintf("pod-%02d", i), i*2)
	}
	h.source.SetRanges(percents(50, 80))
	h.eventually("the first list", func() bool { return h.source.Held().Equal(percents(50, 80)) })
	h.record.taken()
	server.setOnPage(func(_ context.Context, page int) {
		if page == 0 {
			return
		}
		server.setOnPage(nil)
		h.change("pod-01", 2)
		h.delete("pod-02")
		revision := h.change("pod-39", 78)
		h.eventually("the old watch", func() bool {
			return h.stored(percents(70, 80))["pod-39"].ResourceVersion == strconv.FormatUint(revision, 10)
		})
	})
	h.source.SetRanges(percents(0, 80))
	h.eventually("the growth", func() bool { return h.source.Held().Equal(percents(0, 80)) })
	told := map[string]int{}
	for _, event := range h.record.taken() {
		told[strings.SplitN(event, "@", 2)[0]]++
	}
	for event, n := range map[string]int{"add pod-01": 1, "update pod-01": 1, "delete pod-01": 0, "add pod-02": 1, "delete pod-02": 1} {
		if told[event] != n {
			t.Errorf("%s: told %d times, want %d", event, told[event], n)
		}
	}
}

func TestOldServerWarnsOnce(t *testing.T) {
	server := newFakeServer(sharding.HashKeyPath)
	server.old = true
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	source, err := NewSource(Config{Field: sharding.HashKeyPath, ListWatch: server, Object: &v1.Pod{}, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	informer := source.NewInformer(cache.SharedIndexInformerOptions{})
	ctx, cancel := context.WithTimeout(klog.NewContext(context.Background(), logger), patience)
	defer cancel()
	go informer.RunWithContext(ctx)
	for _, r := range []hashkey.Ranges{percents(0, 50), percents(0, 70), percents(50, 90)} {
		source.SetRanges(r)
		if err := source.WaitFor(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
	if n := strings.Count(log, "does not know the selector"); n != 1 {
		t.Errorf("%d warnings:\n%s", n, log)
	}
}

func TestShardInfoShowsThatTheSelectorWasApplied(t *testing.T) {
	info := &metav1.ShardInfo{Selector: "x"}
	sharded := &unstructured.UnstructuredList{Object: map[string]any{"metadata": map[string]any{"shardInfo": map[string]any{"selector": "x"}}}}
	for _, c := range []struct {
		list runtime.Object
		want bool
	}{
		{&v1.PodList{ListMeta: metav1.ListMeta{ShardInfo: info}}, true},
		{&v1.PodList{}, false},
		{&metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ShardInfo: info}}, true},
		{&metav1.PartialObjectMetadataList{}, false},
		{sharded, true},
		{&unstructured.UnstructuredList{Object: map[string]any{}}, false},
	} {
		if got := isSharded(c.list); got != c.want {
			t.Errorf("%T: %t", c.list, got)
		}
	}
}
