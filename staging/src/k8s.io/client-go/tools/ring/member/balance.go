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
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/ring"
	"k8s.io/klog/v2"
)

// dryRunInterval is how often the same move is proposed again.
const dryRunInterval = time.Minute

// dryRun is the last move that was only proposed.
type dryRun struct {
	boundary, receiver string
	at                 time.Time
}

// propose tells of a move that would even out the load, and that nobody makes.
func (t *term) propose(ctx context.Context, now time.Time, d ring.Decision) {
	p, last := d.Proposal, &t.dryRun
	if p == nil || d.Write != nil || p.Boundary == last.boundary && p.Receiver == last.receiver && now.Sub(last.at) < dryRunInterval {
		return
	}
	*last = dryRun{p.Boundary, p.Receiver, now}
	klog.FromContext(ctx).Info("Would move a boundary to even out the load", "reason", p)
	t.cfg.Metrics.Balanced(ResultDryRun)
	if r, ok := t.machine.View().Get(p.Boundary); ok {
		t.cfg.Events.Eventf(reference(r), v1.EventTypeNormal, eventBalance, "Dry run: %s", p)
	}
}
