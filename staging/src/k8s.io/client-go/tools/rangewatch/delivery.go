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
	"reflect"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/rangewatch/follower"
)

// send sends an event. Whoever receives it owns the object from then on.
func (d *driver) send(ctx context.Context, t watch.EventType, obj runtime.Object) error {
	if d.lag.is && t != watch.Bookmark {
		d.lag.told = max(d.lag.told, revisionOf(obj))
	}
	select {
	case d.out <- watch.Event{Type: t, Object: obj}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *driver) bookmark(ctx context.Context, revision uint64) error {
	bookmark := d.object.DeepCopyObject()
	bookmark.(metav1.Object).SetResourceVersion(strconv.FormatUint(revision, 10))
	if err := d.send(ctx, watch.Bookmark, bookmark); err != nil {
		return err
	}
	d.bookmarks++
	return nil
}

// confirm sends a bookmark, and waits until the store has it. The reflector and the informer's
// queue pass events on in order, and with AtomicFIFO so do bookmarks, so the store then has
// everything that was sent before.
//
// Whoever reads a stream without a store has taken the bookmark when it is sent.
func (d *driver) confirm(ctx context.Context, revision uint64) error {
	if err := d.bookmark(ctx, revision); err != nil || d.store == nil {
		return err
	}
	for d.stored.bookmarks.Load() < d.bookmarks {
		d.noteStore(true)
		select {
		case <-d.stored.bookmarked:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	d.noteStore(false)
	d.catchUp()
	return nil
}

// remove sends an object that has left the ranges as deleted, in the state that the store has.
// Without a store there is only its name.
func (d *driver) remove(ctx context.Context, id follower.ID, revision uint64) error {
	if d.store == nil {
		obj := d.object.DeepCopyObject()
		accessor := obj.(metav1.Object)
		accessor.SetNamespace(id.Namespace)
		accessor.SetName(id.Name)
		accessor.SetResourceVersion(strconv.FormatUint(revision, 10))
		return d.send(ctx, watch.Deleted, obj)
	}
	key := cache.ObjectName(id).String()
	stored, exists, err := d.store.GetByKey(key)
	if err != nil || !exists { // it does not if the informer's transform failed on it
		return err
	}
	return d.send(ctx, watch.Deleted, d.departing(key, stored, revision))
}

// departing returns what the reflector takes for the deletion of an object of the store. Where the
// informer's transform has made something of another type, that is a stand-in, which transformed
// turns into a tombstone.
func (s *Source) departing(key string, stored any, revision uint64) runtime.Object {
	if obj, ok := stored.(runtime.Object); ok && s.isExpected(obj) {
		// A copy, because the informer transforms what it gets, and readers have the original.
		obj = obj.DeepCopyObject()
		obj.(metav1.Object).SetResourceVersion(strconv.FormatUint(revision, 10))
		return obj
	}
	standIn := s.object.DeepCopyObject()
	s.departed.Store(standIn, cache.DeletedFinalStateUnknown{Key: key, Obj: stored})
	return standIn
}

// isExpected reports whether the reflector takes obj: whether it is of the type and, if that is
// Unstructured, of the kind of the objects.
func (s *Source) isExpected(obj runtime.Object) bool {
	return reflect.TypeOf(obj) == reflect.TypeOf(s.object) &&
		obj.GetObjectKind().GroupVersionKind() == s.object.GetObjectKind().GroupVersionKind()
}
