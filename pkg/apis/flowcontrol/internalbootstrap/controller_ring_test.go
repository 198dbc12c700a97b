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
	"testing"

	flowcontrol "k8s.io/api/flowcontrol/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

// The ring's flow schema spells out every default. Otherwise the server would find it
// changed and write it again for ever.
func TestControllerRingFlowSchema(t *testing.T) {
	upstream := len(bootstrap.SuggestedFlowSchemas)
	schemas := bootstrap.WithControllerRing(bootstrap.SuggestedFlowSchemas)
	if len(schemas) != upstream+1 || len(bootstrap.SuggestedFlowSchemas) != upstream {
		t.Fatalf("%d flow schemas of %d, want one more, beside upstream's", len(schemas), upstream)
	}
	ours := schemas[upstream]
	defaulted := ours.DeepCopyObject().(*flowcontrol.FlowSchema)
	NewAPFScheme().Default(defaulted)
	if !apiequality.Semantic.DeepEqual(ours, defaulted) {
		t.Errorf("defaulting changes the flow schema to %v", defaulted)
	}
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ControllerRing, false)
	if got := len(bootstrap.WithControllerRing(bootstrap.SuggestedFlowSchemas)); got != upstream {
		t.Errorf("%d flow schemas with the feature gate off, want upstream's %d", got, upstream)
	}
}
