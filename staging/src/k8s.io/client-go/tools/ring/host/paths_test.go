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

package host

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/client-go/rest"
)

// TestEveryPathInEveryRole has what an operator can list, in each role, by each path. What would be
// silently missing is refused.
func TestEveryPathInEveryRole(t *testing.T) {
	const (
		own        = sharding.HashKeyPath
		controller = sharding.ControllerHashKeyPath
		home       = sharding.HomeHashKeyPath
		namespace  = sharding.NamespaceHashKeyPath
		claim      = sharding.ClaimHashKeyPath
	)
	paths := []string{Whole}
	for p := range sharding.NumKeyPaths {
		paths = append(paths, p.String())
	}
	metadata := func(kind string) runtime.Object {
		return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kind}}
	}
	whole := func(kind string) runtime.Object {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind}}
	}
	works := func(o runtime.Object) Controller { return Controller{Name: "c", Works: o} }
	owns := func(works, owned runtime.Object) Controller {
		return Controller{Name: "c", Works: works, Owns: []runtime.Object{owned}}
	}
	config, secret, volume, claimed := &v1.ConfigMap{}, &v1.Secret{}, &v1.PersistentVolume{}, &v1.PersistentVolumeClaim{}
	byNamespace := func(o runtime.Object) []Read { return []Read{{o, namespace}} }
	for _, tc := range []struct {
		role       string
		reads      []Read
		controller Controller
		// object is listed in Reads by each path. Right are those that are not refused.
		object runtime.Object
		right  []string
		// wrong has what the refusal says of the others, where it is not what it says of most.
		wrong map[string]string
	}{
		{"worked on", nil, works(secret), secret, []string{own, namespace}, nil},
		{"a volume worked on", nil, works(volume), volume, []string{own, namespace}, nil},
		{"metadata worked on", nil, works(metadata("Secret")), metadata("Secret"), []string{own, namespace}, nil},
		{"unstructured worked on", nil, works(whole("Secret")), whole("Secret"), []string{own, namespace}, nil},
		{"a Namespace worked on", nil, works(&v1.Namespace{}), &v1.Namespace{}, []string{own}, map[string]string{namespace: "they are in no namespace"}},
		{"metadata of a Namespace worked on", nil, works(metadata("Namespace")), metadata("Namespace"), []string{own}, map[string]string{namespace: "which is not in it"}},

		{"owned by own key", nil, owns(config, secret), secret, []string{controller, home, Whole}, nil},
		{"owned by namespace", byNamespace(config), owns(config, secret), secret, []string{namespace, Whole}, nil},
		{"a volume owned", nil, owns(config, volume), volume, []string{controller, home, Whole}, nil},
		{"a volume owned by claims", nil, owns(claimed, volume), volume, []string{controller, home, Whole}, nil},
		{"metadata owned", nil, owns(config, metadata("Secret")), metadata("Secret"), []string{controller, home, Whole}, nil},

		{"read by own key", nil, works(config), secret, []string{controller, home, Whole}, nil},
		{"read by namespace", byNamespace(config), works(config), secret, []string{namespace, Whole}, nil},
		{"a Namespace read by own key", nil, works(config), &v1.Namespace{}, []string{controller, home, Whole}, nil},
		{"a Namespace read by namespace", byNamespace(config), works(config), &v1.Namespace{}, []string{namespace, Whole}, nil},
		{"a volume read", nil, works(config), volume, []string{controller, home, Whole}, nil},
		{"a volume read for claims", nil, works(claimed), volume, []string{controller, home, claim, Whole}, nil},
		{"a volume read for claims by namespace", byNamespace(claimed), works(claimed), volume, []string{namespace, Whole}, nil},
		{"unstructured volumes read for claims", nil, works(whole("PersistentVolumeClaim")), whole("PersistentVolume"), []string{controller, home, claim, Whole}, nil},
		{"metadata of volumes read for claims", nil, works(claimed), metadata("PersistentVolume"), []string{controller, home, Whole}, map[string]string{claim: "which is not in it"}},
		{"metadata of what is worked on", nil, works(config), metadata("ConfigMap"), []string{own, controller, home, Whole}, nil},
		{"a kind of another group", nil, works(&v1.Service{}), &unstructured.Unstructured{Object: map[string]any{"apiVersion": "serving.knative.dev/v1", "kind": "Service"}}, []string{controller, home, Whole}, nil},
		{"metadata of what is worked on by namespace", byNamespace(config), works(config), metadata("ConfigMap"), []string{namespace, Whole}, nil},
	} {
		isVolume := kindOf(tc.object).Kind == "PersistentVolume"
		for _, path := range paths {
			_, err := New(Config{
				REST: &rest.Config{Host: "127.0.0.1:1"}, Ring: "a", Controllers: []Controller{tc.controller},
				Reads: append([]Read{{tc.object, path}}, tc.reads...),
			})
			right := slices.Contains(tc.right, path)
			want := tc.wrong[path]
			switch {
			case path == claim && !isVolume:
				want = "which persistentvolumes alone have"
			case want != "":
			case strings.Contains(tc.role, "worked on") && !strings.Contains(tc.role, "of what"):
				want = `: use "object.metadata.hashKey" or "object.metadata.namespace.hashKey"`
			case strings.Contains(tc.role, "owned"):
				want = "an instance would lack most of what its objects own; leave "
			default:
				want = "an instance would lack most of those that belong to its own; use host.Whole or, "
			}
			if right && err != nil {
				t.Errorf("%s, %q: %v", tc.role, path, err)
			}
			if !right && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s, %q: error %v, want one with %q", tc.role, path, err, want)
			}
		}
	}
}

// A path has to be right for each controller that owns what is divided so.
func TestAPathIsRightForAllWhoOwn(t *testing.T) {
	one := Controller{Name: "c", Works: &v1.ConfigMap{}, Owns: []runtime.Object{&v1.Pod{}}}
	two := Controller{Name: "d", Works: &v1.Secret{}, Owns: []runtime.Object{&v1.Pod{}}}
	for _, tc := range []struct {
		reads []Read
		err   string
	}{
		{nil, ""},
		{[]Read{{&v1.Secret{}, sharding.NamespaceHashKeyPath}}, `d owns *v1.Pod, which is divided by "object.metadata.controllerRef.hashKey" for another controller`},
		{[]Read{{&v1.Secret{}, sharding.NamespaceHashKeyPath}, {&v1.Pod{}, Whole}}, ""},
		{[]Read{{&v1.Secret{}, sharding.NamespaceHashKeyPath}, {&v1.Pod{}, sharding.NamespaceHashKeyPath}}, `c owns *v1.Pod, which Reads divides by "object.metadata.namespace.hashKey", and works on *v1.ConfigMap by "object.metadata.hashKey"`},
		{[]Read{{&v1.Secret{}, sharding.NamespaceHashKeyPath}, {&v1.Service{}, sharding.NamespaceHashKeyPath}, {&v1.Pod{}, Whole}, {&v1.ServiceAccount{}, sharding.HomeHashKeyPath}}, ""},
	} {
		cfg := good()
		cfg.Controllers, cfg.Reads = []Controller{one, two}, tc.reads
		if _, err := New(cfg); (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("reads %v: error %v, want one with %q", tc.reads, err, tc.err)
		}
	}
}

// Service is of a type that client-go does not know.
type Service struct{ v1.ConfigMap }

func TestWhichTypesStandForOneResource(t *testing.T) {
	metadata := func(version, kind string) runtime.Object {
		return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: kind}}
	}
	for _, tc := range []struct {
		a, b runtime.Object
		want bool
	}{
		{&v1.Service{}, &v1.Service{}, true},
		{&v1.Service{}, metadata("v1", "Service"), true},
		{&v1.Service{}, metadata("serving.knative.dev/v1", "Service"), false},
		{&v1.Service{}, &Service{}, false},
		{&Service{}, &Service{}, true},
		{&Service{}, metadata("serving.knative.dev/v1", "Service"), true},
		{&Service{}, metadata("serving.knative.dev/v1", "Revision"), false},
		{metadata("v1", "Service"), metadata("v1", "Service"), true},
		{metadata("v1", "Service"), metadata("serving.knative.dev/v1", "Service"), false},
		{&v1.Service{}, &v1.Secret{}, false},
	} {
		if isSame(tc.a, tc.b) != tc.want || isSame(tc.b, tc.a) != tc.want {
			t.Errorf("%T and %T (%v) are one resource: %t, want %t", tc.a, tc.b, tc.b.GetObjectKind().GroupVersionKind(), !tc.want, tc.want)
		}
	}
}
