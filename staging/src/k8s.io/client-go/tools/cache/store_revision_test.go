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

package cache

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestStoreRevisionDoesNotGoBack(t *testing.T) {
	at := func(name, rv string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: rv}}
	}
	store := NewStore(MetaNamespaceKeyFunc)
	for _, step := range []struct {
		what string
		do   func() error
		want string
	}{
		{"the first object", func() error { return store.Add(at("a", "90")) }, "90"},
		{"an older object", func() error { return store.Add(at("b", "50")) }, "90"},
		{"a change", func() error { return store.Update(at("a", "100")) }, "100"},
		{"an older change", func() error { return store.Update(at("b", "99")) }, "100"},
		{"the deletion of an older object", func() error { return store.Delete(at("b", "98")) }, "100"},
		{"the deletion of an object", func() error { return store.Delete(at("a", "120")) }, "120"},
		{"an older object last in a transaction", func() error {
			if err := store.(TransactionStore).Transaction(
				Transaction{Type: TransactionTypeAdd, Object: at("c", "130")},
				Transaction{Type: TransactionTypeAdd, Object: at("d", "40")},
			); err != nil {
				return err
			}
			return nil
		}, "130"},
		{"a transaction of older objects", func() error {
			if err := store.(TransactionStore).Transaction(Transaction{Type: TransactionTypeAdd, Object: at("e", "30")}); err != nil {
				return err
			}
			return nil
		}, "130"},
		{"a resource version that is no number", func() error { return store.Add(at("f", "x")) }, "x"},
		{"a replacement", func() error { return store.Replace(nil, "20") }, "20"},
		{"a bookmark", func() error { store.Bookmark("10"); return nil }, "10"},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if got := store.LastStoreSyncResourceVersion(); got != step.want {
			t.Errorf("after %s the store is at %s, want %s", step.what, got, step.want)
		}
	}
}

// Parts of a newer state do not make a store claim that it has that state.
func TestStoreHoldsItsRevisionUntilABookmark(t *testing.T) {
	store := NewStore(MetaNamespaceKeyFunc)
	control := store.(RevisionControl)
	at := func(name, rv string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: rv}}
	}
	bookmarks := 0
	control.OnBookmark(func() { bookmarks++ })
	for _, step := range []struct {
		what string
		do   func() error
		want string
	}{
		{"the first object", func() error { return store.Add(at("a", "90")) }, "90"},
		{"a change that is held", func() error { control.HoldRevision(true); return store.Update(at("a", "100")) }, "90"},
		{"a deletion that is held", func() error { return store.Delete(at("a", "110")) }, "90"},
		{"a transaction that is held", func() error {
			if err := store.(TransactionStore).Transaction(Transaction{Type: TransactionTypeAdd, Object: at("b", "120")}); err != nil {
				return err
			}
			return nil
		}, "90"},
		{"a bookmark", func() error { store.Bookmark("95"); return nil }, "95"},
		{"a replacement", func() error { return store.Replace(nil, "130") }, "130"},
		{"a change that is not held", func() error { control.HoldRevision(false); return store.Add(at("a", "140")) }, "140"},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if got := store.LastStoreSyncResourceVersion(); got != step.want {
			t.Errorf("after %s the store is at %s, want %s", step.what, got, step.want)
		}
	}
	if bookmarks != 1 {
		t.Errorf("%d bookmarks, want 1", bookmarks)
	}
}
