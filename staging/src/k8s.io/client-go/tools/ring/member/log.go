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

package member

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/ring"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/klog/v2"
)

// relistInterval is how long a member waits before it lists the registry again after that has
// failed, or where watches end at once: each time twice as long then, up to maxRelistPause.
const (
	relistInterval = 200 * time.Millisecond
	maxRelistPause = 5 * time.Second
)

func (m *Member) options(options metav1.ListOptions) metav1.ListOptions {
	options.FieldSelector = fields.OneTermEqualSelector("spec.ring", m.cfg.Ring).String()
	return options
}

// list returns the member's ring. It fails if that is of another history than what was known then,
// which ends the member's part in it.
func (m *Member) list(ctx context.Context, known *history, options metav1.ListOptions) (*ring.View, error) {
	// The connection may be dead.
	ctx, cancel := context.WithTimeout(ctx, m.cfg.LeaseDuration)
	defer cancel()
	list, err := m.cfg.Client.List(ctx, m.options(options))
	if err != nil {
		return nil, fmt.Errorf("listing ControllerInstances: %w", err)
	}
	views, err := ring.ReadList(list)
	if err != nil {
		return nil, err
	}
	view := views.Ring(m.cfg.Ring)
	if reason := known.judge(view); reason != "" {
		m.Diverge(ctx, reason)
		return nil, errDiverged
	}
	m.history.replace(view)
	return view, nil
}

// readLog reads the log from that revision into the machine. How far the machine has come is
// the revision of its view: what is older is skipped, as a list may have overtaken the watch.
func (t *term) readLog(ctx context.Context, revision int64) {
	defer utilruntime.HandleCrashWithContext(ctx)
	logger := klog.FromContext(ctx)
	// pause comes before a list, where watches end again at once: an API server may refuse them.
	pause := time.Duration(0)
	for ctx.Err() == nil {
		began := t.cfg.Clock.Now()
		err := t.watch(ctx, revision)
		if ctx.Err() != nil {
			return
		}
		logger.Info("The watch of the registry has ended; will list it", "reason", err)
		if t.cfg.Clock.Since(began) > maxRelistPause {
			pause = 0
		}
		select {
		case <-t.cfg.Clock.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(max(2*pause, relistInterval), maxRelistPause)
		// A gap in the log: the machine is told that it sees only the end of it.
		err = wait.PollUntilContextCancel(ctx, relistInterval, true, func(ctx context.Context) (bool, error) {
			view, err := t.list(ctx, t.history.asks(), metav1.ListOptions{})
			if err != nil {
				logger.Error(err, "Could not list the registry; will try again")
				return false, nil
			}
			revision = view.Revision
			t.post(ctx, func() {
				if view.Revision > t.machine.View().Revision {
					t.machine.Replace(view)
				}
			})
			return true, nil
		})
		if err != nil {
			return
		}
	}
}

// watch follows the log from revision until it cannot be continued, and returns why.
func (t *term) watch(ctx context.Context, revision int64) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	t.watching(end)
	t.hear()
	w, err := watchtools.NewRetryWatcherWithContext(ctx, strconv.FormatInt(revision, 10), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			w, err := t.cfg.Client.Watch(ctx, t.options(options))
			if err != nil {
				return nil, err
			}
			return t.listen(ctx, w), nil
		},
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		instance, ok := event.Object.(*shardingv1alpha1.ControllerInstance)
		if !ok {
			return fmt.Errorf("the watch of the registry sent a %T", event.Object)
		}
		record, err := ring.NewRecord(instance)
		if err != nil {
			return err
		}
		t.post(ctx, func() {
			// A list may have overtaken what it says of the instance itself.
			t.learn(record)
			t.observer.hear(t.cfg.Clock.Now(), record)
			t.buried = t.buried || event.Type == watch.Deleted && record.Name == t.self.Name && record.UID == t.self.UID
			switch {
			case record.Revision <= t.machine.View().Revision:
			case event.Type == watch.Deleted:
				t.machine.Remove(record.Name, record.Revision)
			default:
				t.machine.Apply(record)
			}
		})
	}
	return errors.New("closed")
}

// listen returns what w sends, and notes that it does: bookmarks, which go no further, tell that it
// is alive.
func (t *term) listen(ctx context.Context, w watch.Interface) watch.Interface {
	results := make(chan watch.Event)
	relay := watch.NewProxyWatcher(results)
	go func() {
		defer close(results)
		defer w.Stop()
		for {
			select {
			case event, ok := <-w.ResultChan():
				if !ok {
					return
				}
				t.hear()
				select {
				case results <- event:
				case <-relay.StopChan():
				case <-ctx.Done():
				}
			case <-relay.StopChan():
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return relay
}
