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
	"errors"
	"fmt"
	"math/rand"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/rangewatch/follower"
)

// list makes a consistent list of what selector selects, calls each for every object, one by one,
// and returns the revision of the list. If an object changes meanwhile, each may be called for it
// again, with ended set if it was deleted. A server that does not know the selector sends objects
// of other ranges too.
//
// The list is a stream of events where the server supports that, so no more than one object is in
// memory beyond those that each keeps. Otherwise it is a list in pages.
func (s *Source) list(ctx context.Context, selector string, each func(obj runtime.Object, ended bool) error) (uint64, error) {
	if s.streams {
		revision, err := s.listStream(ctx, selector, each)
		if !errors.Is(err, errNoStreams) {
			return revision, err
		}
		s.logger.V(2).Info("Listing in pages, because the server does not stream lists", "err", err)
	}
	return s.listPages(ctx, selector, each)
}

// errNoStreams says that a server does not stream lists.
var errNoStreams = errors.New("the server does not stream lists")

func (s *Source) listStream(ctx context.Context, selector string, each func(obj runtime.Object, ended bool) error) (uint64, error) {
	yes, timeout := true, watchTimeout()
	w, err := s.listWatch.WatchWithContext(ctx, metav1.ListOptions{
		ShardSelector:        selector,
		SendInitialEvents:    &yes,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		AllowWatchBookmarks:  true,
		TimeoutSeconds:       &timeout,
	})
	if isRefused(err) {
		return 0, fmt.Errorf("%w: %w", errNoStreams, err)
	}
	if err != nil {
		return 0, err
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case event, ok := <-w.ResultChan():
			switch {
			case !ok:
				return 0, errors.New("the stream of a list ended before the list was complete")
			case event.Type == watch.Error:
				return 0, apierrors.FromObject(event.Object)
			case event.Type == watch.Bookmark:
				accessor, err := meta.Accessor(event.Object)
				if err != nil {
					return 0, err
				}
				if accessor.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
					return parseRevision(accessor.GetResourceVersion())
				}
			default:
				if err := each(event.Object, event.Type == watch.Deleted); err != nil {
					return 0, err
				}
			}
		}
	}
}

const defaultPageSize = 500

func (s *Source) listPages(ctx context.Context, selector string, each func(obj runtime.Object, ended bool) error) (uint64, error) {
	options := metav1.ListOptions{ShardSelector: selector, Limit: s.pageSize}
	var revision uint64
	for {
		list, err := s.listWatch.ListWithContext(ctx, options)
		if err != nil {
			return 0, err
		}
		accessor, err := meta.ListAccessor(list)
		if err != nil {
			return 0, err
		}
		if options.Continue == "" {
			if revision, err = parseRevision(accessor.GetResourceVersion()); err != nil {
				return 0, err
			}
			if !isSharded(list) {
				s.warnUnselected()
			}
		}
		// Each object gets its own allocation, because one that is kept must not keep the page.
		objects, err := meta.ExtractListWithAlloc(list)
		if err != nil {
			return 0, err
		}
		for _, obj := range objects {
			if err := each(obj, false); err != nil {
				return 0, err
			}
		}
		if options.Continue = accessor.GetContinue(); options.Continue == "" {
			return revision, nil
		}
	}
}

// warnIfUnselected warns if the server has sent an object although it was not selected.
func (s *Source) warnIfUnselected(object follower.Object, selected hashkey.Ranges) {
	if !object.Key.In(selected) {
		s.warnUnselected()
	}
}

// warnUnselected warns once that the server ignores the selector. A list shows that by its missing
// shardInfo, a stream or a watch by an object of another range.
func (s *Source) warnUnselected() {
	s.warnOnce.Do(func() {
		s.logger.Info("Warning: the server does not know the selector for hash keys and sends all objects, which are filtered here. Upgrade it, or turn on its feature gates ShardedListAndWatch and ControllerRing")
	})
}

// watchTimeout returns how many seconds a watch may last: 300 to 599. As in reflectors, the limit
// replaces a watch that died silently, and the spread keeps watches from ending all at once.
func watchTimeout() int64 { return 300 + rand.Int63n(300) }

// isSharded reports whether the server applied the selector to a list. Only lists say that.
func isSharded(list runtime.Object) bool {
	switch list := list.(type) {
	case metav1.ShardedListInterface:
		return list.GetShardInfo() != nil
	case *unstructured.UnstructuredList:
		_, found, err := unstructured.NestedMap(list.Object, "metadata", "shardInfo")
		return found && err == nil
	}
	return false
}
