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
	"strconv"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/ring"
	"k8s.io/klog/v2"
)

const (
	// conflictPause is how long a member waits after a conflict: the record that
	// changed is on its way in the log.
	conflictPause = 10 * time.Millisecond
	// failurePause is how long it waits after any other failure.
	failurePause = 200 * time.Millisecond
)

// write sends w beside the deciding goroutine, which gets the result. It may not be
// applied after the gate's deadline: by then another may own what it gives away.
func (t *term) write(ctx context.Context, w ring.Write) {
	logger := klog.FromContext(ctx)
	t.writing = true
	limited, cancel := context.WithDeadline(ctx, t.cfg.Gate.Deadline())
	go func() {
		defer cancel()
		settled, err := t.send(limited, w)
		t.post(ctx, func() {
			t.writing = false
			switch {
			case err == nil:
				logger.Info("Wrote to the ring", "reason", w.Reason, "detail", w.Detail, "record", w.Name,
					"key", hashkey.FormatOptional(w.Key), "nextKey", hashkey.FormatOptional(w.Next), "donor", w.Donor)
				t.settled = settled
				t.lost = t.lost || w.Delete
			case apierrors.IsConflict(err), apierrors.IsNotFound(err):
				logger.V(2).Info("The record has changed since; will decide again", "reason", w.Reason, "record", w.Name)
				t.retryAt = t.cfg.Clock.Now().Add(conflictPause)
			default:
				logger.Error(err, "Could not write to the ring; will decide again", "reason", w.Reason, "record", w.Name)
				t.retryAt = t.cfg.Clock.Now().Add(failurePause)
			}
		})
	}()
}

// send makes the write, and returns the revision that the log has to reach before the
// next one is decided on.
func (t *term) send(ctx context.Context, w ring.Write) (settled int64, err error) {
	if w.Delete {
		err := t.cfg.Client.Delete(ctx, w.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &w.UID}})
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return 0, err
	}
	result, err := t.patch(ctx, w.Name,
		map[string]any{"uid": w.UID, "resourceVersion": strconv.FormatInt(w.Revision, 10)},
		"spec", map[string]any{"hashKey": w.Key, "nextHashKey": w.Next, "donor": w.Donor})
	if err != nil {
		return 0, err
	}
	settled, err = strconv.ParseInt(result.ResourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("ControllerInstance %s was written and has resourceVersion %q, want a number: %w", w.Name, result.ResourceVersion, err)
	}
	return settled, nil
}

// patch merges fields into spec or status, the part, of the record of that name.
// metadata says what the record must be.
func (t *term) patch(ctx context.Context, name string, metadata map[string]any, part string, fields any, subresources ...string) (*shardingv1alpha1.ControllerInstance, error) {
	body, err := json.Marshal(map[string]any{"metadata": metadata, part: fields})
	if err != nil {
		return nil, err
	}
	return t.cfg.Client.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{}, subresources...)
}
