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
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clientring "k8s.io/client-go/tools/ring"
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

const (
	// ringRetryPeriod is how long to wait after a ring could not be joined.
	ringRetryPeriod = 5 * time.Second
	// abandonLimit bounds the deletion of records as the process ends.
	abandonLimit = time.Second
)

// ringHost runs the ring controllers of this process.
type ringHost struct {
	config   *config.CompletedConfig
	settings *host.SettingsFile
	// enabled are the ring controllers that --controllers enables.
	enabled  []string
	identity string
	// heap is what the members of this process share.
	heap *member.Heap
	// presences are those of this process on all its rings.
	presences *host.Presences
	// histories notices that etcd was restored.
	histories *member.Histories
	// leadership says who leads; the rings leave to the leader what it runs itself.
	leadership                       member.Leadership
	rootClientBuilder, clientBuilder clientbuilder.ControllerClientBuilder
	// whole has what the rings hold all of, and mapper finds the resource of a kind.
	whole  *controllerring.Whole
	mapper meta.RESTMapper

	lock sync.Mutex
	// members has the process's part in each ring that it takes part in now.
	members   map[string]*member.Member
	abandoned bool
	abandon   sync.Once
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
	h.presences, err = host.NewPresences(config)
	return err
}

// part returns the ring with the controllers alone that this process runs on it: those that
// --controllers enables and the settings list.
func (h *ringHost) part(ring catalogue.Ring, settings *host.Settings) catalogue.Ring {
	return ring.With(slices.DeleteFunc(slices.Clone(h.enabled), func(name string) bool {
		_, listed := settings.Controller(name)
		return !listed
	}))
}

// parts returns this process's parts in all rings. It takes part in no ring without one of
// its controllers.
func (h *ringHost) parts() []catalogue.Ring {
	settings, _ := h.settings.Get()
	var parts []catalogue.Ring
	for _, ring := range catalogue.Rings() {
		if part := h.part(ring, settings); len(part.Controllers) > 0 {
			parts = append(parts, part)
		}
	}
	return parts
}

// host keeps this process's controllers on their ring for as long as the settings list them.
func (h *ringHost) host(ctx context.Context, ring catalogue.Ring) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "ring", ring.Name)
	ctx = klog.NewContext(ctx, logger)
	for ctx.Err() == nil && !h.isAbandoned() {
		settings, changed := h.settings.Get()
		part := h.part(ring, settings)
		var retry <-chan time.Time
		if len(part.Controllers) == 0 {
			logger.Info("Not on the ring: the settings list none of its controllers")
		} else if err := h.takePart(ctx, part, settings); err != nil {
			logger.Error(err, "Could not start the ring's controllers; will try again", "controllers", part.ControllerNames())
			retry = time.After(ringRetryPeriod)
		} else {
			continue
		}
		select {
		case <-changed:
		case <-retry:
		case <-ctx.Done():
		}
	}
}

// takePart runs the ring's controllers until ctx ends or the settings list others. They
// work on until the process has left the ring.
func (h *ringHost) takePart(ctx context.Context, ring catalogue.Ring, settings *host.Settings) error {
	gate := member.NewGate(clock.RealClock{})
	registryConfig, err := h.rootClientBuilder.Config(ringComponent)
	if err != nil {
		return fmt.Errorf("making a client for the ring: %w", err)
	}
	registry, err := host.NewRegistry(registryConfig, gate)
	if err != nil {
		return err
	}
	var presences member.Presences
	if settings.Presence == host.PresenceEnabled {
		presences = h.presences
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	reader, err := ringReader(h.rootClientBuilder)
	if err != nil {
		return err
	}
	shared := controllerring.NewInformers(reader, ResyncPeriod(h.config)(), h.whole)
	defer shared.Close()
	controllers, err := h.build(work, ring, shared, gate)
	if err != nil {
		return err
	}
	events := host.NewEventBroadcaster(work)
	defer events.Shutdown()
	events.StartRecordingToSink(&corev1.EventSinkImpl{Interface: reader.CoreV1().Events("")})
	on := map[string]member.Controller{}
	for name, c := range controllers {
		on[name] = c
	}
	instance, err := member.New(member.Config{
		Client:         registry,
		Ring:           ring.Name,
		Controllers:    on,
		Governs:        ring.Governs(),
		Leadership:     h.obeyed(),
		HolderIdentity: h.identity,
		LeaseDuration:  time.Duration(settings.LeaseDuration),
		Presences:      presences,
		Gate:           gate,
		Sources:        shared.Sources,
		Heap:           h.heap,
		Exit:           func(reason string) { exitFor(klog.FromContext(work), ring.Name, reason) },
		Capacity: func() int64 {
			settings, _ := h.settings.Get()
			return settings.Limit()
		},
		Workers: func(name string) int {
			settings, _ := h.settings.Get()
			controller, _ := settings.Controller(name)
			return controller.Workers
		},
		Balance: func() *clientring.Balance {
			settings, _ := h.settings.Get()
			return settings.Balance.Policy()
		},
		Describe: shared.Describe,
		Metrics:  ringmetrics.New(ring.Name, ring.ControllerNames()),
		Events:   events.NewRecorder(scheme.Scheme, v1.EventSource{Component: ringComponent}),
	})
	if err != nil {
		discard(work, controllers)
		return err
	}
	if !h.joins(ring.Name, instance) {
		discard(work, controllers)
		return nil
	}
	defer h.left(ring.Name)

	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { shared.Run(work) })
	for _, c := range controllers {
		wg.Go(func() { c.Run(work) })
	}
	part, leave := context.WithCancel(ctx)
	defer leave()
	wg.Go(func() {
		h.follow(part, ring, leave, func(name string, n int) { controllers[name].SetWorkers(work, n) })
	})
	instance.Run(part)
	return nil
}

// obeyed returns who leads, as far as the rings obey. Without an election nobody here takes the
// Lease from a holder that is gone, so its rings would wait for ever.
func (h *ringHost) obeyed() member.Leadership {
	if !h.config.ComponentConfig.Generic.LeaderElection.LeaderElect {
		return nil
	}
	return h.leadership
}

// follow applies the settings as they change: the numbers of workers, and which controllers
// the process runs on the ring, for which it leaves.
func (h *ringHost) follow(ctx context.Context, ring catalogue.Ring, leave func(), setWorkers func(name string, n int)) {
	for {
		settings, changed := h.settings.Get()
		if now := h.part(ring, settings).ControllerNames(); !slices.Equal(now, ring.ControllerNames()) {
			klog.FromContext(ctx).Info("Leaving the ring: the settings list other controllers", "before", ring.ControllerNames(), "now", now)
			leave()
			return
		}
		for _, name := range ring.ControllerNames() {
			controller, _ := settings.Controller(name)
			setWorkers(name, controller.Workers)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
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
		config.Wrap(h.histories.WrapTransport)
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

// joins notes that instance is about to run. It says whether it may.
func (h *ringHost) joins(ring string, instance *member.Member) bool {
	h.lock.Lock()
	defer h.lock.Unlock()
	if h.abandoned {
		return false
	}
	if h.members == nil {
		h.members = map[string]*member.Member{}
	}
	h.members[ring] = instance
	return true
}

func (h *ringHost) left(ring string) {
	h.lock.Lock()
	defer h.lock.Unlock()
	delete(h.members, ring)
}

// diverge ends the process, as etcd has another history than what it has seen.
func (h *ringHost) diverge(ctx context.Context, reason string) {
	h.lock.Lock()
	members := slices.Collect(maps.Values(h.members))
	h.lock.Unlock()
	for _, m := range members {
		m.Diverge(ctx, reason)
	}
	exitFor(klog.FromContext(ctx), "", reason)
}

func (h *ringHost) isAbandoned() bool {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.abandoned
}

// abandonRings deletes the records of this process at once, so that nobody waits for them:
// the process is about to end. It joins no ring any more. It takes at most abandonLimit;
// whoever calls it again waits for the first.
func (h *ringHost) abandonRings(ctx context.Context) {
	h.abandon.Do(func() {
		h.lock.Lock()
		h.abandoned = true
		var members []*member.Member
		for _, m := range h.members {
			members = append(members, m)
		}
		h.lock.Unlock()
		ctx, cancel := context.WithTimeout(ctx, abandonLimit)
		defer cancel()
		var wg sync.WaitGroup
		defer wg.Wait()
		for _, m := range members {
			wg.Go(func() {
				if err := m.Abandon(ctx); err != nil {
					klog.FromContext(ctx).Error(err, "Could not take this process off its ring")
				}
			})
		}
	})
}
