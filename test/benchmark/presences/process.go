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
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"sync/atomic"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	shardingclient "k8s.io/client-go/kubernetes/typed/sharding/v1alpha1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/client-go/tools/ring/host"
	"k8s.io/client-go/tools/ring/member"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/shared"
)

const (
	ring  = "crowd"
	lease = 15 * time.Second
	// As of a member: for how long after the end of a presence the record is renewed more often, and
	// how often; when another presence is tried in that time, and later.
	hurry, hurried          = 2 * time.Second, 500 * time.Millisecond
	hurryPause, reopenPause = 100 * time.Millisecond, time.Second
)

// process stands for a process with one instance. Its presences have a connection of their own, and
// so have its other requests.
type process struct {
	record    *shardingv1alpha1.ControllerInstance
	registry  shardingclient.ControllerInstanceInterface
	presences *host.Presences
	// dialer can cut the connection of the presences.
	dialer   *connrotation.Dialer
	renewNow chan struct{}
	hurries  atomic.Bool

	// opened is how many presences it has opened.
	opened *shared.State[*int]
}

func newProcess(config *rest.Config, n int) (*process, error) {
	p := &process{
		record: &shardingv1alpha1.ControllerInstance{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%04d", ring, n)},
			Spec: shardingv1alpha1.ControllerInstanceSpec{
				Ring: ring, HolderIdentity: fmt.Sprintf("host-%d_1_a", n), LeaseDurationSeconds: int32(lease / time.Second), Controllers: []string{"controller"},
			},
		},
		dialer:   connrotation.NewDialer((&net.Dialer{}).DialContext),
		renewNow: make(chan struct{}, 1),
		opened:   shared.New(new(int)),
	}
	own := rest.CopyConfig(config)
	own.QPS, own.ContentType = -1, "application/vnd.kubernetes.protobuf"
	// A transport that is shared with others would be one connection.
	own.Dial = (&net.Dialer{}).DialContext
	client, err := shardingclient.NewForConfig(own)
	if err != nil {
		return nil, err
	}
	p.registry = client.ControllerInstances()
	cut := rest.CopyConfig(config)
	cut.Dial = p.dialer.DialContext
	p.presences, err = host.NewPresences(cut)
	return p, err
}

// register creates the record.
func (p *process) register(ctx context.Context) (err error) {
	p.record, err = p.registry.Create(ctx, p.record, metav1.CreateOptions{})
	return err
}

// live renews the record until ctx ends, and calls lose if that is lost.
func (p *process) live(ctx context.Context, lose func(error)) {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.record.UID}})
	if err != nil {
		panic(err)
	}
	for {
		sent, cancel := context.WithTimeout(ctx, lease)
		_, err := p.registry.Patch(sent, p.record.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
		cancel()
		switch {
		case err == nil, ctx.Err() != nil:
		case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, fence.CauseLeaseLost):
			lose(fmt.Errorf("%s has lost its record: %w", p.record.Name, err))
			return
		default:
			log.Printf("%s could not renew its record: %v", p.record.Name, err)
		}
		select {
		case <-time.After(wait.Jitter(fence.RenewalPeriod(lease), 0.1)):
		case <-p.renewNow:
		case <-ctx.Done():
			return
		}
	}
}

// watch watches the ring from that resource version on, until ctx ends.
func (p *process) watch(ctx context.Context, resourceVersion string) error {
	w, err := p.registry.Watch(ctx, metav1.ListOptions{FieldSelector: "spec.ring=" + ring, ResourceVersion: resourceVersion})
	if err != nil {
		return err
	}
	go func() {
		for range w.ResultChan() {
		}
		if ctx.Err() == nil {
			log.Printf("the watch of %s has ended", p.record.Name)
		}
	}()
	return nil
}

// bePresent keeps a presence open until ctx ends, and tries as often as a member does.
func (p *process) bePresent(ctx context.Context) {
	self := fence.Identity{Ring: ring, Name: p.record.Name, UID: p.record.UID}
	var ended time.Time
	for why := fence.PresenceFirst; ctx.Err() == nil; {
		presence, err := p.presences.Open(ctx, self, why)
		if err != nil {
			pause := wait.Jitter(reopenPause, 0.5)
			switch {
			case errors.Is(err, member.ErrUnanswered):
				ended = time.Now()
				go p.hurry(ctx)
			case errors.Is(err, member.ErrNoPresence):
				log.Printf("%s: %v", p.record.Name, err)
				return
			case time.Since(ended) < hurry:
				pause = hurryPause
			}
			_ = harness.Sleep(ctx, pause)
			continue
		}
		p.opened.Change(func(opened *int) error {
			*opened++
			return nil
		})
		if why = fence.PresenceLost; presence.Wait() {
			why = fence.PresenceNext
		}
		ended = time.Now()
		go p.hurry(ctx)
	}
}

func (p *process) hurry(ctx context.Context) {
	if !p.hurries.CompareAndSwap(false, true) {
		return
	}
	defer p.hurries.Store(false)
	for range hurry / hurried {
		select {
		case p.renewNow <- struct{}{}:
		default:
		}
		if harness.Sleep(ctx, hurried) != nil {
			return
		}
	}
}
