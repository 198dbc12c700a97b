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

package cacher

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/sharding"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher/delegator"
)

// asksForProgress says whether a watch asks at its start how far it is, and can be told.
func (c *Cacher) asksForProgress(opts storage.ListOptions) bool {
	return storage.AsksForProgress(opts) && c.watchCache.indexedHashKeys(opts.Predicate) != nil
}

// refuseUnsupportedQuestion refuses a watch that asks how far it is if etcd cannot be asked, or no
// index tells. That may change at any time, so it is decided once for each watch.
func (c *Cacher) refuseUnsupportedQuestion(opts storage.ListOptions) error {
	switch {
	case !storage.AsksForProgress(opts):
		return nil
	case !c.asksForProgress(opts):
		return storage.NewProgressUnknown("its watch cache has no index of hash keys")
	case !delegator.ConsistentReadSupported():
		return storage.NewProgressUnknown("etcd does not tell it")
	}
	return nil
}

// newProgressBookmark returns the answer to a watch that asksForProgress, or nil if it
// cannot be made.
func (c *Cacher) newProgressBookmark(revision uint64) *watchCacheEvent {
	bookmark := &watchCacheEvent{Type: watch.Bookmark, Object: c.newFunc(), ResourceVersion: revision}
	object, err := meta.Accessor(bookmark.Object)
	if err == nil {
		object.SetAnnotations(map[string]string{sharding.ProgressAnnotation: "true"})
		err = c.versioner.UpdateObject(bookmark.Object, revision)
	}
	if err != nil {
		utilruntime.HandleError(fmt.Errorf("making the bookmark with which a watch of %s tells its progress: %w", c.groupResource, err))
		return nil
	}
	return bookmark
}

// waitUntilCurrent waits until the cache has reached etcd's present revision.
func (c *Cacher) waitUntilCurrent(ctx context.Context) error {
	revision, err := c.storage.GetCurrentResourceVersion(ctx)
	if err != nil {
		return err
	}
	c.watchCache.RLock()
	defer c.watchCache.RUnlock()
	return c.watchCache.waitUntilFreshLocked(ctx, true, revision)
}
