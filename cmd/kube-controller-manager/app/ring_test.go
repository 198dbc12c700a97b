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
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/host"
	"k8s.io/client-go/tools/ring/member"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	clientbuilder "k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	controllerring "k8s.io/kubernetes/pkg/controller/ring"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	kubefeatures "k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/clock"
)

func TestEveryControllerOfTheCatalogueCanBeBuilt(t *testing.T) {
	known := NewControllerDescriptors()
	inCatalogue := 0
	for _, r := range catalogue.Rings() {
		if !slices.Contains(ring.ManagerRings, r.Name) {
			t.Errorf("the leader's Lease is not guarded while ring %s has instances", r.Name)
		}
		for _, c := range r.Controllers {
			inCatalogue++
			if constructor, ok := ringConstructors[c.Name]; !ok || constructor.build == nil || constructor.defaultWorkers == nil {
				t.Errorf("%s is in the catalogue of rings and has no constructor", c.Name)
			}
			if known[c.Name] == nil || known[c.Name].IsDisabledByDefault() {
				t.Errorf("%s is in the catalogue of rings and is no controller of kube-controller-manager that * enables", c.Name)
			}
			if got := ringOf(c.Name); got != r.Name {
				t.Errorf("%s is on ring %q, want %q", c.Name, got, r.Name)
			}
		}
	}
	if inCatalogue != len(ringConstructors) {
		t.Errorf("%d constructors for %d controllers of the catalogue", len(ringConstructors), inCatalogue)
	}
}

func testRingConfig() *config.CompletedConfig {
	c := (&config.Config{}).Complete()
	c.ComponentConfig.Generic.Controllers = []string{"*"}
	c.ComponentConfig.HPAController.HorizontalPodAutoscalerSyncPeriod.Duration = time.Second
	return c
}

// Memory is what a ring is for: a process holds each pod of its range once.
func TestControllersOfARingShareItsInformers(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	builder := clientbuilder.SimpleControllerClientBuilder{ClientConfig: &rest.Config{Host: "127.0.0.1:1"}}
	h := &ringHost{Process: host.NewProcess(host.ProcessConfig{}), config: testRingConfig(), rootClientBuilder: builder, clientBuilder: builder}
	whole := controllerring.NewWhole(ctx, fake.NewClientset(), 0)
	for _, r := range catalogue.Rings() {
		informers := controllerring.NewInformers(fake.NewClientset(), 0, whole)
		controllers, err := h.build(ctx, r, informers, member.NewGate(clock.RealClock{}))
		if err != nil {
			t.Fatal(err)
		}
		if len(controllers) != len(r.Controllers) {
			t.Errorf("%d controllers, want %d", len(controllers), len(r.Controllers))
		}
		reads := map[catalogue.Read]bool{}
		for _, c := range r.Controllers {
			for _, read := range c.Reads {
				reads[read] = reads[read] || read.Feature == "" || utilfeature.DefaultFeatureGate.Enabled(featuregate.Feature(read.Feature))
			}
		}
		maps.DeleteFunc(reads, func(_ catalogue.Read, on bool) bool { return !on })
		if len(informers.Sources) != len(reads) {
			t.Errorf("%d informers of a range, want one for each of %d resources and paths", len(informers.Sources), len(reads))
		}
	}
}

func TestAProcessRunsOnARingWhatIsEnabledAndListed(t *testing.T) {
	rs, rc := catalogue.ReplicaSetController, catalogue.ReplicationControllerController
	named := func(names []string) (controllers []host.ControllerSettings) {
		for _, name := range names {
			controllers = append(controllers, host.ControllerSettings{Name: name, Workers: 1})
		}
		return controllers
	}
	for name, tc := range map[string]struct {
		enabled, listed, want []string
	}{
		"both":                    {[]string{rs, rc}, []string{rs, rc}, []string{rs, rc}},
		"one enabled":             {[]string{rc}, []string{rs, rc}, []string{rc}},
		"one listed":              {[]string{rs, rc}, []string{rs}, []string{rs}},
		"one enabled, one listed": {[]string{rs}, []string{rc}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ring.yaml")
			text, err := json.Marshal(map[string]any{"controllers": named(tc.listed)})
			if err == nil {
				err = os.WriteFile(path, text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			settings, err := host.NewSettingsFile(path, map[string]int{rs: 1, rc: 1})
			if err != nil {
				t.Fatal(err)
			}
			h := &ringHost{Process: host.NewProcess(host.ProcessConfig{Settings: settings}), enabled: tc.enabled}
			var got []string
			for _, part := range h.parts() {
				if part.Name != catalogue.WorkloadsRing {
					t.Errorf("takes part in ring %s", part.Name)
				}
				got = append(got, part.ControllerNames()...)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("runs %q, want %q", got, tc.want)
			}
		})
	}
	c := testRingConfig()
	if got := enabledRingControllers(c); !slices.Equal(got, catalogue.ControllerNames()) {
		t.Errorf("* enables %q", got)
	}
	for _, off := range catalogue.ControllerNames() {
		c.ComponentConfig.Generic.Controllers = []string{"*", "-" + off}
		want := slices.DeleteFunc(catalogue.ControllerNames(), func(name string) bool { return name == off })
		if got := enabledRingControllers(c); !slices.Equal(got, want) {
			t.Errorf("*,-%s enables %q", off, got)
		}
	}
}

func TestRingsDoNotStartBesideCoordinatedLeaderElection(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, kubefeatures.CoordinatedLeaderElection, true)
	if _, _, err := startRings(ctx, testRingConfig(), nil, nil); !errors.Is(err, errCoordinated) {
		t.Errorf("error %v, want %v", err, errCoordinated)
	}
}

func TestNothingOfRingsStartsWithTheFeatureGateOff(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, genericfeatures.ControllerRing, false)
	election, leave, err := startRings(ctx, testRingConfig(), nil, nil)
	if err != nil || election != nil {
		t.Errorf("an election %v, error %v; want neither", election, err)
	}
	leave()
	c := testRingConfig()
	c.ControllerRingConfigFile = "ring.yaml"
	if _, _, err := startRings(ctx, c, nil, nil); err == nil {
		t.Error("--controller-ring-config was taken without the feature gate")
	}
}
