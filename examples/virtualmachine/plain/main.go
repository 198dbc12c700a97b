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

// Command plain is the operator of VirtualMachines as one elects a leader: one of its replicas
// works.
package main

import (
	"flag"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "ringmaster.example/virtualmachine/api/v1"
	vms "ringmaster.example/virtualmachine/controller"
)

var (
	metricsAddress = flag.String("metrics-bind-address", ":8443", "where metrics are served; 0 for nowhere")
	certificates   = flag.String("metrics-cert-dir", "", "folder with tls.crt and tls.key for the metrics; default: self-signed")
	probes         = flag.String("health-probe-bind-address", ":8081", "where healthz and readyz are served")
)

func main() {
	flag.Parse()
	ctrl.SetLogger(klog.Background())
	if err := run(); err != nil {
		klog.ErrorS(err, "The operator has ended")
		os.Exit(1)
	}
}

func run() error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1.AddToScheme} {
		if err := add(types); err != nil {
			return err
		}
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: types,
		Metrics: server.Options{
			BindAddress: *metricsAddress, SecureServing: true, CertDir: *certificates, FilterProvider: filters.WithAuthenticationAndAuthorization,
		},
		HealthProbeBindAddress: *probes,
		LeaderElection:         true,
		LeaderElectionID:       "virtualmachines",
	})
	if err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	reconciler := &vms.Reconciler{Client: mgr.GetClient()}
	if err := reconciler.AddTo(mgr, controller.Options{MaxConcurrentReconciles: 5}); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}
