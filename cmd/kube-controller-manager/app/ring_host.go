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
	"net"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	shardingclient "k8s.io/client-go/kubernetes/typed/sharding/v1alpha1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/ring/member"
	"k8s.io/client-go/util/connrotation"
	clientbuilder "k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	catalogue "k8s.io/kubernetes/pkg/controller/ring"
	"k8s.io/utils/clock"
)

// ringComponent names what belongs to no controller on a ring: the client of the registry,
// and the source of events on its records.
const ringComponent = "controller-ring"

// ringHost runs the ring controllers of this process.
type ringHost struct {
	config                           *config.CompletedConfig
	settings                         *ringSettingsFile
	identity                         string
	rootClientBuilder, clientBuilder clientbuilder.ControllerClientBuilder
}

// host keeps the controller on its ring for as long as the settings list it. The
// controller must be the ring's only one: an instance is a member for the whole ring.
func (h *ringHost) host(ctx context.Context, ring catalogue.Ring, controller catalogue.Controller) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "controller", controller.Name)
	ctx = klog.NewContext(ctx, logger)
	for ctx.Err() == nil {
		settings, changed := h.settings.get()
		if _, listed := settings.controller(controller.Name); !listed {
			logger.Info("Not on the ring: the settings do not list the controller")
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		err := wait.PollUntilContextCancel(ctx, 5*time.Second, true, func(ctx context.Context) (bool, error) {
			if err := h.takePart(ctx, ring, controller); err != nil {
				logger.Error(err, "Could not start the controller on the ring; will try again")
				return false, nil
			}
			return true, nil
		})
		if err != nil {
			return
		}
	}
}

// takePart runs the controller on the ring until ctx ends or the settings no longer
// list it. The controller works on until it has left the ring.
func (h *ringHost) takePart(ctx context.Context, ring catalogue.Ring, described catalogue.Controller) error {
	settings, _ := h.settings.get()
	gate := member.NewGate(clock.RealClock{})
	registry, reconnect, err := h.registry(gate)
	if err != nil {
		return err
	}
	builder, err := h.builder(described, gate)
	if err != nil {
		return err
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	controller, err := ringConstructors[described.Name].build(work, builder)
	if err != nil {
		return err
	}
	if len(builder.sources) != len(described.Reads) {
		return fmt.Errorf("%s was built with %d informers of a range, but the catalogue of rings says that it reads %d resources", described.Name, len(builder.sources), len(described.Reads))
	}
	events := record.NewBroadcaster(record.WithContext(work))
	defer events.Shutdown()
	events.StartRecordingToSink(&corev1.EventSinkImpl{Interface: builder.reader.CoreV1().Events("")})
	instance, err := member.New(member.Config{
		Client:         registry.ControllerInstances(),
		Ring:           ring.Name,
		Controllers:    ring.ControllerNames(),
		Governs:        ring.Governs(),
		HolderIdentity: h.identity,
		LeaseDuration:  time.Duration(settings.LeaseDuration),
		Gate:           gate,
		Sources:        builder.sources,
		Controller:     controller,
		RenewalFailed:  reconnect,
		Metrics:        newRingMetrics(ring.Name),
		Events:         events.NewRecorder(scheme.Scheme, v1.EventSource{Component: ringComponent}),
	})
	if err != nil {
		return err
	}

	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { builder.runInformers(work) })
	wg.Go(func() { controller.Run(work) })

	part, leave := context.WithCancel(ctx)
	defer leave()
	wg.Go(func() { h.follow(part, described.Name, leave, func(n int) { controller.SetWorkers(work, n) }) })
	instance.Run(part)
	return nil
}

// follow applies the settings as they change: the number of workers, and whether
// the controller stays on the ring.
func (h *ringHost) follow(ctx context.Context, name string, leave func(), setWorkers func(int)) {
	for {
		settings, changed := h.settings.get()
		controller, listed := settings.controller(name)
		if !listed {
			klog.FromContext(ctx).Info("Leaving the ring: the settings do not list the controller any more")
			leave()
			return
		}
		setWorkers(controller.Workers)
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// registry returns the client with which the instance writes the registry, and a function
// that closes its connections.
func (h *ringHost) registry(gate *member.Gate) (client shardingclient.ShardingV1alpha1Interface, reconnect func(), err error) {
	config, err := h.rootClientBuilder.Config(ringComponent)
	if err != nil {
		return nil, nil, fmt.Errorf("making a client for the ring: %w", err)
	}
	// A renewal waits for no other request: no rate limit, and, by a dialer of its
	// own, no shared connection.
	config.QPS = -1
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 5 * time.Second}).DialContext)
	config.Dial = dialer.DialContext
	config.Wrap(gate.WrapRegistryTransport)
	client, err = shardingclient.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("making a client for the ring: %w", err)
	}
	return client, dialer.CloseAll, nil
}

// builder returns what a controller of the catalogue is built from.
func (h *ringHost) builder(controller catalogue.Controller, gate *member.Gate) (*ringBuilder, error) {
	reader, err := h.rootClientBuilder.Client("shared-informers")
	if err != nil {
		return nil, fmt.Errorf("making a client for informers: %w", err)
	}
	config, err := h.clientBuilder.Config(controller.Name)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", controller.Name, err)
	}
	config.Wrap(gate.WrapTransport(controller.Name))
	writer, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", controller.Name, err)
	}
	return &ringBuilder{
		controller: controller,
		reader:     reader,
		writer:     writer,
		gate:       gate,
		informers:  informers.NewSharedInformerFactoryWithOptions(reader, ResyncPeriod(h.config)(), informers.WithTransform(trimManagedFields)),
	}, nil
}
