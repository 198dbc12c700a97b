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

package app

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/ring/host"
	"k8s.io/client-go/tools/ring/member"
	ringmetrics "k8s.io/component-base/metrics/prometheus/controllerring"
	clientbuilder "k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	controllerring "k8s.io/kubernetes/pkg/controller/ring"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/utils/clock"
)

// ringComponent names what belongs to no controller on a ring: the client of the registry,
// and the source of events on its records.
const ringComponent = "controller-ring"

// abandonLimit bounds the deletion of records as the process ends.
const abandonLimit = time.Second

// ringHost runs the ring controllers of this process.
type ringHost struct {
	*host.Process
	config *config.CompletedConfig
	// enabled are the ring controllers that --controllers enables.
	enabled                          []string
	rootClientBuilder, clientBuilder clientbuilder.ControllerClientBuilder
	// whole has what the rings hold all of, and mapper finds the resource of a kind.
	whole  *controllerring.Whole
	mapper meta.RESTMapper

	abandon sync.Once
}

// share makes what the rings of this process share, until ctx ends.
func (h *ringHost) share(ctx context.Context) error {
	reader, err := ringReader(h.rootClientBuilder)
	if err != nil {
		return err
	}
	h.whole = controllerring.NewWhole(ctx, reader, ResyncPeriod(h.config)())
	if h.mapper, err = newRingMapper(ctx, h.rootClientBuilder); err != nil {
		return err
	}
	config, err := h.rootClientBuilder.Config(ringComponent)
	if err != nil {
		return fmt.Errorf("making a client for the ring: %w", err)
	}
	config.QPS = -1
	return h.Connect(config)
}

// rings returns the rings with the controllers alone that --controllers enables.
func (h *ringHost) rings() []catalogue.Ring {
	var rings []catalogue.Ring
	for _, ring := range catalogue.Rings() {
		if enabled := ring.With(h.enabled); len(enabled.Controllers) > 0 {
			rings = append(rings, enabled)
		}
	}
	return rings
}

// parts returns the rings with the controllers alone that this process runs on them: those that the
// settings list, too. It takes part in no ring without one of its controllers.
func (h *ringHost) parts() []catalogue.Ring {
	var parts []catalogue.Ring
	listed := h.Listed(h.enabled)
	for _, ring := range h.rings() {
		if part := ring.With(listed); len(part.Controllers) > 0 {
			parts = append(parts, part)
		}
	}
	return parts
}

// onRing returns the ring as the process takes part in it.
func (h *ringHost) onRing(ring catalogue.Ring) host.Ring {
	return host.Ring{Name: ring.Name, Controllers: ring.ControllerNames(), Begin: func(ctx context.Context, names []string) (*host.Part, error) {
		return h.begin(ctx, ring.With(names))
	}}
}

// begin makes what works on the ring.
func (h *ringHost) begin(ctx context.Context, ring catalogue.Ring) (*host.Part, error) {
	reader, err := ringReader(h.rootClientBuilder)
	if err != nil {
		return nil, err
	}
	gate := member.NewGate(clock.RealClock{})
	shared := controllerring.NewInformers(reader, ResyncPeriod(h.config)(), h.whole)
	controllers, err := h.build(ctx, ring, shared, gate)
	if err != nil {
		shared.Close()
		return nil, err
	}
	part := &host.Part{
		Config: member.Config{
			Controllers: map[string]member.Controller{},
			Governs:     ring.Governs(),
			Gate:        gate,
			Sources:     shared.Sources,
			Describe:    shared.Describe,
			Metrics:     ringmetrics.New(ring.Name, ring.ControllerNames()),
		},
		SetWorkers: func(name string, n int) { controllers[name].SetWorkers(ctx, n) },
		Run: func(ctx context.Context) {
			defer shared.Close()
			var wg sync.WaitGroup
			defer wg.Wait()
			if ctx.Err() == nil {
				wg.Go(func() { shared.Run(ctx) })
			}
			for _, c := range controllers {
				wg.Go(func() { c.Run(ctx) })
			}
		},
	}
	for name, c := range controllers {
		part.Config.Controllers[name] = c
	}
	return part, nil
}

// obeyed returns who leads, as far as the rings obey. Without an election nobody here takes the
// Lease from a holder that is gone, so its rings would wait for ever.
func obeyed(c *config.CompletedConfig, leadership member.Leadership) member.Leadership {
	if !c.ComponentConfig.Generic.LeaderElection.LeaderElect {
		return nil
	}
	return leadership
}

// ringReader returns the client of the informers. A handover asks each of them whether it is up to
// date, and who joins begins them all at once: no rate limit.
func ringReader(clients clientbuilder.ControllerClientBuilder) (kubernetes.Interface, error) {
	config, err := clients.Config("shared-informers")
	if err != nil {
		return nil, fmt.Errorf("making a client for informers: %w", err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for informers: %w", err)
	}
	return client, nil
}

// build makes the ring's controllers, by name. They share the informers.
func (h *ringHost) build(ctx context.Context, ring catalogue.Ring, shared *controllerring.Informers, gate *member.Gate) (_ map[string]*controllerring.Controller, err error) {
	controllers := map[string]*controllerring.Controller{}
	defer func() {
		if err != nil {
			discard(ctx, controllers)
		}
	}()
	for _, described := range ring.Controllers {
		config, err := h.clientBuilder.Config(described.ServiceAccount)
		if err != nil {
			return nil, fmt.Errorf("making a client for %s: %w", described.Name, err)
		}
		config.Wrap(h.WrapTransport)
		config.Wrap(gate.WrapTransport(described.Name))
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, fmt.Errorf("making a client for %s: %w", described.Name, err)
		}
		ctx := klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "controller", described.Name))
		door := gate.For(described.Name)
		env, err := controllerring.NewEnv(ctx, described, shared, door, client)
		if err != nil {
			return nil, err
		}
		parts := &ringParts{Env: env, door: door, config: h.config, client: config, mapper: h.mapper}
		c, err := ringConstructors[described.Name].build(ctx, parts)
		if err != nil {
			return nil, fmt.Errorf("making %s: %w", described.Name, err)
		}
		controllers[described.Name] = c
	}
	return controllers, nil
}

// discard ends what controllers have begun when they were built: their queues.
func discard(ctx context.Context, controllers map[string]*controllerring.Controller) {
	ended, end := context.WithCancel(ctx)
	end()
	for _, c := range controllers {
		c.Run(ended)
	}
}

// abandonRings deletes the records of this process at once, so that nobody waits for them:
// the process is about to end. It joins no ring any more. It takes at most abandonLimit;
// whoever calls it again waits for the first.
func (h *ringHost) abandonRings(ctx context.Context) {
	h.abandon.Do(func() {
		ctx, cancel := context.WithTimeout(ctx, abandonLimit)
		defer cancel()
		if err := h.Abandon(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Could not take this process off its rings")
		}
	})
}
