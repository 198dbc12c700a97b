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
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestOfOtherObjectsOnlyWhatNobodyReadsIsDropped(t *testing.T) {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Annotations: map[string]string{"a": "b"}}
	}
	secret := func(of v1.SecretType, data map[string][]byte) *v1.Secret {
		return &v1.Secret{ObjectMeta: meta("s"), Type: of, Data: data}
	}
	node := func(images []v1.ContainerImage) *v1.Node {
		return &v1.Node{ObjectMeta: meta("n"), Spec: v1.NodeSpec{PodCIDR: "10.0.0.0/24"}, Status: v1.NodeStatus{Phase: v1.NodeRunning, Images: images}}
	}
	config := func(name string, data map[string]string, binary map[string][]byte) *v1.ConfigMap {
		return &v1.ConfigMap{ObjectMeta: meta(name), Data: data, BinaryData: binary}
	}
	some, text := map[string][]byte{"k": []byte("v")}, map[string]string{"k": "v"}
	for name, tc := range map[string]struct{ object, want runtime.Object }{
		"a Node":                  {node([]v1.ContainerImage{{SizeBytes: 1}}), node([]v1.ContainerImage{})},
		"a Node without images":   {node(nil), node(nil)},
		"a Secret":                {secret(v1.SecretTypeOpaque, some), secret(v1.SecretTypeOpaque, map[string][]byte{})},
		"a Secret without data":   {secret(v1.SecretTypeOpaque, nil), secret(v1.SecretTypeOpaque, nil)},
		"a token":                 {secret(v1.SecretTypeServiceAccountToken, some), secret(v1.SecretTypeServiceAccountToken, some)},
		"a bootstrap token":       {secret("bootstrap.kubernetes.io/token", some), secret("bootstrap.kubernetes.io/token", some)},
		"a ConfigMap":             {config("c", text, some), config("c", map[string]string{}, map[string][]byte{})},
		"a ConfigMap, empty":      {config("c", nil, nil), config("c", nil, nil)},
		"a namespace's root CA":   {config("kube-root-ca.crt", text, nil), config("kube-root-ca.crt", text, nil)},
		"where the cluster is":    {config("cluster-info", text, nil), config("cluster-info", text, nil)},
		"what else is in a store": {&v1.Service{ObjectMeta: meta("s")}, &v1.Service{ObjectMeta: meta("s")}},
	} {
		t.Run(name, func(t *testing.T) {
			whole := tc.object.DeepCopyObject()
			trimmer := NewTrimmer()
			if trimmer.Transform(tc.object); !reflect.DeepEqual(tc.object, whole) {
				t.Errorf("with controllers that are not known: %+v", tc.object)
			}
			trimmer.Keep(NodeName, nil)
			// A reflector may transform an object twice.
			for range 2 {
				if trimmer.Transform(tc.object); !reflect.DeepEqual(tc.object, tc.want) {
					t.Errorf("got %+v, want %+v", tc.object, tc.want)
				}
			}
		})
	}
}
