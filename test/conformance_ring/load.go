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

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/test/harness"
)

const (
	// burst is how many workloads are changed at once, at most, every loadInterval.
	burst        = 10
	loadInterval = 30 * time.Millisecond
	// keeper is a finalizer that keeps a dependent from going until the suite lets it go.
	keeper = "ring-conformance.sharding.k8s.io/keeper"
	// maxKept is how many dependents are kept at most. Where the load makes two workloads of three
	// dependents anew in a second, each is kept for three seconds.
	maxKept = 20
)

// create creates a workload under a new name.
func (r *run) create(ctx context.Context) error {
	r.created++
	return r.createAs(ctx, fmt.Sprintf("workload-%d", r.created))
}

func (r *run) createAs(ctx context.Context, name string) error {
	o := (&unstructured.Unstructured{Object: r.config.Workload.Object}).DeepCopy()
	o.SetName(name)
	_, err := r.workloads.Create(ctx, o, metav1.CreateOptions{})
	return err
}

// load changes the workloads at random until ctx ends.
func (r *run) load(ctx context.Context) {
	random := rand.New(rand.NewPCG(r.seed, r.rand.Uint64()))
	for ctx.Err() == nil {
		// Several at once, so that there is work under way when a range changes hands.
		for range 1 + random.IntN(burst) {
			// A request may fail because of the fault.
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			r.change(bounded, random)
			r.makeAnew(bounded)
			if kept := r.kept(); len(kept) > maxKept {
				_ = r.release(bounded, kept[0])
			}
			cancel()
		}
		_ = harness.Sleep(ctx, loadInterval)
	}
}

// change creates, deletes or patches a workload.
func (r *run) change(ctx context.Context, random *rand.Rand) {
	var names []string
	r.history.See(func(c *checker) {
		for _, w := range c.workloads {
			if isLive(w.object) {
				names = append(names, w.object.GetName())
			}
		}
	})
	slices.Sort(names)
	count := r.config.Workload.Count
	if len(names) < (count+1)/2 {
		_ = r.create(ctx)
		return
	}
	name := names[random.IntN(len(names))]
	switch n := random.IntN(16); {
	case n < 2 && len(names) < count:
		_ = r.create(ctx)
	case n == 2:
		_ = r.workloads.Delete(ctx, name, metav1.DeleteOptions{})
	case n == 3:
		if random.IntN(2) == 0 {
			r.keepDependents(ctx, name)
		}
		if r.workloads.Delete(ctx, name, metav1.DeleteOptions{}) == nil {
			r.again = append(r.again, name)
		}
	default:
		patches := r.config.Workload.Patches
		_, _ = r.workloads.Patch(ctx, name, types.MergePatchType, []byte(patches[random.IntN(len(patches))]), metav1.PatchOptions{})
	}
}

// makeAnew makes the workloads anew that have gone: at once, unless they had finalizers.
func (r *run) makeAnew(ctx context.Context) {
	r.again = slices.DeleteFunc(r.again, func(name string) bool {
		return !apierrors.IsAlreadyExists(r.createAs(ctx, name))
	})
}

// keepDependents keeps the dependents of a workload from going.
func (r *run) keepDependents(ctx context.Context, name string) {
	var dependents []*unstructured.Unstructured
	r.history.See(func(c *checker) {
		for uid, w := range c.workloads {
			if w.object.GetName() == name {
				dependents = append(dependents, c.dependents(func(o *unstructured.Unstructured) bool {
					return isLive(o) && controllerOf(o) == string(uid)
				})...)
			}
		}
	})
	for _, o := range dependents {
		_ = r.keep(ctx, o)
	}
}

// kept returns the dependents that are kept, those first that have not changed for longest: how
// long one is kept tells how long an operator may pause before it tries again.
func (r *run) kept() (all []*unstructured.Unstructured) {
	r.history.See(func(c *checker) { all = c.dependents(isKept) })
	slices.SortFunc(all, func(a, b *unstructured.Unstructured) int { return cmp.Compare(revisionOf(a), revisionOf(b)) })
	return all
}

func isKept(o *unstructured.Unstructured) bool { return slices.Contains(o.GetFinalizers(), keeper) }

// letGo lets all go that are kept, and those whose workload is gone, until ctx ends. It returns why
// it could not do so the last time. The garbage collector may have missed that a workload is gone:
// where the API server restarts, all that its informer is told of one that was made anew meanwhile
// is a change. And an operator that does not know it yet makes dependents for it.
func (r *run) letGo(ctx context.Context) error {
	for {
		var left []*unstructured.Unstructured
		r.history.See(func(c *checker) {
			left = c.dependents(func(o *unstructured.Unstructured) bool {
				_, gone := c.past[types.UID(controllerOf(o))]
				return isKept(o) || isLive(o) && gone
			})
		})
		var failed []error
		for _, o := range left {
			do := r.remove
			if isKept(o) {
				do = r.release
			}
			failed = append(failed, do(ctx, o))
		}
		if harness.Sleep(ctx, loadInterval) != nil {
			return errors.Join(failed...)
		}
	}
}

// remove deletes a dependent.
func (r *run) remove(ctx context.Context, o *unstructured.Unstructured) error {
	client, err := r.clientFor(ctx, o)
	if err != nil {
		return err
	}
	uid := o.GetUID()
	return client.Delete(ctx, o.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
}

// keep keeps a dependent from going.
func (r *run) keep(ctx context.Context, o *unstructured.Unstructured) error {
	return r.setFinalizers(ctx, o, append(o.GetFinalizers(), keeper))
}

// release lets a dependent go that is kept.
func (r *run) release(ctx context.Context, o *unstructured.Unstructured) error {
	return r.setFinalizers(ctx, o, slices.DeleteFunc(o.GetFinalizers(), func(f string) bool { return f == keeper }))
}

// setFinalizers gives a dependent these finalizers, if it is as it was seen last.
func (r *run) setFinalizers(ctx context.Context, o *unstructured.Unstructured, finalizers []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion(), "finalizers": finalizers,
	}})
	if err != nil {
		return err
	}
	client, err := r.clientFor(ctx, o)
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
