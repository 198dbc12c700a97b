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

	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher/store"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// indexName returns the name in metrics of the index by path: the field that it orders
// by.
func indexName(path sharding.KeyPath) string {
	return strings.TrimPrefix(strings.TrimPrefix(path.String(), "object."), "metadata.")
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

// keepHashKeys makes the order that a request for a range is answered from. A request for one
// namespace or one name does not wait for that: it is answered by going through these.
func (w *watchCache) keepHashKeys(ctx context.Context, pred storage.SelectionPredicate, selector sharding.HashKeySelector) {
	if request.NamespaceValue(ctx) != "" {
		return
	}
	if pred.Field != nil {
		for _, field := range []string{"metadata.namespace", "metadata.name"} {
			if _, one := pred.Field.RequiresExactMatch(field); one {
				return
			}
		}
	}
	w.storage.KeepHashKeys(selector.Path())
}

// rangeContextKey is the key of the range that a list is for, in its context. Three functions of
// upstream's lie between where the request is read (withRange) and where the snapshot is taken
// (latestRangeLocked, rangeOf), and none of them has the request. An argument for all of them
// would be a patch to each of their callers, too.
type rangeContextKey struct{}

// withRange adds the range of hash keys that a list asks for to its context, if an index can
// answer it.
func (w *watchCache) withRange(ctx context.Context, key string, opts storage.ListOptions) context.Context {
	selector := w.indexedHashKeys(opts.Predicate)
	if selector == nil {
		return ctx
	}
	w.keepHashKeys(ctx, opts.Predicate, selector)
	return context.WithValue(ctx, rangeContextKey{}, &store.RangeQuery{
		Selector: selector,
		Prefix:   key,
		Limit:    computeListLimit(opts),
		Matches: func(elem *store.Element) bool {
			return opts.Predicate.MatchesObjectAttributes(elem.Labels, elem.Fields)
		},
	})
}

// latestRangeLocked returns the part of the latest snapshot that is in the range of ctx, and the
// name of the index used. It returns false if there is no range, or one of the indexes of
// matchValues has fewer objects.
func (w *watchCache) latestRangeLocked(ctx context.Context, matchValues []storage.MatchValue) (store.Snapshot, string, bool) {
	query, ok := ctx.Value(rangeContextKey{}).(*store.RangeQuery)
	if !ok {
		return nil, "", false
	}
	snapshot, ok := w.storage.LatestRangeLocked(*query, matchValues...)
	return snapshot, indexName(query.Selector.Path()), ok
}

// rangeOf returns the part of an older snapshot that is in the range of ctx, and the name of the
// index used. Without a range it returns snapshot.
func rangeOf(ctx context.Context, snapshot store.Snapshot) (store.Snapshot, string) {
	if query, ok := ctx.Value(rangeContextKey{}).(*store.RangeQuery); ok {
		if part, ok := store.RangeOf(snapshot, *query); ok {
			return part, indexName(query.Selector.Path())
		}
	}
	return snapshot, ""
}

// newListResp returns the answer to a list of a snapshot.
func newListResp(snapshot store.Snapshot, items []interface{}, resourceVersion uint64) listResp {
	return listResp{Items: items, ResourceVersion: resourceVersion, exact: store.IsRange(snapshot)}
}

// allMatch says whether all items are known to match pred.
func (r listResp) allMatch(pred storage.SelectionPredicate) bool {
	pred.ShardSelector = nil
	return r.exact && pred.Empty()
}

// hashKeysOfWatch returns the range of hash keys of a watch, or nil if there is none, or no index
// that can answer it. It makes the order that the initial events are read from.
func (w *watchCache) hashKeysOfWatch(ctx context.Context, resourceVersion uint64, opts storage.ListOptions) sharding.HashKeySelector {
	selector := w.indexedHashKeys(opts.Predicate)
	if selector != nil && wantsInitialEvents(resourceVersion, opts) {
		w.keepHashKeys(ctx, opts.Predicate, selector)
	}
	return selector
}

// wantsInitialEvents says whether a watch from resourceVersion begins with the present objects.
func wantsInitialEvents(resourceVersion uint64, opts storage.ListOptions) bool {
	if opts.SendInitialEvents != nil {
		return *opts.SendInitialEvents
	}
	return resourceVersion == 0
}

// hashKeyIntervalLocked returns the initial events of a watch that selects by hash key:
// those of the objects in its range whose keys in storage begin with key. It returns false if the
// watch wants none, or if there is no index.
func (w *watchCache) hashKeyIntervalLocked(resourceVersion uint64, key string, matchesSingle bool, opts storage.ListOptions) (*watchCacheInterval, bool) {
	selector := w.indexedHashKeys(opts.Predicate)
	if selector == nil || matchesSingle || !wantsInitialEvents(resourceVersion, opts) {
		return nil, false
	}
	snapshot, ok := w.storage.LatestRangeLocked(store.RangeQuery{Selector: selector, Prefix: key})
	if !ok {
		return nil, false
	}
	return newCacheIntervalFromLazySnapshot(w.resourceVersion, snapshot), true
}
