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
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

// A watch of a range that asks for its progress gets a bookmark at once, after the events
// before it, even if nothing else happens in its collection. The bookmark is marked, so it
// is not taken for one that says less.
func TestWatchTellsProgress(t *testing.T) {
	s := startKeyServer(t)
	// Half of the minute after which every watch gets a bookmark.
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	secrets, configMaps := s.client.CoreV1().Secrets(s.namespace), s.client.CoreV1().ConfigMaps(s.namespace)
	list, err := secrets.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret, err := secrets.Create(ctx, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "between"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		other, err := configMaps.Create(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "elsewhere-"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		w, err := secrets.Watch(ctx, metav1.ListOptions{
			ShardSelector:        hashkey.All().Selector(sharding.HashKeyPath),
			ResourceVersion:      list.ResourceVersion,
			ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
			SendInitialEvents:    ptr.To(false),
			AllowWatchBookmarks:  true,
		})
		if err != nil {
			t.Fatal(err)
		}
		var events []watch.Event
		for len(events) < 2 {
			select {
			case event, ok := <-w.ResultChan():
				if !ok {
					t.Fatalf("the watch ended after %v", events)
				}
				events = append(events, event)
			case <-ctx.Done():
				t.Fatalf("no event after %v", events)
			}
		}
		w.Stop()
		if events[0].Type != watch.Added || events[0].Object.(*v1.Secret).UID != secret.UID {
			t.Errorf("first %v, want the secret that was added between", events[0])
		}
		told, err := meta.Accessor(events[1].Object)
		if err != nil {
			t.Fatal(err)
		}
		if events[1].Type != watch.Bookmark || newer(other.ResourceVersion, told.GetResourceVersion()) {
			t.Errorf("then %s of revision %s, want a bookmark of %s or later", events[1].Type, told.GetResourceVersion(), other.ResourceVersion)
		}
		if told.GetAnnotations()[sharding.ProgressAnnotation] != "true" {
			t.Errorf("the bookmark is not marked as the answer: %v", told.GetAnnotations())
		}
		t.Logf("bookmark after %v", time.Since(start))
	}
}
