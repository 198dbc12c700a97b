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

package podtrim

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
)

var (
	// readSecrets are the types of Secrets whose data is read: tokens.
	readSecrets = sets.New(v1.SecretTypeServiceAccountToken, bootstrapapi.SecretTypeBootstrapToken)
	// readConfigMaps are the names of ConfigMaps whose data is read.
	readConfigMaps = sets.New("kube-root-ca.crt", bootstrapapi.ConfigMapClusterInfo)
)

// dropUnread drops in place what none of the known controllers reads: the images of a Node, which
// are most of it, and the data of a Secret or a ConfigMap that none of them has to do with. What
// was dropped is empty there, and not nil, so that it can be told from what never was there. The
// census in hack/podreads holds it against the code.
func dropUnread(obj any) {
	switch obj := obj.(type) {
	case *v1.Node:
		if len(obj.Status.Images) > 0 {
			obj.Status.Images = []v1.ContainerImage{}
		}
	case *v1.Secret:
		if len(obj.Data) > 0 && !readSecrets.Has(obj.Type) {
			obj.Data = map[string][]byte{}
		}
	case *v1.ConfigMap:
		if readConfigMaps.Has(obj.Name) {
			return
		}
		if len(obj.Data) > 0 {
			obj.Data = map[string]string{}
		}
		if len(obj.BinaryData) > 0 {
			obj.BinaryData = map[string][]byte{}
		}
	}
}
