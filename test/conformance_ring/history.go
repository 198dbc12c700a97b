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
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/test/utils/ringaudit"
)

// history feeds a checker with what etcd and the audit log have, as they grow.
type history struct {
	client *clientv3.Client
	file   *os.File
	lines  *json.Encoder

	lock sync.Mutex
	*checker
	failed error
	// moved is closed and replaced after each change.
	moved chan struct{}
}

// line is one of history.jsonl: a change of a record, a workload, a dependent, or what else lies in
// etcd.
type line struct {
	Revision   int64     `json:"revision"`
	Seen       time.Time `json:"seen"`
	Object     string    `json:"object"`
	Gone       bool      `json:"gone,omitempty"`
	Deleted    bool      `json:"deleted,omitempty"`
	Generation int64     `json:"generation,omitempty"`
	Controller string    `json:"controller,omitempty"`
	// Record is the ControllerInstance, and Status that of a workload.
	Record *shardingv1alpha1.ControllerInstance `json:"record,omitempty"`
	Status any                                  `json:"status,omitempty"`
}

// follow follows a cluster's etcd until ctx ends. It writes history.jsonl to dir.
func follow(ctx context.Context, endpoint, dir string, c *checker) (*history, error) {
	file, err := os.Create(filepath.Join(dir, "history.jsonl"))
	if err != nil {
		return nil, err
	}
	h := &history{file: file, lines: json.NewEncoder(file), checker: c, moved: make(chan struct{})}
	h.client, err = ringaudit.Follow(ctx, endpoint, h.take, h.fail)
	return h, err
}

func (h *history) fail(err error) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.failLocked(err)
}

func (h *history) failLocked(err error) {
	if h.failed == nil {
		h.failed = err
	}
}

func (h *history) take(response clientv3.WatchResponse) {
	if err := response.Err(); err != nil {
		h.fail(err)
		return
	}
	h.lock.Lock()
	defer h.lock.Unlock()
	for _, event := range response.Events {
		if err := h.apply(event); err != nil {
			h.failLocked(fmt.Errorf("revision %d of %s: %w", event.Kv.ModRevision, event.Kv.Key, err))
		}
	}
	h.movedLocked()
}

func (h *history) movedLocked() {
	close(h.moved)
	h.moved = make(chan struct{})
}

// unread are prefixes of what is never judged.
var unread = []string{"/registry/events/", "/registry/leases/", "/registry/masterleases/"}

func (h *history) apply(event *clientv3.Event) error {
	for _, prefix := range unread {
		if strings.HasPrefix(string(event.Kv.Key), prefix) {
			return nil
		}
	}
	gone := event.Type == clientv3.EventTypeDelete
	stored := event.Kv
	if gone {
		stored = event.PrevKv
	}
	if stored == nil {
		return nil
	}
	revision := event.Kv.ModRevision
	written := line{Revision: revision, Seen: time.Now(), Gone: gone}
	if strings.HasPrefix(string(event.Kv.Key), "/registry/controllerinstances/") {
		r := &shardingv1alpha1.ControllerInstance{}
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(stored.Value, nil, r); err != nil {
			return err
		}
		h.recordStored(r, revision, gone, written.Seen)
		written.Object, written.Record = "ControllerInstance "+r.Name, r
		return h.lines.Encode(written)
	}
	o, err := decode(stored.Value)
	if o == nil || err != nil {
		return err
	}
	o.SetResourceVersion(strconv.FormatInt(stored.ModRevision, 10))
	written.Object, written.Deleted, written.Generation, written.Controller = idOf(o).String(), !isLive(o), o.GetGeneration(), controllerOf(o)
	if idOf(o).kind == h.config.Workload.kind().GroupKind() {
		written.Status = o.Object["status"]
	}
	if err := h.stored(o, revision, gone); err != nil {
		return err
	}
	return h.lines.Encode(written)
}

// decode returns an object as it is stored, or nil if it is of a kind that no client knows.
func decode(value []byte) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	if bytes.HasPrefix(value, []byte("{")) {
		if err := utiljson.Unmarshal(value, &o.Object); err != nil {
			return nil, err
		}
		if o.GetKind() == "" || o.GetUID() == "" {
			return nil, nil
		}
		return o, nil
	}
	typed, kind, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		return nil, nil
	}
	if err != nil {
		// Some of what is stored is no object, such as the ranges of ports.
		return nil, nil
	}
	if o.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed); err != nil {
		return nil, err
	}
	o.SetGroupVersionKind(*kind)
	if o.GetUID() == "" {
		return nil, nil
	}
	return o, nil
}

// hear passes a request of the audit log to the checker.
func (h *history) hear(r *request) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.heard(r)
	h.movedLocked()
}

// see calls f with the checker locked. f must not block.
func (h *history) see(f func(*checker)) {
	h.lock.Lock()
	defer h.lock.Unlock()
	f(h.checker)
}

// await waits until f returns true. It calls f after each change; f must not block.
func (h *history) await(ctx context.Context, what string, f func(*checker) bool) error {
	for {
		h.lock.Lock()
		ok, failed, moved := f(h.checker), h.failed, h.moved
		h.lock.Unlock()
		switch {
		case failed != nil:
			return failed
		case ok:
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
	}
}
