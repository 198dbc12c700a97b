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

// Package history follows what an etcd stores, from its first revision on.
package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/test/harness/shared"
)

// Registry is the prefix of all keys of an API server.
const Registry = "/registry/"

// Connect returns a client of the etcd at that URL.
func Connect(url string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{url}, DialTimeout: 10 * time.Second})
}

// Watch passes all changes of the keys with a prefix to take, those of some revisions at a time and
// in order, until ctx ends or take fails. The error is the cause of that.
func Watch(ctx context.Context, client *clientv3.Client, prefix string, take func([]*clientv3.Event) error, options ...clientv3.OpOption) error {
	// A single watch, because only that preserves the order between resources.
	for response := range client.Watch(ctx, prefix, append(options, clientv3.WithPrefix(), clientv3.WithRev(1))...) {
		if err := response.Err(); err != nil {
			return err
		}
		if err := take(response.Events); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.New("the watch of etcd has ended")
}

// History is what the changes in an etcd have made of a state. It has failed once it may lack one.
type History[T any] struct {
	*shared.State[T]
	Client *clientv3.Client
}

// Follow has take change a state by all changes of the keys with these prefixes, until ctx ends,
// also while API servers are down. Those with one prefix come in order. An error of take fails the
// history, which goes on.
func Follow[T any](ctx context.Context, url string, state T, take func(T, *clientv3.Event) error, prefixes []string, options ...clientv3.OpOption) (*History[T], error) {
	client, err := Connect(url)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = client.Close() })
	h := &History[T]{shared.New(state), client}
	takeAll := func(events []*clientv3.Event) error {
		h.Change(func(state T) (failed error) {
			for _, e := range events {
				if err := take(state, e); err != nil && failed == nil {
					failed = fmt.Errorf("revision %d of %s: %w", e.Kv.ModRevision, e.Kv.Key, err)
				}
			}
			return failed
		})
		return nil
	}
	for _, prefix := range prefixes {
		go func() {
			if err := Watch(ctx, client, prefix, takeAll, slices.Clone(options)...); ctx.Err() == nil {
				h.Fail(err)
			}
		}()
	}
	return h, nil
}

// Object returns the object that a change has stored or, if the watch asks for previous values, has
// removed. It is nil if there is none, or one of a kind that clients do not know.
func Object(e *clientv3.Event) (runtime.Object, error) {
	stored := e.Kv
	if e.Type == clientv3.EventTypeDelete {
		stored = e.PrevKv
	}
	if stored == nil || !bytes.HasPrefix(stored.Value, []byte("k8s\x00")) && !bytes.HasPrefix(stored.Value, []byte("{")) {
		return nil, nil
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(stored.Value, nil, nil)
	if runtime.IsNotRegisteredError(err) || runtime.IsMissingKind(err) {
		return nil, nil
	}
	return object, err
}
