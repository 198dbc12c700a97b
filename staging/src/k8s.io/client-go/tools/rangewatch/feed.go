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
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// feed is the ListerWatcher of the informer's reflector. A reflector runs one list or one watch at
// a time, and each passes its state, delivered, on to the next.
type feed struct {
	*Source
	delivered delivered
	// stream is the current watch, or the last one if it has ended.
	stream *stream
}

var (
	_ cache.ListerWatcher            = &feed{}
	_ cache.ListerWatcherWithContext = &feed{}
	_ cache.RelistBackoff            = &feed{}
)

// delivered is what the reflector has been given so far, from where the next list or watch goes on.
// A reflector passes everything that it receives on to the store, in the same order.
type delivered struct {
	// ranges are followed by a watch that has reached revision.
	ranges   hashkey.Ranges
	revision uint64
	// past lists ranges that were delivered as of later revisions. What the watch brings for them
	// up to those is a repetition.
	past []part
	// pending is the part of ranges that was listed as of a later revision. It is complete once the
	// watch has reached pending.revision.
	pending part
	// answered is the latest question as of which everything in ranges but pending is complete.
	answered uint64
	// known has the objects that are in the store once it has processed everything: those in
	// ranges, and those that a growth in progress has delivered.
	known map[objectID]entry
	// last is the resource version that the store has then.
	last uint64
	// unconfirmed is set while the store may not yet have processed everything.
	unconfirmed bool
}

// entry is what is kept of an object while the store has it.
type entry struct {
	revision uint64
	key      int64
	// seen is the number of the last list beside a watch that contained the object, or 0.
	seen uint64
}

func newFeed(source *Source) *feed {
	return &feed{Source: source, delivered: delivered{revision: firstRevision, known: map[objectID]entry{}}}
}

// IsWatchListSemanticsUnSupported keeps the reflector from requesting the initial list as a stream
// of events.
func (f *feed) IsWatchListSemanticsUnSupported() bool { return true }

// RelistBackoff implements cache.RelistBackoff. It begins far below the reflector's default: a
// relist mostly follows on expired events, not on a failure, and need not wait.
func (f *feed) RelistBackoff() wait.Backoff {
	return wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 12, Cap: 30 * time.Second}
}

// List implements cache.ListerWatcher.
func (f *feed) List(options metav1.ListOptions) (runtime.Object, error) {
	return f.ListWithContext(context.Background(), options)
}

// Watch implements cache.ListerWatcher.
func (f *feed) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return f.WatchWithContext(context.Background(), options)
}

// ListWithContext returns a consistent list of the wanted ranges, whatever the options. The
// informer replaces the store's content with it in one step, and serves the old content until then.
func (f *feed) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	f.endStream()
	f.delivered = delivered{last: f.delivered.last} // the list needs nothing else, and replaces it
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

// WatchWithContext starts the reflector's watch where the last list or watch ended, which is what
// the options ask for.
func (f *feed) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if options.SendInitialEvents != nil {
		return nil, errors.New("listing as a stream of events is not supported")
	}
	f.endStream()
	f.stream = newStream(ctx, f.Source, &f.delivered)
	return f.stream, nil
}

// endStream ends the last watch, and waits until it no longer touches delivered.
func (f *feed) endStream() {
	if f.stream != nil {
		f.stream.Stop()
		<-f.stream.done
	}
}

// errSuperseded says that the wanted ranges changed while they were listed.
var errSuperseded = errors.New("the wanted ranges changed during the list")

// listAll lists ranges for the reflector, and fails with errSuperseded if they are no longer
// wanted. Objects that have not changed are the store's own, so a relist needs memory for those
// that have.
func (f *feed) listAll(ctx context.Context, ranges hashkey.Ranges) (runtime.Object, delivered, error) {
	next := delivered{ranges: ranges, revision: max(f.delivered.last, firstRevision), answered: f.ask(), known: map[objectID]entry{}, unconfirmed: true}
	objects := map[objectID]*prepared{}
	if !ranges.Empty() {
		ctx, cancel := context.WithCancelCause(ctx)
		superseding := make(chan struct{})
		defer func() {
			cancel(nil)
			<-superseding // else it could take a token from wake that is meant for the stream
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
		revision, err := f.list(ctx, ranges, func(obj runtime.Object, ended bool) error {
			object, err := f.identify(obj)
			if err != nil {
				return err
			}
			if ended || !matches(object.key, ranges) {
				if !ended {
					f.warnUnselected()
				}
				delete(next.known, object.id)
				delete(objects, object.id)
				return nil
			}
			next.known[object.id] = entry{revision: object.revision, key: object.key}
			objects[object.id], err = f.prepare(object.id, obj)
			return err
		})
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return nil, delivered{}, err
		}
		next.revision = revision
	}
	next.last = next.revision
	result := &internalversion.List{Items: make([]runtime.Object, 0, len(objects))}
	for _, object := range objects {
		result.Items = append(result.Items, object)
	}
	result.ResourceVersion = strconv.FormatUint(next.revision, 10)
	return result, next, nil
}
