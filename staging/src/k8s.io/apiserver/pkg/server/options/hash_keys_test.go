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

package options

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

// TestHashKeyFlag: the flag reaches the server's configuration, and is refused without the feature
// gate that it needs.
func TestHashKeyFlag(t *testing.T) {
	for _, gate := range []bool{true, false} {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ControllerRing, gate)
		for _, serve := range []bool{true, false} {
			options := NewFeatureOptions()
			options.EnablePriorityAndFairness = false
			flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
			options.AddFlags(flags)
			if serve {
				if err := flags.Parse([]string{"--serve-hash-keys"}); err != nil {
					t.Fatal(err)
				}
			}
			errs := options.Validate()
			if refused := len(errs) > 0; refused != (serve && !gate) || refused && !strings.Contains(errs[0].Error(), "--feature-gates=ControllerRing=true") {
				t.Errorf("gate %t, served %t: %v", gate, serve, errs)
			}
			config := &server.Config{}
			if err := options.ApplyTo(config, nil, nil); err != nil || config.ServeHashKeys != serve {
				t.Errorf("served %t: the configuration says %t, %v", serve, config.ServeHashKeys, err)
			}
		}
	}
}
