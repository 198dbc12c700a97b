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
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/ring/host"
	clientbuilder "k8s.io/controller-manager/pkg/clientbuilder"
	cmfeatures "k8s.io/controller-manager/pkg/features"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	kubefeatures "k8s.io/kubernetes/pkg/features"
)

// ringOf returns the name of the ring that a ring controller can run on.
func ringOf(controller string) string {
	for _, r := range catalogue.Rings() {
		if slices.Contains(r.ControllerNames(), controller) {
			return r.Name
		}
	}
	return ""
}

// errCoordinated is why a process with rings does not start with that feature gate on.
var errCoordinated = fmt.Errorf(
	"the feature gate %s is on: the API server would choose the leader, which cannot sign in its identity which controllers it runs beside the rings; turn it off, or the feature gate %s",
	kubefeatures.CoordinatedLeaderElection, genericfeatures.ControllerRing)

// startRings starts the ring controllers that --controllers enables, until ctx ends or the
// process is asked to terminate, and returns this process's part in the election of the
// leader. The function that it returns makes the process leave its rings, and waits until it
// has. With the feature gate ControllerRing off it does nothing, and nothing differs from a
// kube-controller-manager without rings.
func startRings(ctx context.Context, c *config.CompletedConfig, rootClientBuilder, clientBuilder clientbuilder.ControllerClientBuilder) (election *ringElection, left func(), err error) {
	if !utilfeature.DefaultFeatureGate.Enabled(genericfeatures.ControllerRing) {
		if c.ControllerRingConfigFile != "" {
			return nil, nil, fmt.Errorf("--controller-ring-config needs the feature gate %s, which is off", genericfeatures.ControllerRing)
		}
		return nil, func() {}, nil
	}
	if utilfeature.DefaultFeatureGate.Enabled(kubefeatures.CoordinatedLeaderElection) {
		return nil, nil, errCoordinated
	}
	warnOfElection(ctx, c)
	workers := map[string]int{}
	for _, name := range catalogue.ControllerNames() {
		workers[name] = int(ringConstructors[name].defaultWorkers(c))
	}
	settings, err := host.NewSettingsFile(c.ControllerRingConfigFile, workers)
	if err != nil {
		return nil, nil, fmt.Errorf("--controller-ring-config: %w", err)
	}
	slot, err := ringSlot(c)
	if err != nil {
		return nil, nil, err
	}
	logger := klog.FromContext(ctx)
	h := &ringHost{
		Process: host.NewProcess(host.ProcessConfig{
			HolderIdentity: fmt.Sprintf("%s_%d_%s", slot, os.Getpid(), utilrand.String(5)),
			Settings:       settings,
			EventSource:    ringComponent,
			Exit:           func(ring, reason string) { exitFor(logger, ring, reason) },
		}),
		config:            c,
		enabled:           enabledRingControllers(c),
		rootClientBuilder: rootClientBuilder,
		clientBuilder:     clientBuilder,
	}
	// All informers here, and the elections, are clients of this.
	c.Kubeconfig.Wrap(h.WrapTransport)
	client, err := rootClientBuilder.Client(ringComponent)
	if err != nil {
		return nil, nil, fmt.Errorf("making a client for the rings: %w", err)
	}
	leadership := newRingLeadership(client, c.ComponentConfig.Generic.LeaderElection.ResourceNamespace, c.ComponentConfig.Generic.LeaderElection.ResourceName)
	h.Leadership = obeyed(c, leadership)
	watching, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	if err := h.share(watching); err != nil {
		unwatch()
		return nil, nil, err
	}
	forgetHost := abandonOnExit(ctx, h)

	ctx, cancel := context.WithCancel(ctx)
	var wg, watches sync.WaitGroup
	watches.Go(func() { leadership.run(watching) })
	wg.Go(func() { settings.Watch(ctx) })
	for _, ring := range h.rings() {
		wg.Go(func() { h.Run(ctx, h.onRing(ring)) })
	}
	if !utilfeature.DefaultFeatureGate.Enabled(cmfeatures.ControllerManagerReleaseLeaderElectionLockOnExit) {
		go leaveOnSignal(ctx, cancel, &wg)
	}
	leave := func() {
		cancel()
		wg.Wait()
	}
	return newRingElection(c, h, leadership, client, leave), func() {
		leave()
		unwatch()
		watches.Wait()
		forgetHost()
	}, nil
}

// enabledRingControllers returns the ring controllers that --controllers enables.
func enabledRingControllers(c *config.CompletedConfig) []string {
	controllers := ControllerContext{ComponentConfig: c.ComponentConfig}
	known := NewControllerDescriptors()
	var enabled []string
	for _, name := range catalogue.ControllerNames() {
		if controllers.IsControllerEnabled(known[name]) {
			enabled = append(enabled, name)
		}
	}
	return enabled
}

// warnOfElection warns of settings under which two processes may run the same controller.
func warnOfElection(ctx context.Context, c *config.CompletedConfig) {
	logger := klog.FromContext(ctx)
	election := c.ComponentConfig.Generic.LeaderElection
	if !election.LeaderElect {
		logger.Error(errors.New("--leader-elect=false"), "Nobody sees which controllers this process runs outside its rings: run no second kube-controller-manager that does not elect a leader, and none without rings beside this one")
	}
	if election.ResourceNamespace != metav1.NamespaceSystem || election.ResourceName != kubeControllerManager {
		logger.Error(errors.New("another Lease than the API server guards"), "The API server keeps only the guarded Lease from a kube-controller-manager without rings: run none beside this one",
			"lease", klog.KRef(election.ResourceNamespace, election.ResourceName), "guarded", klog.KRef(metav1.NamespaceSystem, kubeControllerManager))
	}
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
// passes the signal on to the process, which does what it would have done at once. A second
// signal does not wait until the work has ended, only until the records are deleted.
func leaveOnSignal(ctx context.Context, leave func(), rings *sync.WaitGroup) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	select {
	case <-ctx.Done():
		signal.Stop(signals)
		return
	case s := <-signals:
		logger := klog.FromContext(ctx)
		logger.Info("Leaving the rings before terminating", "signal", s)
		leave()
		left := make(chan struct{})
		go func() { defer close(left); rings.Wait() }()
		select {
		case <-left:
			logger.Info("Left the rings", "signal", s)
		case s = <-signals:
			logger.Info("Terminating without leaving the rings in good order", "signal", s)
			abandonAll()
		}
		signal.Reset(syscall.SIGTERM, os.Interrupt)
		klog.Flush()
		if process, err := os.FindProcess(os.Getpid()); err == nil {
			_ = process.Signal(s)
		}
	}
}
