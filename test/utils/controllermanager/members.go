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

package controllermanager

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/configz"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	kubeapiservertesting "k8s.io/kubernetes/cmd/kube-apiserver/app/testing"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kcmtesting "k8s.io/kubernetes/cmd/kube-controller-manager/app/testing"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/integration/framework"
)

// members is how many controller managers run in place of a test's own controllers.
const members = 3

// running is the ring of the present test. A test of upstream that starts controllers by itself has
// its server in one function, their start in another, and the end in a third.
var running struct {
	sync.Mutex
	server *rest.Config
	// until is the end of the context that the ring was started for, and stop ends it earlier.
	until <-chan struct{}
	stop  context.CancelFunc
	// ended is closed when the ring has ended.
	ended chan struct{}
}

// StartTestServer starts an API server as the framework does, with the registry of instances, and
// has InsteadOf use it. What ends the server ends the ring first.
func StartTestServer(ctx context.Context, t testing.TB, setup framework.TestServerSetup) (kubernetes.Interface, *rest.Config, framework.TearDownFunc) {
	modify := setup.ModifyServerRunOptions
	setup.ModifyServerRunOptions = func(opts *options.ServerRunOptions) {
		if modify != nil {
			modify(opts)
		}
		opts.APIEnablement.RuntimeConfig["sharding.k8s.io/v1alpha1"] = "true"
	}
	client, config, tearDown := framework.StartTestServer(ctx, t, setup)
	return client, config, use(config, tearDown)
}

// Use has InsteadOf use this API server, and returns it. What ends the server ends the ring first.
func Use(server *kubeapiservertesting.TestServer) *kubeapiservertesting.TestServer {
	server.TearDownFn = use(server.ClientConfig, server.TearDownFn)
	return server
}

// use returns what ends the ring and then calls tearDown, which ends its API server.
func use(config *rest.Config, tearDown func()) func() {
	running.Lock()
	defer running.Unlock()
	running.server = config
	return func() {
		running.Lock()
		if running.stop != nil {
			running.stop()
			<-running.ended
		}
		running.Unlock()
		tearDown()
	}
}

// InsteadOf starts three controller managers in this process, which share the controllers of the
// catalogue until ctx ends, in place of the controller that run would run. It returns when they do.
// A test that starts several controllers for one context gets all of them with the first. A test
// that emulates a version without rings gets what it would run.
func InsteadOf(t testing.TB, ctx context.Context, run func(ctx context.Context, workers int)) {
	t.Helper()
	if !utilfeature.DefaultFeatureGate.Enabled(genericfeatures.ControllerRing) {
		go run(ctx, 1)
		return
	}
	// What the test has built lets go of its goroutines when it has been run.
	none, end := context.WithCancel(ctx)
	end()
	run(none, 0)

	running.Lock()
	defer running.Unlock()
	if running.until == ctx.Done() {
		return
	}
	if running.ended != nil {
		<-running.ended
	}
	client, err := kubernetes.NewForConfig(running.server)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{
		"--kubeconfig=" + Kubeconfig(t, running.server), "--leader-elect=false", "--secure-port=0",
		"--kube-api-qps=1000", "--kube-api-burst=1000",
		"--controllers=" + strings.Join(catalogue.ControllerNames(), ","),
	}
	var tearDown []kcmtesting.TearDownFunc
	for range members {
		server, err := kcmtesting.StartTestServer(t.(*testing.T), context.WithoutCancel(ctx), args)
		if err != nil {
			t.Fatal(err)
		}
		tearDown = append(tearDown, server.TearDownFn)
		// Each registers its configuration, and a second of that name is an error.
		configz.Delete(app.ConfigzName)
	}
	stopped, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-stopped.Done()
		var wg sync.WaitGroup
		for _, f := range tearDown {
			wg.Go(f)
		}
		wg.Wait()
	}()
	running.until, running.stop, running.ended = ctx.Done(), stop, ended
	for _, r := range catalogue.Rings() {
		if err := harness.Await(ctx, 2*time.Minute, 50*time.Millisecond, "the rings", func(ctx context.Context) error {
			return harness.Settled(ctx, client, r.Name, members)
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// WithoutRing calls start, of the informers of what the test has built, only if that is run.
// Handlers of a controller that never works would count in the metrics of those that do.
func WithoutRing(start func()) {
	if !utilfeature.DefaultFeatureGate.Enabled(genericfeatures.ControllerRing) {
		start()
	}
}
