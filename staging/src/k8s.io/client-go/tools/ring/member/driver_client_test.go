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

package member

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	shardingclient "k8s.io/client-go/kubernetes/typed/sharding/v1alpha1"
	"k8s.io/utils/clock"
)

// driverClient is a process's way to the registry.
type driverClient struct {
	shardingclient.ControllerInstanceInterface
	process *process
}

// travel sends one request. It names the instance as of when it is sent.
func travel[T any](ctx context.Context, p *process, renews bool, arrive func(context.Context, *client) (T, error)) (T, error) {
	p.thaw()
	w := p.world
	sender := NewGate(clock.RealClock{})
	sender.self, _ = p.gate.identity()
	f := w.network.flight(p, p.dice.requests)
	if f.troubled && renews {
		p.trouble("a renewal fares badly", silenced).endAfter(renewalPeriod)
	} else if f.troubled {
		defer p.trouble("a request fares badly", slowed).end()
	}
	c := p.transport.take()
	value, err := carry(ctx, p, f, c, func() (T, error) {
		return arrive(context.WithoutCancel(ctx), &client{registry: w.registry, gate: sender})
	})
	p.transport.put(c, ctx.Err() == nil && p.lives() && !errors.Is(err, errReset))
	return value, err
}

// Create implements ControllerInstanceInterface.
func (c *driverClient) Create(ctx context.Context, instance *shardingv1alpha1.ControllerInstance, options metav1.CreateOptions) (*shardingv1alpha1.ControllerInstance, error) {
	return travel(ctx, c.process, false, func(ctx context.Context, to *client) (*shardingv1alpha1.ControllerInstance, error) {
		return to.Create(ctx, instance, options)
	})
}

// Get implements ControllerInstanceInterface.
func (c *driverClient) Get(ctx context.Context, name string, options metav1.GetOptions) (*shardingv1alpha1.ControllerInstance, error) {
	return travel(ctx, c.process, false, func(ctx context.Context, to *client) (*shardingv1alpha1.ControllerInstance, error) {
		return to.Get(ctx, name, options)
	})
}

// List implements ControllerInstanceInterface.
func (c *driverClient) List(ctx context.Context, options metav1.ListOptions) (*shardingv1alpha1.ControllerInstanceList, error) {
	return travel(ctx, c.process, false, func(ctx context.Context, to *client) (*shardingv1alpha1.ControllerInstanceList, error) {
		return to.List(ctx, options)
	})
}

// Patch implements ControllerInstanceInterface.
func (c *driverClient) Patch(ctx context.Context, name string, patchType types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (*shardingv1alpha1.ControllerInstance, error) {
	renews := slices.Equal(subresources, []string{"status"}) && !bytes.Contains(data, []byte(`"status"`))
	return travel(ctx, c.process, renews, func(ctx context.Context, to *client) (*shardingv1alpha1.ControllerInstance, error) {
		return to.Patch(ctx, name, patchType, data, options, subresources...)
	})
}

// Delete implements ControllerInstanceInterface.
func (c *driverClient) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	_, err := travel(ctx, c.process, false, func(ctx context.Context, to *client) (bool, error) {
		err := to.Delete(ctx, name, options)
		if err == nil {
			c.process.world.ends(*options.Preconditions.UID, true)
		}
		return true, err
	})
	return err
}

// tooOld is what a watch says whose revision the server has forgotten.
var tooOld = &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old resource version"}

// Watch implements ControllerInstanceInterface.
func (c *driverClient) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	p := c.process
	on := p.transport.take()
	f := p.world.network.flight(p, p.dice.watches)
	if f.troubled {
		defer p.trouble("a request fares badly", slowed).end()
	}
	in, err := carry(ctx, p, f, on, func() (watch.Interface, error) {
		return (&client{registry: p.world.registry, gate: NewGate(clock.RealClock{})}).Watch(ctx, options)
	})
	if err != nil {
		p.transport.put(on, false)
		return nil, err
	}
	out := make(chan watch.Event)
	w := watch.NewProxyWatcher(out)
	go func() {
		defer p.transport.put(on, false)
		p.world.network.pump(ctx, p, on, in, out, w.StopChan())
	}()
	return w, nil
}
