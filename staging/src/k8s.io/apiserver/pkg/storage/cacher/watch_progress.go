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
)

// asksForProgress says whether a watch wants to be told how far it is at its start:
// one of a range of hash keys from a resource version, with bookmarks and with
// sendInitialEvents=false. It is sent a bookmark that is as of the moment at which the
// request came, or later, as soon as it has been sent everything up to there. Where
// etcd cannot be asked for progress there is none but those of every watch.
func (c *Cacher) asksForProgress(opts storage.ListOptions) bool {
	return opts.SendInitialEvents != nil && !*opts.SendInitialEvents &&
		opts.ResourceVersion != "" && opts.ResourceVersion != "0" &&
		opts.Predicate.AllowWatchBookmarks &&
		c.watchCache.indexedHashKeys(opts.Predicate) != nil &&
		delegator.ConsistentReadSupported()
}

// waitUntilCurrent waits until the cache is as of etcd's present revision.
func (c *Cacher) waitUntilCurrent(ctx context.Context) error {
	revision, err := c.storage.GetCurrentResourceVersion(ctx)
	if err != nil {
		return err
	}
	c.watchCache.RLock()
	defer c.watchCache.RUnlock()
	return c.watchCache.waitUntilFreshLocked(ctx, true, revision)
}
