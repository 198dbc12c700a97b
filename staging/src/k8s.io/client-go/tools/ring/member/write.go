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
	"encoding/json"
	"errors"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/ring"
	"k8s.io/klog/v2"
)

// A member waits longer after each write that fails, until one succeeds or, for one of a
// spec, it decides on another spec: after a conflict, the record that changed is on its way
// in the log, and no write can succeed before it is there.
const (
	firstPause = 10 * time.Millisecond
	maxPause   = time.Second
)

// backoff says when a write that has failed may be tried again.
type backoff struct {
	// pause is how long the next attempt waits, retryAt when it may be made.
	pause   time.Duration
	retryAt time.Time
}

// fail notes that an attempt has failed.
func (b *backoff) fail(now time.Time) {
	b.pause = min(max(2*b.pause, firstPause), maxPause)
	b.retryAt = now.Add(b.pause)
}

// refusal is the last write of a spec that failed.
type refusal struct {
	name       string
	uid        types.UID
	generation int64
	backoff
}

// of says whether w was decided on the spec that the refused write was decided on.
func (r *refusal) of(w *ring.Write) bool {
	return r.name == w.Name && r.uid == w.UID && r.generation == w.Generation
}

// refuse notes that w has failed.
func (t *term) refuse(w *ring.Write) {
	if !t.refused.of(w) {
		t.refused = refusal{name: w.Name, uid: w.UID, generation: w.Generation}
	}
	t.refused.fail(t.cfg.Clock.Now())
}

// admitted makes a write of the registry unless the gate's deadline has passed, and gives
// it up when the deadline passes without a renewal: by then another may own what it gives
// away. It gives it up after a lease, too, as the answer may be lost.
func (t *term) admitted(ctx context.Context, send func(context.Context) error) error {
	_, ctx, end, err := t.cfg.Gate.admit(ctx)
	if err != nil {
		return err
	}
	defer end()
	limited, cancel := context.WithTimeout(ctx, t.cfg.LeaseDuration)
	defer cancel()
	err = send(limited)
	if cause := context.Cause(limited); errors.Is(cause, errNotRenewed) && errors.Is(err, context.Canceled) {
		return cause
	}
	return err
}

// write sends w beside the deciding goroutine, which gets the result.
func (t *term) write(ctx context.Context, w ring.Write) {
	logger := klog.FromContext(ctx)
	if w.Delete && t.news.stored.Generation != w.Generation {
		// An answer has shown what the log does not yet: somebody may have taken a drain back.
		t.refuse(&w)
		return
	}
	revision := t.news.stored.Revision
	t.writing = true
	go func() {
		var written ring.Record
		err := t.admitted(ctx, func(ctx context.Context) (err error) {
			written, err = t.send(ctx, w, revision)
			return err
		})
		t.post(ctx, func() {
			t.writing = false
			t.showWrite(&w, err)
			switch {
			case err == nil:
				t.learn(written)
				logger.Info("Wrote to the ring", "reason", w.Reason, "detail", w.Detail, "record", w.Name,
					"key", hashkey.FormatOptional(w.Key), "nextKey", hashkey.FormatOptional(w.Next), "donor", w.Donor)
				if w.Reason == ring.ReasonBalance {
					t.cfg.Metrics.Balanced(ResultBegun)
					t.cfg.Events.Eventf(reference(written), v1.EventTypeNormal, eventBalance, "%s", w.Detail)
				}
				t.settled, t.refused = written.Revision, refusal{}
				t.lost, t.left = t.lost || w.Delete, w.Delete
			case isChanged(err):
				t.refuse(&w)
				logger.V(2).Info("The record has changed since; will decide again", "reason", w.Reason, "record", w.Name, "pause", t.refused.pause, "err", err)
			default:
				t.refuse(&w)
				logger.Error(err, "Could not write to the ring; will decide again", "reason", w.Reason, "record", w.Name, "pause", t.refused.pause)
			}
		})
	}()
}

// send makes the write, and returns the record that it has made: the log has to reach its
// revision before the next write is decided on. There is none after a deletion, which is refused if
// the record has changed since that revision.
func (t *term) send(ctx context.Context, w ring.Write, revision int64) (ring.Record, error) {
	if w.Delete {
		version := strconv.FormatInt(revision, 10)
		err := t.cfg.Client.Delete(ctx, w.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &w.UID, ResourceVersion: &version}})
		if isGone(err) {
			err = nil
		}
		return ring.Record{}, err
	}
	return t.patch(ctx, w.Name, specPatch(&w))
}

// patch changes the record of that name, and returns what has become of it.
func (m *Member) patch(ctx context.Context, name string, operations []operation) (ring.Record, error) {
	body, err := json.Marshal(operations)
	if err != nil {
		return ring.Record{}, err
	}
	result, err := m.cfg.Client.Patch(ctx, name, types.JSONPatchType, body, metav1.PatchOptions{})
	if err != nil {
		return ring.Record{}, err
	}
	return ring.NewRecord(result)
}

// operation is one of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// specPatch sets the spec if it is the one that was decided on: a failed test refuses the
// whole patch. A resource version would not do, as all news change it; and a merge
// patch cannot carry the generation, which the server overwrites there in silence.
func specPatch(w *ring.Write) []operation {
	return []operation{
		{"test", "/metadata/uid", w.UID},
		{"test", "/metadata/generation", w.Generation},
		{"add", "/spec/hashKey", w.Key},
		{"add", "/spec/nextHashKey", w.Next},
		{"add", "/spec/donor", w.Donor},
	}
}

// isChanged says whether a write was refused as the record is not what it was decided on.
func isChanged(err error) bool {
	return isFailedTest(err) || apierrors.IsConflict(err) || isGone(err)
}

// isFailedTest says whether a test of a JSON patch has failed: that is 422 without a
// cause. What validation refuses is 422 too, and names the fields.
func isFailedTest(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || len(details.Causes) == 0
}

// isGone says whether the server has no such record. A 404 from a server that does not
// serve the API group says nothing of the record.
func isGone(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
