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
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// feed is the list-watch that the informer's reflector works with. A reflector has
// one list or one watch at a time, and what feeds it hands on its state from one
// to the next.
type feed struct {
	*Source
	delivered delivered
	// stream feeds the present watch, or did the last one.
	stream *stream
}

var (
	_ cache.ListerWatcher            = &feed{}
	_ cache.ListerWatcherWithContext = &feed{}
)

// delivered is what the reflector has been given so far. Whoever feeds it next
// starts from here: everything that a reflector has received it passes on to the
// store, in that order.
type delivered struct {
	// ranges are delivered as of revision, and followed.
	ranges   hashkey.Ranges
	revision uint64
	// proofs tell of parts that are delivered as of later revisions.
	proofs []*proof
	// known are the objects that the store has once it has processed everything:
	// those in ranges, and beyond them those of a growth on its way.
	known map[objectID]entry
	// last is the resource version that the store then has.
	last uint64
	// unconfirmed is set while the store may not yet have processed everything.
	unconfirmed bool
	// lists counts the lists that ran beside a watch.
	lists uint64
}

// entry is what is kept of an object for as long as the store has it.
type entry struct {
	revision uint64
	key      int64
	// seen is the number of the last list that had the object.
	seen uint64
}

func newFeed(source *Source) *feed {
	return &feed{Source: source, delivered: delivered{revision: firstRevision, known: map[objectID]entry{}}}
}

// IsWatchListSemanticsUnSupported keeps the reflector from asking for the initial
// list as a stream of events.
func (f *feed) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.ListerWatcher.
func (f *feed) List(options metav1.ListOptions) (runtime.Object, error) {
	return f.ListWithContext(context.Background(), options)
}

// Watch implements cache.ListerWatcher.
func (f *feed) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return f.WatchWithContext(context.Background(), options)
}

// ListWithContext gives the reflector everything in the wanted ranges anew, by a
// consistent list and whatever the options. The informer replaces the store's
// content with it in one step.
func (f *feed) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	f.endStream()
	for {
		ranges := f.wanted()
		result, next, err := f.listAll(ctx, ranges)
		if errors.Is(err, errSuperseded) {
			continue
		}
		if err != nil {
			return nil, err
		}
		f.delivered = next
		return result, nil
	}
}

// WatchWithContext starts the reflector's watch where the last list or watch ended,
// which is all that the options could say.
func (f *feed) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if options.SendInitialEvents != nil {
		return nil, errors.New("a list as a stream of events is not supported")
	}
	f.endStream()
	f.stream = newStream(ctx, f.Source, &f.delivered)
	return f.stream, nil
}

// endStream waits until the last watch no longer touches what is delivered.
func (f *feed) endStream() {
	if f.stream != nil {
		f.stream.Stop()
		<-f.stream.done
	}
}

// errSuperseded says that the wanted ranges changed while they were listed.
var errSuperseded = errors.New("other ranges are wanted now")

// listAll lists ranges for the reflector, until they are no longer wanted.
func (f *feed) listAll(ctx context.Context, ranges hashkey.Ranges) (runtime.Object, delivered, error) {
	next := delivered{ranges: ranges, revision: firstRevision, known: map[objectID]entry{}, unconfirmed: true}
	result := &internalversion.List{}
	if !ranges.Empty() {
		ctx, cancel := context.WithCancelCause(ctx)
		superseding := make(chan struct{})
		defer func() {
			cancel(nil)
			<-superseding // it must not take a wake-up that is meant for the stream
		}()
		go func() {
			defer close(superseding)
			for {
				select {
				case <-ctx.Done():
					return
				case <-f.wake:
					if !f.wanted().Equal(ranges) {
						cancel(errSuperseded)
					}
				}
			}
		}()
		err := f.list(ctx, ranges, func(p page) error {
			next.revision = p.revision
			for _, obj := range p.objects {
				object, err := f.identify(obj)
				if err != nil {
					return err
				}
				if matches(object.key, ranges) {
					next.known[object.id] = entry{revision: object.revision, key: object.key}
					result.Items = append(result.Items, obj)
				}
			}
			return nil
		})
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return nil, delivered{}, err
		}
	}
	next.last = next.revision
	result.ResourceVersion = strconv.FormatUint(next.revision, 10)
	return result, next, nil
}

// page is a part of a list.
type page struct {
	objects []runtime.Object
	// revision is the one as of which the whole list is, the same in each part.
	revision uint64
	// end is set in the last part.
	end bool
}

// pageSize is the number of objects in a page: what client-go's pager asks for.
const pageSize = 500

// list calls each for every page of a consistent list of ranges. A server that
// does not know the selector gives objects of other ranges too.
func (s *Source) list(ctx context.Context, ranges hashkey.Ranges, each func(page) error) error {
	options := metav1.ListOptions{ShardSelector: ranges.Selector(string(s.field)), Limit: pageSize}
	var p page
	for !p.end {
		list, err := s.listWatch.ListWithContext(ctx, options)
		if err != nil {
			return err
		}
		accessor, err := meta.ListAccessor(list)
		if err != nil {
			return err
		}
		if options.Continue == "" {
			if p.revision, err = parseRevision(accessor.GetResourceVersion()); err != nil {
				return err
			}
			if !isSharded(list) {
				s.warnOnce.Do(func() {
					s.logger.Info("Warning: the server does not know the selector of hash keys and sends all objects; they are filtered here. Upgrade it, or turn on its features ShardedListAndWatch and ControllerRing")
				})
			}
		}
		// Each object with its own allocation: one that is kept must not keep the page.
		if p.objects, err = meta.ExtractListWithAlloc(list); err != nil {
			return err
		}
		options.Continue = accessor.GetContinue()
		p.end = options.Continue == ""
		if err := each(p); err != nil {
			return err
		}
	}
	return nil
}

// isSharded says whether the server applied the selector, which it tells in lists
// alone.
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
