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
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/test/harness/history"
)

// census has the pods as their etcd has them, revision by revision.
type census struct {
	pods    map[string]types.UID
	names   map[string]string
	want    map[types.UID]int
	has     map[types.UID]int
	created int
	// complete are the ReplicaSets that have had all their pods since forget.
	complete map[types.UID]bool
	// excess says which had too many.
	excess []error
}

// follow follows the etcd from its first revision on.
func follow(ctx context.Context, endpoint string) (*history.History[*census], error) {
	c := &census{pods: map[string]types.UID{}, names: map[string]string{}, want: map[types.UID]int{}, has: map[types.UID]int{}, complete: map[types.UID]bool{}}
	return history.Follow(ctx, endpoint, c, (*census).take, []string{"/registry/pods/"})
}

// take takes a change of a pod. A pod that is being deleted does not count.
func (c *census) take(e *clientv3.Event) error {
	key := string(e.Kv.Key)
	owner, counted := c.pods[key]
	var now types.UID
	object, err := history.Object(e)
	if err != nil {
		return err
	}
	if pod, ok := object.(*v1.Pod); ok {
		if ref := metav1.GetControllerOf(pod); ref != nil && pod.DeletionTimestamp == nil {
			now = ref.UID
			c.names[key] = pod.Name
		}
		if e.IsCreate() {
			c.created++
		}
	}
	if counted && owner != now {
		c.has[owner]--
		delete(c.pods, key)
		delete(c.names, key)
	}
	if now == "" || counted && owner == now {
		return nil
	}
	c.pods[key] = now
	c.has[now]++
	switch want, known := c.want[now], c.want[now] > 0; {
	case known && c.has[now] > want:
		c.excess = append(c.excess, fmt.Errorf("ReplicaSet %s has %d pods at revision %d, and wants %d", now, c.has[now], e.Kv.ModRevision, want))
	case known && c.has[now] == want:
		c.complete[now] = true
	}
	return nil
}

// forget forgets which ReplicaSets have had all their pods, but for those that have them now.
func (c *census) forget() {
	for set, want := range c.want {
		c.complete[set] = c.has[set] == want
	}
}

// wasComplete says whether each ReplicaSet has had all its pods since forget.
func (c *census) wasComplete() bool {
	for set := range c.want {
		if !c.complete[set] && c.has[set] != c.want[set] {
			return false
		}
	}
	return true
}

// any returns the name of some pod, or "".
func (c *census) any(intn func(int) int) string {
	skip := intn(len(c.names) + 1)
	for _, name := range c.names {
		if skip--; skip < 0 {
			return name
		}
	}
	return ""
}
