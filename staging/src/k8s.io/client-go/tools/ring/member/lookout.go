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
	"slices"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/ring"
	"k8s.io/klog/v2"
)

// lookInterval is how long a member waits for the log before it looks ahead, and how often
// it does. A handover that is not held up takes less.
const lookInterval = time.Second

// lookout lists the registry while the member waits for what others write: a list is
// consistent, while the watch may be seconds behind. It also does so where the watch has told
// nothing for long, not even how far it is: it may have gone silent. It belongs to the deciding
// goroutine.
type lookout struct {
	// since is when the member began to wait; zero: it does not. looked is when it last
	// looked ahead, looking says that it does so now.
	since, looked time.Time
	looking       bool
}

// look looks ahead if it is time to. It returns when to ask again; 0: there is no such time.
func (t *term) look(ctx context.Context, now time.Time, d ring.Decision) time.Duration {
	l := &t.lookout
	from, pause := t.lastHeard(), t.silence()
	if !t.waits(d) {
		l.since = time.Time{}
	} else {
		if l.since.IsZero() {
			l.since = now
		}
		from, pause = l.since, lookInterval
	}
	if l.looked.After(from) {
		from = l.looked
	}
	if due := from.Add(pause); now.Before(due) || l.looking {
		return max(due.Sub(now), 0)
	}
	l.looking, l.looked = true, now
	go func() {
		view, err := t.list(ctx, t.history.asks(), metav1.ListOptions{})
		t.post(ctx, func() {
			l.looking = false
			if err != nil {
				klog.FromContext(ctx).Error(err, "Could not look ahead of the watch of the registry; will try again")
				return
			}
			t.overtake(ctx, view)
		})
	}()
	return 0
}

// waits says whether the member waits for what is in the log, or soon will be: for a peer's
// part in a handover, or for its own last write.
func (t *term) waits(d ring.Decision) bool {
	last := max(t.settled, t.news.stored.Revision)
	return d.Waits || d.Phase != shardingv1alpha1.InstanceActive || !d.Owned.Covers(d.Follow) || t.machine.View().Revision < last
}

// overtake hands the machine a view that is ahead of the log. It does not if the gate waits
// for the caches: the machine would have to let them start anew, as in a gap of the log keys
// may have gone and come back. Nor does it if there is nothing new but the revision, which
// every write of any resource moves. Where the watch has told nothing for a lease, it opens
// another.
func (t *term) overtake(ctx context.Context, view *ring.View) {
	behind := t.machine.View()
	same := func(a, b *ring.Record) bool { return a.UID == b.UID && a.Revision == b.Revision }
	if view.Revision <= behind.Revision || slices.EqualFunc(behind.Records(), view.Records(), same) {
		return
	}
	if silent := t.cfg.Clock.Since(t.lastHeard()); silent >= t.cfg.LeaseDuration {
		klog.FromContext(ctx).Info("The watch of the registry has gone silent; will open another", "silent", silent)
		t.endWatch()
	}
	if len(t.readiness.asked) == 0 {
		t.machine.Replace(view)
	}
}

// silence is how long the watch of a quiet registry may tell nothing. All instances of a ring
// together list it once a second at most for that.
func (t *term) silence() time.Duration {
	return max(2*t.cfg.LeaseDuration, time.Duration(len(t.machine.View().Records()))*time.Second)
}

// hear notes that the watch has told something.
func (t *term) hear() {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.heard = t.cfg.Clock.Now()
}

func (t *term) lastHeard() time.Time {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.heard
}

// watching sets what ends the present watch.
func (t *term) watching(end context.CancelFunc) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.unwatch = end
}

// endWatch ends the present watch, after which the registry is listed.
func (t *term) endWatch() {
	t.lock.Lock()
	defer t.lock.Unlock()
	if t.unwatch != nil {
		t.unwatch()
	}
}
