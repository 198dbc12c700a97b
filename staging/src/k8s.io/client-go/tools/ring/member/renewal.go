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
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/klog/v2"
)

const (
	// hangsPerLease is the part of a lease for which nothing may be decided.
	hangsPerLease = 3
	// renewalPause is how long after an answer that is an error the next renewal is sent, and
	// as much as a half longer.
	renewalPause = 400 * time.Millisecond
)

// errAnother says that the record is another's of the same name.
var errAnother = errors.New("the ControllerInstance is another's of the same name")

// renewed is the outcome of one renewal, and when it was sent.
type renewed struct {
	sent time.Time
	err  error
}

// renew keeps the record alive, every sixth of the lease, and more often where a presence has
// ended, as long as the instance is of use: the deciding goroutine comes round, and no work holds
// up another that waits at a door for its end. Otherwise its record expires, and another takes its
// range over. Renewals do not wait for each other: where every request is slow, several are under
// way, and each answer counts from when its renewal was sent.
func (t *term) renew(ctx context.Context) {
	defer utilruntime.HandleCrashWithContext(ctx)
	logger := klog.FromContext(ctx)
	var sending sync.WaitGroup
	// What is under way must not meet the next registration.
	defer sending.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan renewed)
	next, withheld := t.answered.Add(fence.RenewalPeriod(t.cfg.LeaseDuration)), false
	for {
		select {
		case <-t.renewNow:
			next = t.cfg.Clock.Now()
		case <-t.cfg.Clock.After(max(0, next.Sub(t.cfg.Clock.Now()))):
			now := t.cfg.Clock.Now()
			if err := t.hung(now); err != nil {
				next = now.Add(wait.Jitter(renewalPause, 0.5))
				t.cfg.Metrics.Renewed(ResultWithheld)
				if !withheld {
					logger.Error(err, "Does not renew the ControllerInstance, so that another takes its range over", "gateOpenUntil", t.cfg.Gate.Deadline())
					t.observer.withheld(err)
				}
				withheld = true
				continue
			}
			next, withheld = now.Add(t.pace(now)), false
			unsure := now.Sub(t.answered) >= t.cfg.LeaseDuration
			sending.Go(func() {
				sent, err := t.sendRenewal(ctx, unsure)
				select {
				case answers <- renewed{sent, err}:
				case <-ctx.Done():
				}
			})
		case a := <-answers:
			switch {
			case a.err == nil:
				if a.sent.After(t.answered) {
					t.answered = a.sent
				}
				t.cfg.Metrics.Renewed(ResultRenewed)
				t.trust(ctx, a.sent)
			case isLost(a.err):
				t.cfg.Metrics.Renewed(ResultLost)
				t.post(ctx, func() {
					t.gaveUp = apierrors.HasStatusCause(a.err, fence.CauseLeaseLost)
					t.lose(logger, a.err)
				})
				return
			default:
				logger.Error(a.err, "Could not renew the ControllerInstance; will try again", "sent", a.sent, "gateOpenUntil", t.cfg.Gate.Deadline())
				t.cfg.Metrics.Renewed(ResultFailed)
				if again := t.cfg.Clock.Now().Add(wait.Jitter(renewalPause, 0.5)); again.Before(next) && !errors.Is(a.err, context.DeadlineExceeded) {
					next = again
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

// trust moves the gate's deadline: a renewal that was sent at that instant was answered.
func (t *term) trust(ctx context.Context, sent time.Time) {
	if !t.cfg.Gate.extend(t.self, t.confidence(sent)) {
		return
	}
	t.post(ctx, func() {
		const message = "The gate had shut by itself and is open again: the record was renewed late"
		t.observer.fenced(message)
		klog.FromContext(ctx).Info(message)
		t.acquired(ctx, t.cfg.Gate.serving())
	})
}

// hung says why the instance is of no use; nil if it is.
func (t *term) hung(now time.Time) error {
	if round := t.lastRound(); !round.IsZero() && now.Sub(round) > t.cfg.LeaseDuration/hangsPerLease {
		return fmt.Errorf("no decision was made for %v", now.Sub(round))
	}
	if held := t.cfg.Gate.heldUp(now); held >= t.cfg.HungLimit {
		return fmt.Errorf("work goes on behind a door that was shut %v ago, and others wait for its end", held)
	}
	return nil
}

// isLost says whether the answer to a renewal means that there is no such record any more:
// it is gone, it is another's of the same name, or its lease has ended. A refusal by the
// fence does not: the epoch may have been raised while the renewal was on its way.
func isLost(err error) bool {
	return isGone(err) || errors.Is(err, errAnother) || apierrors.IsConflict(err) && !fence.IsFenced(err)
}

// sendRenewal sends a patch of the status that changes nothing, and returns when. The server stores
// nothing then, and keeps the record's lease alive; the UID keeps it off another's record. It is
// given up after a lease, since no later answer lets the gate open. If it is unsure whether answers
// come back, the record is read first: requests that arrive while their answers are lost would keep
// a record alive whose range nobody works on. The answer has the record as it is, which is never
// older than it was known to be, unless the registry has another history.
func (t *term) sendRenewal(ctx context.Context, unsure bool) (sent time.Time, err error) {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": t.self.UID}})
	if err != nil {
		return sent, err
	}
	if unsure {
		if err := t.find(ctx); err != nil {
			return t.cfg.Clock.Now(), err
		}
	}
	sent = t.cfg.Clock.Now()
	ctx, cancel := context.WithTimeout(ctx, t.cfg.LeaseDuration)
	defer cancel()
	known := t.history.revisionOf(t.self.UID)
	found, err := t.cfg.Client.Patch(ctx, t.self.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	if err != nil {
		return sent, err
	}
	record, err := ring.NewRecord(found)
	if err != nil {
		return sent, err
	}
	if reason := judgeRecord(record.Name, record.Revision, known); reason != "" {
		t.Diverge(ctx, reason)
		return sent, errDiverged
	}
	return sent, nil
}

// find reads the record, and fails if that is not the instance's.
func (t *term) find(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.LeaseDuration)
	defer cancel()
	found, err := t.cfg.Client.Get(ctx, t.self.Name, metav1.GetOptions{})
	if err == nil && found.UID != t.self.UID {
		err = errAnother
	}
	return err
}
