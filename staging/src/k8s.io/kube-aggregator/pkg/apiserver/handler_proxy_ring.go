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

package apiserver

import (
	"net/http"

	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/ring/fence"
)

// withoutInstance takes from a request the name of the controller instance that sends it. The
// aggregated API server has no registry of instances to judge it by, and one that knows the header
// would refuse it.
func withoutInstance(req *http.Request) {
	if utilfeature.DefaultFeatureGate.Enabled(genericfeatures.ControllerRing) {
		req.Header.Del(fence.Header)
	}
}
