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
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/ring"
	"k8s.io/klog/v2"
)

// An etcd that was restored to an earlier state goes on from there: revisions go back, and records
// have the state of then. Whatever lives on what it has seen of the lost history is wrong for good,
// also once revisions have passed the old ones.

// errDiverged says that the member takes part in no ring any more.
var errDiverged = errors.New("the registry has another history than before")

// history is what the registry is known to have had. What is asked for later, and consistent, has
// that or later states.
type history struct {
	lock   sync.Mutex
	newest int64
	// records has the revisions of records, by UID.
	records map[types.UID]int64
}

// saw takes note of a state of a record.
func (h *history) saw(r ring.Record) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.newest = max(h.newest, r.Revision)
	if h.records == nil {
		h.records = map[types.UID]int64{}
	}
	h.records[r.UID] = max(h.records[r.UID], r.Revision)
}

// asks returns what the answer to a request that begins now is to be judged with.
func (h *history) asks() *history {
	h.lock.Lock()
	defer h.lock.Unlock()
	return &history{newest: h.newest, records: maps.Clone(h.records)}
}

// judge returns why a consistent view is of another history; "" if it is of the same.
func (h *history) judge(view *ring.View) string {
	if view.Revision < h.newest {
		return fmt.Sprintf("the registry is at resource version %d, and was at %d before", view.Revision, h.newest)
	}
	for _, r := range view.Records() {
		if reason := judgeRecord(r.Name, r.Revision, h.records[r.UID]); reason != "" {
			return reason
		}
	}
	return ""
}

// revisionOf returns that of the newest known state of a record; 0: none is known.
func (h *history) revisionOf(uid types.UID) int64 {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.records[uid]
}

// judgeRecord returns why a consistent state of a record is of another history than that in which
// it was of a known revision before; "" if it is of the same.
func judgeRecord(name string, revision, known int64) string {
	if revision < known {
		return fmt.Sprintf("ControllerInstance %s is of resource version %d, and was of %d before", name, revision, known)
	}
	return ""
}

// replace takes note of a consistent view.
func (h *history) replace(view *ring.View) {
	h.lock.Lock()
	defer h.lock.Unlock()
	before := h.records
	h.newest, h.records = max(h.newest, view.Revision), map[types.UID]int64{}
	for _, r := range view.Records() {
		h.records[r.UID] = max(before[r.UID], r.Revision)
	}
}

// Diverge ends the member's part in the ring, since what the process has seen is of another
// history, and asks it to exit.
func (m *Member) Diverge(ctx context.Context, reason string) {
	if m.diverged.Swap(true) {
		return
	}
	m.cfg.Gate.expire()
	reason = "etcd was restored to an earlier state, so nothing that this process has seen can be relied on: " + reason
	klog.FromContext(ctx).Error(nil, "Works on nothing any more, and registers no more; the process should be restarted", "reason", reason)
	if m.cfg.Exit != nil {
		m.cfg.Exit(reason)
	}
}

// checkSources ends the member's part in the ring if an informer has noticed another history.
func (t *term) checkSources(ctx context.Context) {
	for _, s := range t.cfg.Sources {
		if reason := s.Diverged(); reason != "" {
			t.Diverge(ctx, reason)
		}
	}
}
