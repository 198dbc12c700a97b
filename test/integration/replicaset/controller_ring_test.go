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

package replicaset

import (
	"fmt"
	"os"

	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// CONTROLLER_RING=false turns the feature gate off. hack/overlay puts a copy of this file beside
// those of upstream's tests that fail with it on.
func init() {
	if value, ok := os.LookupEnv("CONTROLLER_RING"); ok {
		if err := utilfeature.DefaultMutableFeatureGate.Set(fmt.Sprintf("%s=%s", features.ControllerRing, value)); err != nil {
			panic(err)
		}
	}
}
