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
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/rangewatch/follower"
	"k8s.io/utils/clock"
)

// requests are those that are under way. Each has a context of its own, which ends with it.
type requests struct {
	source *Source
	// following is the watch whose events are passed on, or nil, and opening what is to replace it.
	following *followed
	opening   *opening
	// listing is the list that runs beside it, or nil.
	listing *listing

	listRetry, watchRetry retry
}

// followed is a watch that is open.
type followed struct {
	watch.Interface
	cancel   context.CancelFunc
	selected hashkey.Ranges
	// since is when it was opened, lively whether it has brought anything.
	since  time.Time
	lively bool
}

// opening is a watch that is being opened.
type opening struct {
	selected hashkey.Ranges
	result   chan opened
	cancel   context.CancelFunc
}

type opened struct {
	watch watch.Interface
	err   error
	// failure is what err means.
	failure follower.Failure
}

// listing is a list.
type listing struct {
	selected hashkey.Ranges
	objects  chan listedObject
	ended    chan listEnd
	cancel   context.CancelFunc
}

// listedObject is an object of a list or, with ended set, one that was deleted during the list.
type listedObject struct {
	runtime.Object
	ended bool
}

// listEnd is the outcome of a list.
type listEnd struct {
	revision uint64
	err      error
	// failure is what err means.
	failure follower.Failure
}

// retry spaces out attempts that fail one after another.
type retry struct {
	delay wait.DelayFunc
	timer <-chan time.Time
	// due is when the timer fires.
	due time.Time
}

// schedule sets the timer for the next attempt.
func (r *retry) schedule() { r.after(r.delay()) }

func (r *retry) after(d time.Duration) { r.timer, r.due = time.After(d), time.Now().Add(d) }

// hurry has the next attempt made no later than after the first failure.
func (r *retry) hurry() {
	if d := r.delay(); r.timer != nil && time.Until(r.due) > d {
		r.after(d)
	}
}

// backoff is that of client-go's reflectors, which is reset after two minutes without a failure,
// and here by a watch that brings something. The ranges of many processes fail at once where a
// server restarts, so the jitter matters.
var backoff = wait.Backoff{Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 30 * time.Second}

func newRequests(s *Source) requests {
	r := requests{source: s}
	r.resetRetries()
	return r
}

// resetRetries has the next failures wait for no longer than the first did.
func (r *requests) resetRetries() {
	for _, retry := range []*retry{&r.listRetry, &r.watchRetry} {
		retry.delay = r.source.backoff.DelayWithReset(clock.RealClock{}, 2*time.Minute)
	}
}

// hurry has the next attempts made soon: somebody waits, and the server has just answered something
// else.
func (r *requests) hurry() {
	if r.listRetry.timer == nil && r.watchRetry.timer == nil {
		return
	}
	r.resetRetries()
	r.listRetry.hurry()
	r.watchRetry.hurry()
}

func (r *requests) startList(ctx context.Context, s follower.Step) {
	ctx, cancel := context.WithCancel(ctx)
	l := &listing{selected: selected(s), objects: make(chan listedObject), ended: make(chan listEnd, 1), cancel: cancel}
	r.listing = l
	go func() {
		selector := r.source.selector(l.selected)
		revision, err := r.source.list(ctx, selector, func(obj runtime.Object, ended bool) error {
			select {
			case l.objects <- listedObject{obj, ended}:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		l.ended <- listEnd{revision, err, r.source.failureOf(ctx, err, selector)}
	}()
}

func (r *requests) startWatch(ctx context.Context, s follower.Step) {
	timeout := watchTimeout()
	ctx, cancel := context.WithCancel(ctx)
	o := &opening{selected: selected(s), result: make(chan opened), cancel: cancel}
	options := metav1.ListOptions{
		ShardSelector:       r.source.selector(o.selected),
		ResourceVersion:     strconv.FormatUint(s.Revision, 10),
		TimeoutSeconds:      &timeout,
		AllowWatchBookmarks: true,
	}
	if s.Asks {
		no := false
		options.SendInitialEvents, options.ResourceVersionMatch = &no, metav1.ResourceVersionMatchNotOlderThan
	}
	r.opening = o
	go func() {
		w, err := r.source.listWatch.WatchWithContext(ctx, options)
		select {
		case o.result <- opened{w, err, r.source.failureOf(ctx, err, options.ShardSelector)}:
		case <-ctx.Done():
			if err == nil {
				w.Stop()
			}
		}
	}()
}

func (r *requests) cancelList() {
	if r.listing != nil {
		r.listing.cancel()
		r.listing = nil
	}
}

func (r *requests) cancelOpening() {
	if r.opening != nil {
		r.opening.cancel()
		r.opening = nil
	}
}

func (r *requests) stopFollowing() {
	if r.following != nil {
		r.following.Stop()
		r.following.cancel()
		r.following = nil
	}
}

func (r *requests) endAll() {
	r.cancelList()
	r.cancelOpening()
	r.stopFollowing()
}

// maxSelected is the number of ranges that a server takes in a selector.
const maxSelected = 128

// selected returns the ranges that the request for a Step selects: at most maxSelected, which may
// have more than it wants, and nil for everything.
func selected(s follower.Step) hashkey.Ranges {
	if s.Everything {
		return nil
	}
	return s.Ranges.Coarsen(maxSelected)
}
