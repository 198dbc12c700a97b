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
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/rangewatch/follower"
)

// driver does what a Follower says, and tells it what happens. One goroutine at a time uses it.
type driver struct {
	*Source
	follower *follower.Follower
	// out takes the events.
	out chan<- watch.Event
	// kept has the objects of a list that wait for its end.
	kept map[follower.ID]*prepared
	// bookmarks is the number of bookmarks that were sent.
	bookmarks int64
	// replaces is the Step that ended run with errReplace.
	replaces follower.Step
	lag      lag
	// remind fires when something has been lacking for long.
	remind <-chan time.Time
	requests
}

func newDriver(source *Source, f *follower.Follower) driver {
	return driver{Source: source, follower: f, requests: newRequests(source)}
}

// errReplace says that the Follower wants everything replaced.
var errReplace = errors.New("everything that the informer has is to be replaced")

// run drives the Follower until ctx ends, or until everything is to be replaced.
func (d *driver) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer d.endAll()
	d.takeNews(d.follower)
	var object runtime.Object
	for {
		for step, ok := d.follower.Next(); ok; step, ok = d.follower.Next() {
			if err := d.do(ctx, step, object); err != nil {
				return err
			}
		}
		var err error
		if object, err = d.next(ctx); err != nil {
			return err
		}
	}
}

// do does a Step. object is that of the event that led to it.
func (d *driver) do(ctx context.Context, s follower.Step, object runtime.Object) error {
	switch s.Do {
	case follower.Add:
		return d.send(ctx, watch.Added, object)
	case follower.Update:
		return d.send(ctx, watch.Modified, object)
	case follower.Delete:
		return d.send(ctx, watch.Deleted, object)
	case follower.Remove:
		return d.remove(ctx, s.ID, s.Revision)
	case follower.Bookmark:
		if d.lags() {
			return d.confirm(ctx, s.Revision)
		}
		return d.bookmark(ctx, s.Revision)
	case follower.Confirm:
		return d.confirm(ctx, s.Revision)
	case follower.Hold:
		d.hold()
	case follower.Release:
		d.release()
	case follower.Keep:
		return d.keep(s.ID, object)
	case follower.Forget:
		delete(d.kept, s.ID)
	case follower.ForgetAll:
		d.kept = nil
	case follower.Replace:
		d.replaces = s
		return errReplace
	case follower.Report:
		d.report(s.Ranges, s.Waiters)
	case follower.List:
		d.startList(ctx, s)
	case follower.CancelList:
		d.cancelList()
	case follower.Watch:
		d.startWatch(ctx, s)
	case follower.CancelWatch:
		d.cancelOpening()
	case follower.EndWatch:
		d.stopFollowing()
	case follower.RetryList:
		d.listRetry.schedule()
	case follower.RetryWatch:
		d.watchRetry.schedule()
	case follower.Diverge:
		return d.diverge(s.Revision)
	}
	return nil
}

// next waits for what happens next and tells the Follower, and returns the object of an event.
func (d *driver) next(ctx context.Context) (runtime.Object, error) {
	d.note()
	var events <-chan watch.Event
	if d.following != nil {
		events = d.following.ResultChan()
	}
	var result <-chan opened
	if d.opening != nil {
		result = d.opening.result
	}
	var objects <-chan listedObject
	var ended <-chan listEnd
	if d.listing != nil {
		objects, ended = d.listing.objects, d.listing.ended
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-d.wake:
		d.takeNews(d.follower)
	case <-d.urged:
		d.hurry()
	case <-d.remind:
		d.sayLacking()
	case <-d.watchRetry.timer:
		d.watchRetry.timer = nil
		d.follower.RetryWatch()
	case <-d.listRetry.timer:
		d.listRetry.timer = nil
		d.follower.RetryList()
	case o := <-result:
		d.opened(o)
	case event, ok := <-events:
		return event.Object, d.receive(event, ok)
	case o := <-objects:
		return o.Object, d.listed(o)
	case end := <-ended:
		d.listEnded(end)
	}
	return nil, nil
}

// receive takes an event of the server's watch, or its end if ok is false.
func (d *driver) receive(event watch.Event, ok bool) error {
	w := d.following
	if !ok {
		d.stopFollowing()
		d.follower.WatchEnded(!w.lively && time.Since(w.since) < time.Second)
		return nil
	}
	if event.Type == watch.Error {
		d.stopFollowing()
		err := apierrors.FromObject(event.Object)
		d.watchFailed(err, failureOf(err), d.follower.WatchFailed)
		return nil
	}
	if !w.lively {
		w.lively = true
		d.resetRetries()
	}
	object, err := d.identify(event.Object)
	if err != nil {
		return err
	}
	switch event.Type {
	case watch.Bookmark:
		accessor, err := meta.Accessor(event.Object)
		if err != nil {
			return err
		}
		_, answers := accessor.GetAnnotations()[sharding.ProgressAnnotation]
		d.follower.Reached(object.Revision, answers)
	case watch.Deleted:
		d.follower.Changed(object, true)
	default:
		d.warnIfUnselected(object, w.selected)
		d.follower.Changed(object, false)
	}
	return nil
}

// listed takes an object of a list.
func (d *driver) listed(o listedObject) error {
	object, err := d.identify(o.Object)
	if err != nil {
		return err
	}
	if !o.ended {
		d.warnIfUnselected(object, d.listing.selected)
	}
	d.follower.Listed(object, o.ended)
	return nil
}

// listEnded takes the outcome of a list.
func (d *driver) listEnded(end listEnd) {
	ranges := d.listing.selected
	d.cancelList()
	if end.err != nil {
		d.logger.Error(end.err, "Listing ranges failed; will retry, and what is held stays held", "ranges", ranges, "held", d.Held())
		d.failed(end.err)
		d.follower.ListFailed(end.failure)
		return
	}
	d.logger.V(2).Info("Listed ranges", "ranges", ranges, "revision", end.revision)
	d.follower.ListEnded(end.revision)
}

// opened takes the watch that was being opened, in place of the one that is followed.
func (d *driver) opened(result opened) {
	o := d.opening
	d.opening = nil
	if result.err != nil {
		o.cancel()
		d.watchFailed(result.err, result.failure, d.follower.OpenFailed)
		return
	}
	d.stopFollowing()
	d.following = &followed{Interface: result.watch, cancel: o.cancel, selected: o.selected, since: time.Now()}
	d.follower.Opened()
}

func (d *driver) watchFailed(err error, failure follower.Failure, tell func(follower.Failure)) {
	switch failure {
	case follower.Expired:
		d.logger.V(2).Info("Listing all ranges, because the server no longer has the events since the last one", "err", err)
	case follower.Refused:
		d.logger.V(2).Info("Asking for less, because the server may have refused an option", "err", err)
	default:
		d.logger.Error(err, "Watching ranges failed; will retry, and what is held stays held", "held", d.Held())
		d.failed(err)
	}
	tell(failure)
}
