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
	"reflect"
	"strings"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/ring"
	"k8s.io/klog/v2"
)

// renewalsPerLease leaves room for two lost renewals.
const renewalsPerLease = 3

// report puts what others should know into the next renewal, and asks for one at once
// if they wait for it.
func (t *term) report(d ring.Decision) {
	held := d.Follow
	for _, s := range t.cfg.Sources {
		held = held.Intersect(s.Held())
	}
	t.observer.observe(t.cfg.Clock.Now(), t.machine.View(), d, held, t.cfg.Gate.serving(), t.releasing.Empty())
	t.lock.Lock()
	urgent := t.status.Phase != d.Phase || !ring.CachedRanges(t.status.Cached).Equal(held) || !t.owned.Equal(d.Owned)
	t.status.Phase = d.Phase
	t.status.Cached = ring.StatusCached(held)
	t.owned = d.Owned
	t.lock.Unlock()
	if urgent {
		select {
		case t.beat <- struct{}{}:
		default:
		}
	}
}

// renew keeps the record alive. Each renewal is a status update, sent every third
// of the lease and whenever others wait for what it says.
func (t *term) renew(ctx context.Context) {
	logger := klog.FromContext(ctx)
	period := t.cfg.LeaseDuration / renewalsPerLease
	for {
		sent := t.cfg.Clock.Now()
		err := t.heartbeat(ctx, period)
		next := period
		switch {
		case err == nil:
			t.cfg.Metrics.Renewed(ResultRenewed)
			if t.cfg.Gate.extend(t.self, t.confidence(sent)) {
				t.post(ctx, func() {
					const message = "The gate had shut by itself and is open again: the record was renewed late"
					t.observer.fenced(message)
					logger.Info(message)
					t.cfg.Controller.Acquired(t.cfg.Gate.serving())
				})
			}
		case ctx.Err() != nil:
			return
		case isGone(err), apierrors.IsConflict(err):
			t.cfg.Metrics.Renewed(ResultLost)
			t.observer.fenced("The record is gone while the process lives; it joins anew")
			t.post(ctx, func() {
				logger.Info("The instance's record is gone; will register anew", "reason", err.Error())
				t.lost = true
			})
			return
		default:
			logger.Error(err, "Could not renew the ControllerInstance; will try again", "gateOpenUntil", t.cfg.Gate.Deadline())
			next = period / renewalsPerLease
			t.cfg.Metrics.Renewed(ResultFailed)
			if t.cfg.RenewalFailed != nil {
				t.cfg.RenewalFailed()
			}
		}
		select {
		case <-t.cfg.Clock.After(next - min(next, t.cfg.Clock.Since(sent))):
		case <-t.beat:
		case <-ctx.Done():
			return
		}
	}
}

func (t *term) heartbeat(ctx context.Context, timeout time.Duration) error {
	t.lock.Lock()
	status, owned := t.status, t.owned
	t.lock.Unlock()
	status.Workloads = int64(len(t.cfg.Controller.Keys(owned)))
	status.Busy = int64(t.cfg.Gate.Busy(hashkey.All()))
	t.cfg.Metrics.Load(status.Workloads, status.Busy)
	status.RenewTime = &metav1.MicroTime{Time: t.cfg.Clock.Now()}
	fields, err := statusFields(&status)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// A renewal decides nothing, so it names no resource version, or it would
	// conflict with every write of a donor; the UID keeps it off another's record.
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": t.self.UID}, "status": fields})
	if err != nil {
		return err
	}
	_, err = t.cfg.Client.Patch(ctx, t.self.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}

// statusFields returns all fields of a status for a merge patch. One that is empty,
// which JSON leaves out, is null there, so the patch clears what it said before. Values
// stay as they were marshalled: a key does not fit into the float64 of an any.
func statusFields(status *shardingv1alpha1.ControllerInstanceStatus) (map[string]json.RawMessage, error) {
	data, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	fields := map[string]json.RawMessage{}
	for field := range reflect.TypeFor[shardingv1alpha1.ControllerInstanceStatus]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		fields[name] = json.RawMessage("null")
	}
	return fields, json.Unmarshal(data, &fields)
}
