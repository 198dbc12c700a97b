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
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/test/harness/history"
)

// census has the pods of each Deployment as etcd has them, revision by revision.
type census struct {
	// owners has the Deployment of each ReplicaSet, and pods each live pod by its key.
	owners map[types.UID]types.UID
	pods   map[string]pod
	counts map[types.UID]*count
	seen   extremes
}

// pod is a pod that is neither finished nor being deleted.
type pod struct {
	deployment types.UID
	available  bool
}

// count counts the pods of a Deployment.
type count struct {
	live, available int
	// complete is set once all were available.
	complete bool
}

// extremes are the most live and the fewest available pods of any Deployment, and at how many
// changes one had more than it may, or fewer than it must.
type extremes struct{ most, fewest, more, fewer int }

// follow follows etcd from its first revision on.
func follow(ctx context.Context, endpoint string) (*history.History[*census], error) {
	c := &census{owners: map[types.UID]types.UID{}, pods: map[string]pod{}, counts: map[types.UID]*count{}}
	c.reset()
	return history.Follow(ctx, endpoint, c, (*census).take, []string{history.Registry})
}

// reset returns what was seen since the last call.
func (c *census) reset() extremes {
	seen := c.seen
	c.seen = extremes{fewest: replicas}
	return seen
}

func (c *census) take(e *clientv3.Event) error {
	object, err := history.Object(e)
	switch o := object.(type) {
	case *apps.ReplicaSet:
		if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
			c.owners[o.UID] = owner.UID
		}
	case *v1.Pod:
		var now pod
		is := false
		if owner := metav1.GetControllerOfNoCopy(o); owner != nil && o.DeletionTimestamp == nil && o.Status.Phase != v1.PodFailed && o.Status.Phase != v1.PodSucceeded {
			now.deployment, is = c.owners[owner.UID]
		}
		for _, condition := range o.Status.Conditions {
			now.available = now.available || condition.Type == v1.PodReady && condition.Status == v1.ConditionTrue
		}
		c.set(string(e.Kv.Key), now, is)
	case nil:
		// It may be the end of a pod.
		c.set(string(e.Kv.Key), pod{}, false)
	}
	return err
}

// set says what pod is stored under a key, if any is.
func (c *census) set(key string, now pod, is bool) {
	before, was := c.pods[key]
	if was {
		delete(c.pods, key)
		c.add(before, -1)
	}
	if is {
		c.pods[key] = now
		c.add(now, 1)
	}
	for _, p := range []pod{before, now} {
		c.look(p.deployment)
	}
}

// add adds n pods like p.
func (c *census) add(p pod, n int) {
	of := c.counts[p.deployment]
	if of == nil {
		of = &count{}
		c.counts[p.deployment] = of
	}
	of.live += n
	if p.available {
		of.available += n
	}
}

// look judges the pods of a Deployment.
func (c *census) look(deployment types.UID) {
	of := c.counts[deployment]
	if of == nil {
		return
	}
	of.complete = of.complete || of.available == replicas
	if !of.complete {
		return
	}
	c.seen.most, c.seen.fewest = max(c.seen.most, of.live), min(c.seen.fewest, of.available)
	if of.live > replicas+maxSurge {
		c.seen.more++
	}
	if of.available < replicas-maxUnavailable {
		c.seen.fewer++
	}
}
