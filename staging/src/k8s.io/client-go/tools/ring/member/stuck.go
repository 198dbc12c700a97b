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
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/klog/v2"
)

// Work that never ends takes no instance off: its successor would meet the same object. Its key
// stays where it is, and people are told.

// stuck is work that lasts for so long that it may never end. It belongs to the deciding goroutine.
type stuck struct {
	// told has what people have been told of, with a description of its key.
	told map[lasting]string
}

// lasting returns the keys of work that has lasted for that long.
func (t *term) lasting(now time.Time, least time.Duration) []int64 {
	var keys []int64
	for _, l := range t.cfg.Gate.lasts(now, least) {
		keys = append(keys, l.key)
	}
	return keys
}

// sayStuck has log, metrics, events and the record name work that may never end.
func (t *term) sayStuck(ctx context.Context, now time.Time) {
	byController := map[string][]lasting{}
	told := map[lasting]string{}
	for _, l := range t.cfg.Gate.lasts(now, t.cfg.HungLimit) {
		byController[l.controller] = append(byController[l.controller], l)
		what, known := t.stuck.told[l]
		if !known {
			what = t.describe(l.key)
			klog.FromContext(ctx).Error(nil, "Work has not ended for long, and may never end: its key cannot change hands meanwhile", "controller", l.controller, "key", hashkey.Format(l.key), "of", what, "since", l.began)
			t.cfg.Events.Eventf(reference(t.observer.self), v1.EventTypeWarning, eventStuck, "Work of %s on %s has not ended since %s", l.controller, what, l.began.UTC().Format(time.RFC3339))
		}
		told[l] = what
	}
	t.stuck.told = told
	for i, s := range t.duties.states {
		ls := byController[s.Name]
		t.cfg.Metrics.Stuck(s.Name, len(ls))
		if len(ls) == 0 || s.Reason != "" {
			continue
		}
		reason := fmt.Sprintf("work on %s has not ended since %s", told[ls[0]], ls[0].began.UTC().Format(time.RFC3339))
		if n := len(ls) - 1; n > 0 {
			reason += fmt.Sprintf(", nor has that on %d more", n)
		}
		if workers := max(t.cfg.Workers(s.Name), 1); len(ls) >= workers {
			reason += fmt.Sprintf("; none of its %d workers is free", workers)
		}
		t.duties.states[i].Reason = reason
	}
	t.news.status.Controllers = controllerStates(t.duties.states)
}

// describe says for people what has that hash key.
func (t *term) describe(key int64) string {
	if t.cfg.Describe == nil {
		return "hash key " + hashkey.Format(key)
	}
	return fmt.Sprintf("hash key %s (%.200s)", hashkey.Format(key), t.cfg.Describe(key))
}
