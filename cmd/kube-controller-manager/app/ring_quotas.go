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

package app

import (
	"context"
	"slices"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// recountAfter is when quotas are counted again, after an instance has gone or has given keys away.
// An API server charges a quota before it stores what is created, and what it then refuses for its
// instance stays charged. It works on a request for up to a minute.
var recountAfter = []time.Duration{2 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute}

// recountQuotas has all quotas counted again while writes of instances may be refused, until ctx
// ends.
func (e *ringElection) recountQuotas(ctx context.Context, recount func(context.Context)) {
	if e == nil {
		return
	}
	changed := make(chan struct{}, 1)
	tell := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	handler, err := e.records.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			if hasGiven(before.(*shardingv1alpha1.ControllerInstance), after.(*shardingv1alpha1.ControllerInstance)) {
				tell()
			}
		},
		DeleteFunc: func(any) { tell() },
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Quotas are not counted again when instances of rings go")
		return
	}
	defer e.records.RemoveEventHandler(handler)
	recountAfterChanges(ctx, changed, recount)
}

// hasGiven says whether an instance has given keys away, or is another.
func hasGiven(before, after *shardingv1alpha1.ControllerInstance) bool {
	return before.UID != after.UID || before.Status.Epoch != after.Status.Epoch
}

// recountAfterChanges calls recount at each of recountAfter after the last change, until ctx ends.
// A change does not put off what is due soon.
func recountAfterChanges(ctx context.Context, changed <-chan struct{}, recount func(context.Context)) {
	var due []time.Time
	for {
		var timer <-chan time.Time
		if len(due) > 0 {
			timer = time.After(time.Until(due[0]))
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
			soon := time.Now().Add(recountAfter[0])
			due = slices.DeleteFunc(due, func(at time.Time) bool { return at.After(soon) })
			for _, after := range recountAfter {
				if at := time.Now().Add(after); len(due) == 0 || at.Sub(due[len(due)-1]) >= recountAfter[0] {
					due = append(due, at)
				}
			}
		case <-timer:
			due = due[1:]
			recount(ctx)
		}
	}
}
