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

	utilrand "k8s.io/apimachinery/pkg/util/rand"
	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/ring/member"
	clientbuilder "k8s.io/controller-manager/pkg/clientbuilder"
	cmfeatures "k8s.io/controller-manager/pkg/features"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	catalogue "k8s.io/kubernetes/pkg/controller/ring"
)

// ringController is a controller that runs on every controller manager at once,
// outside leader election, each of them working on its range of the ring.
type ringController interface {
	member.Controller
	// Run works until ctx ends.
	Run(ctx context.Context)
	// SetWorkers sets how many objects are worked on at the same time. Workers end
	// with ctx.
	SetWorkers(ctx context.Context, n int)
}

// ringConstructor makes a controller of the catalogue.
type ringConstructor struct {
	defaultWorkers func(*config.CompletedConfig) int
	// build returns the controller and what it works from.
	build func(ctx context.Context, b *ringBuilder) (ringController, error)
}

// ringConstructors has one for each controller of the catalogue, by name.
var ringConstructors = map[string]ringConstructor{
	catalogue.ReplicaSetController: replicaSetOnRing,
}

// ringControllers returns the names of the controllers that run on a ring, none with
// the feature gate ControllerRing off. Such a controller never runs behind the leader's
// lease.
func ringControllers() []string {
	var names []string
	if utilfeature.DefaultFeatureGate.Enabled(genericfeatures.ControllerRing) {
		for _, r := range catalogue.Rings() {
			names = append(names, r.ControllerNames()...)
		}
	}
	return names
}

// withoutRingControllers takes out what runs on the ring.
func withoutRingControllers(controllers map[string]*ControllerDescriptor) map[string]*ControllerDescriptor {
	for _, name := range ringControllers() {
		delete(controllers, name)
	}
	return controllers
}

// startRing starts the ring controllers that --controllers enables. They take part
// until ctx ends or the process is asked to terminate. The function that it returns
// makes them leave their rings, and waits until they have.
func startRing(ctx context.Context, c *config.CompletedConfig, rootClientBuilder, clientBuilder clientbuilder.ControllerClientBuilder) (left func(), err error) {
	workers := map[string]int{}
	for _, name := range ringControllers() {
		workers[name] = ringConstructors[name].defaultWorkers(c)
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
	slot, err := ringSlot(c)
	if err != nil {
		return nil, err
	}
	h := &ringHost{
		config:            c,
		settings:          settings,
		identity:          fmt.Sprintf("%s_%d_%s", slot, os.Getpid(), utilrand.String(5)),
		rootClientBuilder: rootClientBuilder,
		clientBuilder:     clientBuilder,
	}

	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { settings.watch(ctx) })
	enabled := ControllerContext{ComponentConfig: c.ComponentConfig}
	known := NewControllerDescriptors()
	for _, ring := range catalogue.Rings() {
		for _, controller := range ring.Controllers {
			if enabled.IsControllerEnabled(known[controller.Name]) {
				wg.Go(func() { h.host(ctx, ring, controller) })
			}
		}
	}
	if !utilfeature.DefaultFeatureGate.Enabled(cmfeatures.ControllerManagerReleaseLeaderElectionLockOnExit) {
		go leaveOnSignal(ctx, cancel, &wg)
	}
	return func() {
		cancel()
		wg.Wait()
	}, nil
}

// ringSlot is what a process has in common with the one that is started in its place after
// a crash: the host and the port that it serves.
func ringSlot(c *config.CompletedConfig) (string, error) {
	host, err := os.Hostname()
	if err != nil || c.SecureServing == nil {
		return host, err
	}
	_, port, err := net.SplitHostPort(c.SecureServing.Listener.Addr().String())
	return net.JoinHostPort(host, port), err
}

// leaveOnSignal leaves the rings when the process is asked to terminate, and then
// passes the signal on to the process, which does what it would have done at once.
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
