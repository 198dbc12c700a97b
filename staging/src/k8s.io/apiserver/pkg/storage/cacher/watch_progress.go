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

	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher/delegator"
	"k8s.io/utils/ptr"
)

// asksForProgress says whether a watch asks at its start how far it is: a watch of a
// range of hash keys from a resource version, with bookmarks and with
// sendInitialEvents=false. The answer is a bookmark as of the moment of the request or
// later, sent as soon as every event up to there has been sent. If etcd cannot be asked
// for progress, the watch gets only the bookmarks that every watch gets.
func (c *Cacher) asksForProgress(opts storage.ListOptions) bool {
	return opts.SendInitialEvents != nil && !*opts.SendInitialEvents &&
		opts.ResourceVersion != "" && opts.ResourceVersion != "0" &&
		opts.Predicate.AllowWatchBookmarks &&
		c.watchCache.indexedHashKeys(opts.Predicate) != nil &&
		delegator.ConsistentReadSupported()
}

// withProgressBookmark returns opts as setInitialEventsEndBookmarkIfRequested needs them
// to send the bookmark of a watch that asksForProgress: the one that ends initial events.
func (c *Cacher) withProgressBookmark(opts storage.ListOptions) storage.ListOptions {
	if c.asksForProgress(opts) {
		opts.SendInitialEvents = ptr.To(true)
	}
	return opts
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
