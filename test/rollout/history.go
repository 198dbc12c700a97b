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
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

// history has the pods of each Deployment as etcd has them, revision by revision.
type history struct {
	mu sync.Mutex
	// owners has the Deployment of each ReplicaSet, and pods each live pod by its key.
	owners map[types.UID]types.UID
	pods   map[string]pod
	counts map[types.UID]*count
	seen   extremes
	err    error
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

const (
	replicaSets = "/registry/replicasets/"
	pods        = "/registry/pods/"
)

// follow follows etcd from its first revision on.
func follow(ctx context.Context, endpoint string) (*history, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 30 * time.Second})
	if err != nil {
		return nil, err
	}
	h := &history{owners: map[types.UID]types.UID{}, pods: map[string]pod{}, counts: map[types.UID]*count{}}
	h.reset()
	// A single watch, because only that preserves the order between resources.
	changes := client.Watch(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithRev(1))
	go func() {
		defer client.Close()
		for response := range changes {
			h.take(response)
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
	h.err = errors.Join(h.err, err)
}

// failure returns what kept it from following etcd.
func (h *history) failure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// reset returns what was seen since the last call.
func (h *history) reset() extremes {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := h.seen
	h.seen = extremes{fewest: replicas}
	return seen
}

func (h *history) take(response clientv3.WatchResponse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = errors.Join(h.err, response.Err())
	for _, e := range response.Events {
		key := string(e.Kv.Key)
		switch {
		case strings.HasPrefix(key, replicaSets) && e.Type == clientv3.EventTypePut:
			rs := &apps.ReplicaSet{}
			h.err = errors.Join(h.err, decode(e.Kv.Value, rs))
			if owner := metav1.GetControllerOfNoCopy(rs); owner != nil {
				h.owners[rs.UID] = owner.UID
			}
		case strings.HasPrefix(key, pods):
			h.takePod(key, e)
		}
	}
}

func (h *history) takePod(key string, e *clientv3.Event) {
	before, was := h.pods[key]
	var now pod
	is := false
	if e.Type == clientv3.EventTypePut {
		p := &v1.Pod{}
		h.err = errors.Join(h.err, decode(e.Kv.Value, p))
		if owner := metav1.GetControllerOfNoCopy(p); owner != nil && p.DeletionTimestamp == nil && p.Status.Phase != v1.PodFailed && p.Status.Phase != v1.PodSucceeded {
			now.deployment, is = h.owners[owner.UID]
		}
		for _, c := range p.Status.Conditions {
			now.available = now.available || c.Type == v1.PodReady && c.Status == v1.ConditionTrue
		}
	}
	if was {
		delete(h.pods, key)
		h.add(before, -1)
	}
	if is {
		h.pods[key] = now
		h.add(now, 1)
	}
	for _, p := range []pod{before, now} {
		h.look(p.deployment)
	}
}

// add adds n pods like p.
func (h *history) add(p pod, n int) {
	c := h.counts[p.deployment]
	if c == nil {
		c = &count{}
		h.counts[p.deployment] = c
	}
	c.live += n
	if p.available {
		c.available += n
	}
}

// look judges the pods of a Deployment.
func (h *history) look(deployment types.UID) {
	c := h.counts[deployment]
	if c == nil {
		return
	}
	c.complete = c.complete || c.available == replicas
	if !c.complete {
		return
	}
	h.seen.most, h.seen.fewest = max(h.seen.most, c.live), min(h.seen.fewest, c.available)
	if c.live > replicas+maxSurge {
		h.seen.more++
	}
	if c.available < replicas-maxUnavailable {
		h.seen.fewer++
	}
}

func decode(value []byte, into runtime.Object) error {
	return runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), value, into)
}
