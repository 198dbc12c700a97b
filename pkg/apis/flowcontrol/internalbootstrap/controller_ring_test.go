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

package internalbootstrap

import (
	"slices"
	"testing"

	flowcontrol "k8s.io/api/flowcontrol/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

// The ring's flow schemas spell out every default. Otherwise the server would find them
// changed and write them again for ever.
func TestControllerRingFlowSchemas(t *testing.T) {
	upstream := len(bootstrap.SuggestedFlowSchemas)
	schemas := bootstrap.WithControllerRing(bootstrap.SuggestedFlowSchemas)
	if len(schemas) != upstream+2 || len(bootstrap.SuggestedFlowSchemas) != upstream {
		t.Fatalf("%d flow schemas of %d, want two more, beside upstream's", len(schemas), upstream)
	}
	for _, ours := range schemas[upstream:] {
		defaulted := ours.DeepCopyObject().(*flowcontrol.FlowSchema)
		NewAPFScheme().Default(defaulted)
		if !apiequality.Semantic.DeepEqual(ours, defaulted) {
			t.Errorf("defaulting changes flow schema %s to %v", ours.Name, defaulted)
		}
	}
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ControllerRing, false)
	if got := len(bootstrap.WithControllerRing(bootstrap.SuggestedFlowSchemas)); got != upstream {
		t.Errorf("%d flow schemas with the feature gate off, want upstream's %d", got, upstream)
	}
}

// What may renew a record shares a flow with nothing else.
func TestRenewalsHaveAFlowOfTheirOwn(t *testing.T) {
	for _, request := range []struct{ verb, resource, want string }{
		{"patch", "controllerinstances/status", "system-controller-ring-renewals"},
		{"update", "controllerinstances/status", "system-controller-ring-renewals"},
		{"list", "controllerinstances", "system-controller-ring"},
		{"watch", "controllerinstances", "system-controller-ring"},
		{"patch", "controllerinstances", "system-controller-ring"},
		{"delete", "controllerinstances", "system-controller-ring"},
	} {
		var got []string
		for _, schema := range bootstrap.WithControllerRing(nil) {
			for _, rule := range schema.Spec.Rules[0].ResourceRules {
				if slices.Contains(rule.Verbs, request.verb) && slices.Contains(rule.Resources, request.resource) {
					got = append(got, schema.Name)
				}
			}
			if got := schema.Spec.PriorityLevelConfiguration.Name; got != "leader-election" {
				t.Errorf("%s has priority level %s, want leader-election", schema.Name, got)
			}
		}
		if !slices.Equal(got, []string{request.want}) {
			t.Errorf("%s of %s falls under %q, want %s alone", request.verb, request.resource, got, request.want)
		}
	}
}
