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
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	shardingclient "k8s.io/client-go/kubernetes/typed/sharding/v1alpha1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/util/connrotation"
	clientbuilder "k8s.io/controller-manager/pkg/clientbuilder"
	cmfeatures "k8s.io/controller-manager/pkg/features"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/utils/clock"
)

// ringController is a controller that runs on every controller manager at once,
// outside leader election, each of them working on its range of the ring.
type ringController interface {
	ring.Controller
	// Run works until ctx ends.
	Run(ctx context.Context)
	// SetWorkers sets how many objects are worked on at the same time. Workers end
	// with ctx.
	SetWorkers(ctx context.Context, n int)
}

// ringDescriptor says how to make a ring controller.
type ringDescriptor struct {
	name           string
	defaultWorkers func(*config.CompletedConfig) int
	// build returns the controller and all informers that it works from; they are
	// started by run, which returns when ctx has ended.
	build func(ctx context.Context, clients ringClients, resync time.Duration, gate *ring.Gate) (controller ringController, sources []ring.Source, informers func(ctx context.Context), err error)
}

// ringClients are what a ring controller reads and writes with.
type ringClients struct {
	// informers is for lists and watches, controller for the controller's own
	// requests, which obey the gate's deadline.
	informers, controller kubernetes.Interface
}

// ringDescriptors has all ring controllers by name. A controller in it never runs
// behind the leader's lease while the gate ControllerRing is on.
func ringDescriptors() map[string]ringDescriptor {
	descriptors := map[string]ringDescriptor{}
	if utilfeature.DefaultFeatureGate.Enabled(genericfeatures.ControllerRing) {
		for _, d := range []ringDescriptor{replicaSetOnRing()} {
			descriptors[d.name] = d
		}
	}
	return descriptors
}

// withoutRingControllers takes out what runs on the ring.
func withoutRingControllers(controllers map[string]*ControllerDescriptor) map[string]*ControllerDescriptor {
	for name := range ringDescriptors() {
		delete(controllers, name)
	}
	return controllers
}

// startRing starts the ring controllers that --controllers lets run. They take
// part until ctx ends or the process is asked to terminate. The function that it
// returns waits until they have left their rings.
func startRing(ctx context.Context, c *config.CompletedConfig, rootClientBuilder, clientBuilder clientbuilder.ControllerClientBuilder) (left func(), err error) {
	enabled := ControllerContext{ComponentConfig: c.ComponentConfig}
	known := NewControllerDescriptors()
	workers := map[string]int{}
	var descriptors []ringDescriptor
	for name, d := range ringDescriptors() {
		workers[name] = d.defaultWorkers(c)
		if enabled.IsControllerEnabled(known[name]) {
			descriptors = append(descriptors, d)
		}
	}
	if len(workers) == 0 {
		if c.ControllerRingConfigFile != "" {
			return nil, fmt.Errorf("--controller-ring-config needs the feature gate %s, which is off", genericfeatures.ControllerRing)
		}
		return func() {}, nil
	}
	settings, err := newRingSettingsFile(c.ControllerRingConfigFile, workers)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	h := &ringHost{
		config:            c,
		settings:          settings,
		identity:          fmt.Sprintf("%s_%d_%s", host, os.Getpid(), utilrand.String(5)),
		rootClientBuilder: rootClientBuilder,
		clientBuilder:     clientBuilder,
	}

	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { settings.watch(ctx) })
	for _, d := range descriptors {
		wg.Go(func() { h.host(ctx, d) })
	}
	if !utilfeature.DefaultFeatureGate.Enabled(cmfeatures.ControllerManagerReleaseLeaderElectionLockOnExit) {
		go leaveOnSignal(ctx, cancel, &wg)
	}
	return func() {
		cancel()
		wg.Wait()
	}, nil
}

// leaveOnSignal leaves the rings when the process is asked to terminate, which
// then does what it would have done at once without them.
func leaveOnSignal(ctx context.Context, leave func(), left *sync.WaitGroup) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	select {
	case <-ctx.Done():
		signal.Stop(signals)
		return
	case s := <-signals:
		// A second signal does not wait.
		signal.Reset(syscall.SIGTERM, os.Interrupt)
		logger := klog.FromContext(ctx)
		logger.Info("Leaving the rings before terminating", "signal", s)
		leave()
		left.Wait()
		logger.Info("Left the rings", "signal", s)
		klog.Flush()
		if process, err := os.FindProcess(os.Getpid()); err == nil {
			_ = process.Signal(s)
		}
	}
}

// ringHost runs the ring controllers of this process.
type ringHost struct {
	config                           *config.CompletedConfig
	settings                         *ringSettingsFile
	identity                         string
	rootClientBuilder, clientBuilder clientbuilder.ControllerClientBuilder
}

// host keeps one controller on its ring for as long as the settings list it.
func (h *ringHost) host(ctx context.Context, d ringDescriptor) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "controller", d.name)
	ctx = klog.NewContext(ctx, logger)
	for ctx.Err() == nil {
		settings, changed := h.settings.get()
		if _, listed := settings.controller(d.name); !listed {
			logger.Info("Not on the ring: the settings do not list the controller")
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		err := wait.PollUntilContextCancel(ctx, 5*time.Second, true, func(ctx context.Context) (bool, error) {
			if err := h.takePart(ctx, d); err != nil {
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

// takePart runs the controller on the ring until ctx ends or the settings do not
// list it any more. Until it has left the ring the controller works on.
func (h *ringHost) takePart(ctx context.Context, d ringDescriptor) error {
	settings, _ := h.settings.get()
	gate := ring.NewGate(clock.RealClock{})
	clients, registry, reconnect, err := h.clients(d.name, gate)
	if err != nil {
		return err
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	controller, sources, informers, err := d.build(work, clients, ResyncPeriod(h.config)(), gate)
	if err != nil {
		return err
	}
	events := record.NewBroadcaster(record.WithContext(work))
	defer events.Shutdown()
	events.StartRecordingToSink(&corev1.EventSinkImpl{Interface: clients.informers.CoreV1().Events("")})
	member, err := ring.NewMember(ring.Config{
		Client:         registry.ControllerInstances(),
		ControllerName: d.name,
		HolderIdentity: h.identity,
		LeaseDuration:  time.Duration(settings.LeaseDuration),
		Gate:           gate,
		Sources:        sources,
		Controller:     controller,
		RenewalFailed:  reconnect,
		Metrics:        newRingMetrics(d.name),
		Events:         events.NewRecorder(scheme.Scheme, v1.EventSource{Component: d.name}),
	})
	if err != nil {
		return err
	}

	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { informers(work) })
	wg.Go(func() { controller.Run(work) })

	part, leave := context.WithCancel(ctx)
	defer leave()
	wg.Go(func() { h.follow(part, d.name, leave, func(n int) { controller.SetWorkers(work, n) }) })
	member.Run(part)
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

// clients returns what a controller works with, what the registry is written with,
// and a function that closes the latter's connections.
func (h *ringHost) clients(name string, gate *ring.Gate) (clients ringClients, registry shardingclient.ShardingV1alpha1Interface, reconnect func(), err error) {
	informers, err := h.rootClientBuilder.Client("shared-informers")
	if err != nil {
		return ringClients{}, nil, nil, fmt.Errorf("making a client for informers: %w", err)
	}
	fenced, err := h.clientBuilder.Config(name)
	if err != nil {
		return ringClients{}, nil, nil, fmt.Errorf("making a client for %s: %w", name, err)
	}
	fenced.Wrap(gate.WrapTransport)
	controller, err := kubernetes.NewForConfig(fenced)
	if err != nil {
		return ringClients{}, nil, nil, fmt.Errorf("making a client for %s: %w", name, err)
	}
	own, err := h.rootClientBuilder.Config("controller-ring")
	if err != nil {
		return ringClients{}, nil, nil, fmt.Errorf("making a client for the ring: %w", err)
	}
	// A renewal waits for no other request: no rate limit, and, by a dialer of its
	// own, no shared connection.
	own.QPS = -1
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 5 * time.Second}).DialContext)
	own.Dial = dialer.DialContext
	registry, err = shardingclient.NewForConfig(own)
	if err != nil {
		return ringClients{}, nil, nil, fmt.Errorf("making a client for the ring: %w", err)
	}
	return ringClients{informers: informers, controller: controller}, registry, dialer.CloseAll, nil
}

// trimManagedFields keeps informers small: no controller reads managed fields.
func trimManagedFields(obj interface{}) (interface{}, error) {
	if accessor, err := meta.Accessor(obj); err == nil && accessor.GetManagedFields() != nil {
		accessor.SetManagedFields(nil)
	}
	return obj, nil
}
