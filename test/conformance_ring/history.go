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
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/test/harness/history"
)

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

// follow has a checker take what etcd stores, until ctx ends. It writes history.jsonl to dir.
func follow(ctx context.Context, endpoint, dir string, c *checker) (*history.History[*checker], error) {
	file, err := os.Create(filepath.Join(dir, "history.jsonl"))
	if err != nil {
		return nil, err
	}
	lines := json.NewEncoder(file)
	return history.Follow(ctx, endpoint, c, func(c *checker, event *clientv3.Event) error {
		written, err := c.apply(event)
		if written == nil || err != nil {
			return err
		}
		return lines.Encode(written)
	}, []string{history.Registry}, clientv3.WithPrevKV())
}

// unread are prefixes of what is never judged.
var unread = []string{"/registry/events/", "/registry/leases/", "/registry/masterleases/"}

// apply takes a change. It returns nil for what is not judged.
func (c *checker) apply(event *clientv3.Event) (*line, error) {
	for _, prefix := range unread {
		if strings.HasPrefix(string(event.Kv.Key), prefix) {
			return nil, nil
		}
	}
	gone := event.Type == clientv3.EventTypeDelete
	stored := event.Kv
	if gone {
		stored = event.PrevKv
	}
	if stored == nil {
		return nil, nil
	}
	revision := event.Kv.ModRevision
	written := &line{Revision: revision, Seen: time.Now(), Gone: gone}
	if strings.HasPrefix(string(event.Kv.Key), "/registry/controllerinstances/") {
		r := &shardingv1alpha1.ControllerInstance{}
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(stored.Value, nil, r); err != nil {
			return nil, err
		}
		c.recordStored(r, revision, gone, written.Seen)
		written.Object, written.Record = "ControllerInstance "+r.Name, r
		return written, nil
	}
	o, err := decode(stored.Value)
	if o == nil || err != nil {
		return nil, err
	}
	o.SetResourceVersion(strconv.FormatInt(stored.ModRevision, 10))
	written.Object, written.Deleted, written.Generation, written.Controller = idOf(o).String(), !isLive(o), o.GetGeneration(), controllerOf(o)
	if idOf(o).kind == c.config.Workload.kind().GroupKind() {
		written.Status = o.Object["status"]
	}
	return written, c.stored(o, revision, gone)
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
