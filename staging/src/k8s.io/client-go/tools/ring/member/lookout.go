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
// consistent, while the watch may be seconds behind. It belongs to the deciding goroutine.
type lookout struct {
	// since is when the member began to wait; zero: it does not. looked is when it last
	// looked ahead, looking says that it does so now.
	since, looked time.Time
	looking       bool
}

// look looks ahead if it is time to. It returns when to ask again; 0: there is no such time.
func (t *term) look(ctx context.Context, now time.Time, d ring.Decision) time.Duration {
	l := &t.lookout
	if !t.waits(d) {
		l.since = time.Time{}
		return 0
	}
	if l.since.IsZero() {
		l.since = now
	}
	from := l.since
	if l.looked.After(from) {
		from = l.looked
	}
	if due := from.Add(lookInterval); now.Before(due) || l.looking {
		return max(due.Sub(now), 0)
	}
	l.looking, l.looked = true, now
	go func() {
		limited, cancel := context.WithTimeout(ctx, t.cfg.LeaseDuration)
		defer cancel()
		view, err := t.list(limited, metav1.ListOptions{})
		t.post(ctx, func() {
			l.looking = false
			if err != nil {
				klog.FromContext(ctx).Error(err, "Could not look ahead of the watch of the registry; will try again")
				return
			}
			t.overtake(view)
		})
	}()
	return 0
}

// waits says whether the member waits for what is in the log, or soon will be: for a peer's
// part in a handover, or for its own last write.
func (t *term) waits(d ring.Decision) bool {
	last := max(t.settled, t.news.stored.Revision)
	return d.Waits || d.Phase != shardingv1alpha1.InstanceActive || !d.Follow.Equal(d.Owned) || t.machine.View().Revision < last
}

// overtake hands the machine a view that is ahead of the log. It does not if the gate waits
// for the caches: the machine would have to let them start anew, as in a gap of the log keys
// may have gone and come back. Nor does it if there is nothing new but the revision, which
// every write of any resource moves.
func (t *term) overtake(view *ring.View) {
	behind := t.machine.View()
	same := func(a, b *ring.Record) bool { return a.UID == b.UID && a.Revision == b.Revision }
	if t.ready.asking != nil || view.Revision <= behind.Revision || slices.EqualFunc(behind.Records(), view.Records(), same) {
		return
	}
	t.machine.Replace(view)
}
