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

	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher/store"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// The names of the two indexes in metrics, after the fields that they order by.
const (
	hashKeyIndex           = "hashKey"
	controllerHashKeyIndex = "controllerRef.hashKey"
)

// isHashKeyIndex says whether a list from the index of that name holds just what
// its selector of hash keys selects.
func isHashKeyIndex(index string) bool {
	return index == hashKeyIndex || index == controllerHashKeyIndex
}

func indexOf(selector sharding.HashKeySelector) string {
	if selector.FieldPath() == sharding.ControllerHashKeyPath {
		return controllerHashKeyIndex
	}
	return hashKeyIndex
}

// indexedHashKeys returns the selector of hash keys in pred, or nil if there is
// none or no index to serve it.
func (w *watchCache) indexedHashKeys(pred storage.SelectionPredicate) sharding.HashKeySelector {
	selector, ok := pred.ShardSelector.(sharding.HashKeySelector)
	if !ok || !w.storage.IndexesHashKeys() || !utilfeature.DefaultFeatureGate.Enabled(features.ShardedListAndWatch) {
		return nil
	}
	return selector
}

type hashKeysContextKey struct{}

// withHashKeys passes the selector of a list on to where its snapshot is taken.
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

// latestHashKeyRangeLocked returns the part of the latest snapshot that the list of
// ctx selects by hash key, and the name of the index that knows it.
func (w *watchCache) latestHashKeyRangeLocked(ctx context.Context) (store.Snapshot, string, bool) {
	selector := hashKeysFrom(ctx)
	if selector == nil {
		return nil, "", false
	}
	snapshot, ok := w.storage.LatestRangeLocked(selector)
	return snapshot, indexOf(selector), ok
}

// hashKeyRange returns the part of snapshot that the list of ctx selects by hash
// key, and the name of the index; or snapshot itself, where there is no index.
func hashKeyRange(ctx context.Context, snapshot store.Snapshot) (store.Snapshot, string) {
	selector := hashKeysFrom(ctx)
	if selector == nil {
		return snapshot, ""
	}
	if part, ok := store.RangeOf(snapshot, selector); ok {
		return part, indexOf(selector)
	}
	return snapshot, ""
}

// hashKeyIntervalLocked returns the initial events of a watch that selects by hash
// key, if it wants any: those of the range's members.
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
