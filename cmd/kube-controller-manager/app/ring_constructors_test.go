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
	"net/http"
	"net/url"
	"testing"

	"k8s.io/apimachinery/pkg/hashkey"
)

func TestTheKeyOfARequestIsThatOfItsNamespace(t *testing.T) {
	for path, namespace := range map[string]string{
		"/apis/external.metrics.k8s.io/v1beta1/namespaces/ns/load":       "ns",
		"/apis/metrics.k8s.io/v1beta1/namespaces/ns/pods":                "ns",
		"/apis/custom.metrics.k8s.io/v1beta2/namespaces/ns/pods/*/load":  "ns",
		"/apis/custom.metrics.k8s.io/v1beta2/namespaces/ns/metrics/load": "ns",
		"/apis/apps/v1/namespaces/ns/deployments/namespaces/scale":       "ns",
		"/apis/external.metrics.k8s.io/v1beta1":                          "",
		"/apis/custom.metrics.k8s.io/v1beta2/nodes/node/load":            "",
		"/apis/custom.metrics.k8s.io/v1beta2/namespaces/":                "",
	} {
		key, ok := keyOfNamespace(&http.Request{URL: &url.URL{Path: path}})
		if ok != (namespace != "") || ok && key != hashkey.OfNamespace(namespace) {
			t.Errorf("%s: key %d, %v", path, key, ok)
		}
	}
}
