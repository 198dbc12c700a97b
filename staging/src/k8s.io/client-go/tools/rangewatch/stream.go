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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/rangewatch/follower"
)

// Stream returns the objects of the ranges as the events of one watch, for whoever needs no store
// of them. In memory is only their name, revision and hash key. The stream lasts until ctx ends or
// it is stopped:
//
//   - The objects that there are come as ADDED first, one by one, as do those of ranges that are
//     added. Then changes come as with any watch.
//   - When the server no longer has the events that it needs, everything is listed, and what has
//     changed comes as ADDED, MODIFIED and DELETED. Nothing is in Held meanwhile.
//   - An object that left the ranges, or was found to be gone after such a list, is DELETED with
//     nothing but its namespace, name and a resource version.
//   - BOOKMARK comes with the resource version that the stream has reached.
//
// Held and WaitFor speak of what was received: an event counts as processed when the next one is
// received. Nothing is in Held once the stream has ended. Stream must be called once, and not
// beside NewInformer.
func (s *Source) Stream(ctx context.Context) watch.Interface {
	s.useOnce("Stream")
	d := newDriver(s, follower.NewOneByOne())
	st := newStream(ctx)
	d.out = st.out
	go st.run(func(ctx context.Context) error {
		defer s.report(nil, nil)
		return d.run(ctx)
	})
	return st
}

// stream is the watch that a driver feeds.
type stream struct {
	ctx    context.Context
	cancel context.CancelFunc
	out    chan watch.Event
	done   chan struct{}
}

func newStream(ctx context.Context) *stream {
	ctx, cancel := context.WithCancel(ctx)
	return &stream{ctx: ctx, cancel: cancel, out: make(chan watch.Event), done: make(chan struct{})}
}

// ResultChan implements watch.Interface.
func (st *stream) ResultChan() <-chan watch.Event { return st.out }

// Stop implements watch.Interface.
func (st *stream) Stop() { st.cancel() }

// run runs what feeds the stream. If that fails before the stream is stopped, its error is the last
// event.
func (st *stream) run(feed func(context.Context) error) {
	defer close(st.done)
	defer close(st.out)
	defer st.cancel()
	defer utilruntime.HandleCrashWithContext(st.ctx)
	err := feed(st.ctx)
	if st.ctx.Err() != nil {
		return
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	object := status.Status()
	select {
	case st.out <- watch.Event{Type: watch.Error, Object: &object}:
	case <-st.ctx.Done():
	}
}
