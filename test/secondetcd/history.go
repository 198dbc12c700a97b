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
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

// history has the pods as their etcd has them, revision by revision.
type history struct {
	mu      sync.Mutex
	pods    map[string]types.UID
	names   map[string]string
	want    map[types.UID]int
	has     map[types.UID]int
	created int
	// complete are the ReplicaSets that have had all their pods since forget.
	complete map[types.UID]bool
	errs     []error
}

const prefix = "/registry/pods/"

// follow follows the etcd from its first revision on.
func follow(ctx context.Context, endpoint string) (*history, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 30 * time.Second})
	if err != nil {
		return nil, err
	}
	h := &history{pods: map[string]types.UID{}, names: map[string]string{}, want: map[types.UID]int{}, has: map[types.UID]int{}, complete: map[types.UID]bool{}}
	changes := client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(1))
	go func() {
		defer client.Close()
		for response := range changes {
			for _, e := range response.Events {
				h.take(e)
			}
			if err := response.Err(); err != nil {
				h.fail(err)
			}
		}
		if ctx.Err() == nil {
			h.fail(errors.New("the watch of etcd has ended"))
		}
	}()
	return h, nil
}

func (h *history) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.errs = append(h.errs, err)
}

// take takes a change of a pod. A pod that is being deleted does not count.
func (h *history) take(e *clientv3.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := string(e.Kv.Key)
	owner, counted := h.pods[key]
	var now types.UID
	if e.Type == clientv3.EventTypePut {
		pod := &v1.Pod{}
		if err := runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), e.Kv.Value, pod); err != nil {
			h.errs = append(h.errs, err)
			return
		}
		if ref := metav1.GetControllerOf(pod); ref != nil && pod.DeletionTimestamp == nil {
			now = ref.UID
			h.names[key] = pod.Name
		}
		if e.IsCreate() {
			h.created++
		}
	}
	if counted && owner != now {
		h.has[owner]--
		delete(h.pods, key)
		delete(h.names, key)
	}
	if now == "" || counted && owner == now {
		return
	}
	h.pods[key] = now
	h.has[now]++
	switch want, known := h.want[now], h.want[now] > 0; {
	case known && h.has[now] > want:
		h.errs = append(h.errs, fmt.Errorf("ReplicaSet %s has %d pods at revision %d, and wants %d", now, h.has[now], e.Kv.ModRevision, want))
	case known && h.has[now] == want:
		h.complete[now] = true
	}
}

// expect says how many pods a ReplicaSet wants.
func (h *history) expect(set types.UID, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.want[set] = n
}

// forget forgets which ReplicaSets have had all their pods, but for those that have them now.
func (h *history) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for set, want := range h.want {
		h.complete[set] = h.has[set] == want
	}
}

// wasComplete says whether each ReplicaSet has had all its pods since forget.
func (h *history) wasComplete() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for set := range h.want {
		if !h.complete[set] && h.has[set] != h.want[set] {
			return false
		}
	}
	return true
}

// any returns the name of some pod, or "".
func (h *history) any(intn func(int) int) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	skip := intn(len(h.names) + 1)
	for _, name := range h.names {
		if skip--; skip < 0 {
			return name
		}
	}
	return ""
}

// count returns the number of pods that were created.
func (h *history) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.created
}

// failure returns what was wrong.
func (h *history) failure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return errors.Join(h.errs...)
}
