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
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/klog/v2"
)

// renewalsPerLease leaves room for two lost renewals.
const renewalsPerLease = 3

// renew keeps the record alive, every third of the lease, as long as the instance is of
// use: the deciding goroutine comes round, and the workers get on. Otherwise its record
// expires, and another takes its range over.
func (t *term) renew(ctx context.Context) {
	defer utilruntime.HandleCrashWithContext(ctx)
	logger := klog.FromContext(ctx)
	period := t.cfg.LeaseDuration / renewalsPerLease
	sent, next, withheld := t.began, period, false
	for {
		select {
		case <-t.cfg.Clock.After(next - min(next, t.cfg.Clock.Since(sent))):
		case <-ctx.Done():
			return
		}
		sent, next = t.cfg.Clock.Now(), period/renewalsPerLease
		if err := t.hung(sent, period); err != nil {
			t.cfg.Metrics.Renewed(ResultWithheld)
			if !withheld {
				logger.Error(err, "Does not renew the ControllerInstance, so that another takes its range over", "gateOpenUntil", t.cfg.Gate.Deadline())
				t.observer.withheld(err)
			}
			withheld = true
			continue
		}
		withheld = false
		switch err := t.sendRenewal(ctx, period); {
		case err == nil:
			next = period
			t.cfg.Metrics.Renewed(ResultRenewed)
			if t.cfg.Gate.extend(t.self, t.confidence(sent)) {
				t.post(ctx, func() {
					const message = "The gate had shut by itself and is open again: the record was renewed late"
					t.observer.fenced(message)
					logger.Info(message)
					t.acquired(t.cfg.Gate.serving())
				})
			}
		case ctx.Err() != nil:
			return
		case isLost(err):
			t.cfg.Metrics.Renewed(ResultLost)
			t.post(ctx, func() { t.lose(logger, err) })
			return
		default:
			logger.Error(err, "Could not renew the ControllerInstance; will try again", "gateOpenUntil", t.cfg.Gate.Deadline())
			t.cfg.Metrics.Renewed(ResultFailed)
			if t.cfg.RenewalFailed != nil && !fence.IsFenced(err) {
				t.cfg.RenewalFailed()
			}
		}
	}
}

// hung says why the instance is of no use; nil if it is.
func (t *term) hung(now time.Time, period time.Duration) error {
	if away := now.Sub(t.lastRound()); away > period {
		return fmt.Errorf("no decision was made for %v", away)
	}
	if stalled := t.cfg.Gate.stalled(now); stalled >= t.cfg.HungLimit {
		return fmt.Errorf("work is under way, and for %v none began or ended, nor did a request of it", stalled)
	}
	return nil
}

// isLost says whether the answer to a renewal means that there is no such record any more:
// it is gone, it is another's of the same name, or its lease has ended. A refusal by the
// fence does not: the epoch may have been raised while the renewal was on its way.
func isLost(err error) bool {
	return isGone(err) || apierrors.IsConflict(err) && !fence.IsFenced(err)
}

// sendRenewal sends a patch of the status that changes nothing. The server stores nothing
// then, and keeps the record's lease alive; the UID keeps it off another's record.
func (t *term) sendRenewal(ctx context.Context, timeout time.Duration) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": t.self.UID}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err = t.cfg.Client.Patch(ctx, t.self.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}
