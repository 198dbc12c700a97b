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
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher/store"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// indexName returns the name in metrics of the index by path: the field that it orders
// by.
func indexName(path sharding.KeyPath) string {
	return strings.TrimPrefix(path.String(), "object.metadata.")
}

// indexedHashKeys returns the selector of hash keys in pred. It returns nil if there is
// none, or no index that can answer it.
func (w *watchCache) indexedHashKeys(pred storage.SelectionPredicate) sharding.HashKeySelector {
	selector, ok := pred.ShardSelector.(sharding.HashKeySelector)
	if !ok || !w.storage.IndexesHashKeys() || !utilfeature.DefaultFeatureGate.Enabled(features.ShardedListAndWatch) {
		return nil
	}
	return selector
}

type hashKeysContextKey struct{}

// withHashKeys passes the selector of a list to the place where its snapshot is taken.
func withHashKeys(ctx context.Context, selector sharding.HashKeySelector) context.Context {
	if selector == nil {
		return ctx
	}
	return context.WithValue(ctx, hashKeysContextKey{}, selector)
}

func hashKeysFrom(ctx context.Context) sharding.HashKeySelector {
	selector, _ := ctx.Value(hashKeysContextKey{}).(sharding.HashKeySelector)
	return selector
}

// latestHashKeyRangeLocked returns the part of the latest snapshot that the list of ctx
// selects by hash key, and the name of the index used. It returns false if there is no
// such index.
func (w *watchCache) latestHashKeyRangeLocked(ctx context.Context) (store.Snapshot, string, bool) {
	selector := hashKeysFrom(ctx)
	if selector == nil {
		return nil, "", false
	}
	snapshot, ok := w.storage.LatestRangeLocked(selector)
	return snapshot, indexName(selector.Path()), ok
}

// listHashKeyRange lists the part of snapshot that the list of ctx selects by hash key.
// It returns false if there is no index of snapshot for that.
func listHashKeyRange(ctx context.Context, snapshot store.Snapshot, key, continueKey string) (items []interface{}, index string, ok bool, err error) {
	selector := hashKeysFrom(ctx)
	if selector == nil {
		return nil, "", false, nil
	}
	part, ok := store.RangeOf(snapshot, selector)
	if !ok {
		return nil, "", false, nil
	}
	items, err = part.OrderedListPrefix(key, continueKey)
	return items, indexName(selector.Path()), true, err
}

// withoutIndexedSelector returns pred without its shard selector if index has applied it:
// the items need not be matched again. Without the selector nothing sets the shardInfo of
// listObj later, so this sets it.
func withoutIndexedSelector(pred storage.SelectionPredicate, index string, listObj runtime.Object) storage.SelectionPredicate {
	selector, ok := pred.ShardSelector.(sharding.HashKeySelector)
	if ok && index == indexName(selector.Path()) {
		pred.SetShardInfoOnList(listObj)
		pred.ShardSelector = nil
	}
	return pred
}

// hashKeyIntervalLocked returns the initial events of a watch that selects by hash key:
// those of the objects in its range. It returns false if the watch wants none, or if
// there is no index.
func (w *watchCache) hashKeyIntervalLocked(resourceVersion uint64, matchesSingle bool, opts storage.ListOptions) (*watchCacheInterval, bool) {
	initial := resourceVersion == 0
	if opts.SendInitialEvents != nil {
		initial = *opts.SendInitialEvents
	}
	selector := w.indexedHashKeys(opts.Predicate)
	if selector == nil || !initial || matchesSingle {
		return nil, false
	}
	snapshot, ok := w.storage.LatestRangeLocked(selector)
	if !ok {
		return nil, false
	}
	return newCacheIntervalFromLazySnapshot(w.resourceVersion, snapshot), true
}
