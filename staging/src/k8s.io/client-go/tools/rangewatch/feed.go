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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/rangewatch/follower"
	"k8s.io/utils/clock"
)

// feed is the ListerWatcher of the informer's reflector. A reflector runs one list or one watch at
// a time, and each drives the Follower meanwhile.
type feed struct {
	driver
	// ready says that everything for a list is there already, listed that the last call was a list.
	ready, listed bool
	// stream is the current watch, or the last one if it has ended.
	stream *stream
	// failed says that the last call failed, and retry how long the next one waits then.
	failed bool
	retry  wait.DelayFunc
}

var (
	_ cache.ListerWatcher            = &feed{}
	_ cache.ListerWatcherWithContext = &feed{}
	_ cache.RelistBackoff            = &feed{}
)

func newFeed(source *Source) *feed {
	return &feed{
		driver: newDriver(source, follower.New()),
		retry:  source.backoff.DelayWithReset(clock.RealClock{}, 2*time.Minute),
	}
}

// IsWatchListSemanticsUnSupported keeps the reflector from requesting the initial list as a stream
// of events.
func (f *feed) IsWatchListSemanticsUnSupported() bool { return true }

// RelistBackoff implements cache.RelistBackoff: there is none, as the reflector mostly lists what
// is there already, however often that is. Requests have a back-off of their own, and so have calls
// that failed.
func (f *feed) RelistBackoff() wait.Backoff { return wait.Backoff{Duration: time.Millisecond} }

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
	if f.failed {
		select {
		case <-time.After(f.retry()):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	f.failed = true
	if !f.ready {
		f.follower.List()
		f.kept = nil
		if err := f.run(ctx); !errors.Is(err, errReplace) {
			return nil, err
		}
	}
	f.ready = false
	list, err := f.takeList()
	if err != nil {
		return nil, err
	}
	f.listed, f.failed = true, false
	return list, nil
}

// takeList returns the list of what the informer is to have: what was kept, and else what the store
// has.
func (f *feed) takeList() (runtime.Object, error) {
	n, ids := f.follower.Known()
	restored := map[follower.ID]any{}
	result := &internalversion.List{Items: make([]runtime.Object, 0, n)}
	for id := range ids {
		object := f.kept[id]
		if object == nil {
			stored, exists, err := f.store.GetByKey(cache.ObjectName(id).String())
			if err != nil {
				return nil, err
			}
			if !exists { // the informer's transform failed on it
				continue
			}
			object = &prepared{stored}
		} else if f.isRestored(id, object.object) {
			restored[id] = object.object
		}
		result.Items = append(result.Items, object)
	}
	f.kept = nil
	f.setRestored(restored)
	result.ResourceVersion = strconv.FormatUint(f.replaces.Revision, 10)
	return result, nil
}

// WatchWithContext starts the reflector's watch where the last list ended, which is what the
// options ask for.
func (f *feed) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if options.SendInitialEvents != nil {
		return nil, errors.New("listing as a stream of events is not supported")
	}
	f.endStream()
	if !f.listed {
		return nil, apierrors.NewResourceExpired("the last watch ended early, and may have lost an event: list again")
	}
	f.listed = false
	f.follower.Watch()
	f.stream = newStream(ctx)
	f.out = f.stream.out
	go f.stream.run(func(ctx context.Context) error {
		err := f.run(ctx)
		if errors.Is(err, errReplace) {
			f.ready = true
			return apierrors.NewResourceExpired("everything has been listed")
		}
		f.failed = ctx.Err() == nil
		return err
	})
	return f.stream, nil
}

// endStream ends the last watch, and waits until it no longer uses the driver.
func (f *feed) endStream() {
	if f.stream != nil {
		f.stream.Stop()
		<-f.stream.done
	}
}
