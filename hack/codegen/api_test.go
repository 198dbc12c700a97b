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

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"ringmaster/hack/generated"
)

// What a server may answer. The file that -api makes of it is upstream's form.
var answers = map[string]string{
	"/apis":               `{"groups":[]}`,
	"/openapi/v2":         `{"swagger":"2.0","info":{"version":"v1.37.1+ringmaster.3","title":"Kubernetes"},"paths":{}}`,
	"/openapi/v3":         `{"paths":{"version":{},"api/v1":{},".well-known/openid-configuration":{}}}`,
	"/openapi/v3/version": `{"a < b & c":1.50,"A":9223372036854775807}`,
	"/openapi/v3/api/v1":  `{"info":{"version":"v1"}}`,
	"/api/v1":             `{"kind":"APIResourceList"}`,
	"/openapi/v3/.well-known/openid-configuration": `{}`,
}

func TestFetchMakesTheFilesOfUpstreamsScript(t *testing.T) {
	files := map[string][]byte{}
	err := fetch(func(path, accept string) ([]byte, error) {
		answer, ok := answers[path]
		if !ok {
			return nil, fmt.Errorf("%s is not served", path)
		}
		if path == "/apis" && accept != aggregated {
			return nil, fmt.Errorf("/apis is asked for %q", accept)
		}
		return []byte(answer), nil
	}, files)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"api/discovery/aggregated_v2.json": "{\n  \"groups\": []\n}\n",
		"api/discovery/api__v1.json":       "{\n  \"kind\": \"APIResourceList\"\n}\n",
		"api/openapi-spec/swagger.json": "{\n  \"info\": {\n    \"title\": \"Kubernetes\",\n    \"version\": \"unversioned\"\n  },\n" +
			"  \"paths\": {},\n  \"swagger\": \"2.0\"\n}\n",
		"api/openapi-spec/v3/.well-known__openid-configuration_openapi.json": "{}\n",
		"api/openapi-spec/v3/api__v1_openapi.json":                           "{\n  \"info\": {\n    \"version\": \"unversioned\"\n  }\n}\n",
		"api/openapi-spec/v3/version_openapi.json":                           "{\n  \"A\": 9223372036854775807,\n  \"a < b & c\": 1.50\n}\n",
	}
	if got, want := slices.Sorted(maps.Keys(files)), slices.Sorted(maps.Keys(want)); !slices.Equal(got, want) {
		t.Errorf("made %q, want %q", got, want)
	}
	for name, data := range files {
		if string(data) != want[name] {
			t.Errorf("%s is\n%swant\n%s", name, data, want[name])
		}
		if !generated.IsAPI(name) {
			t.Errorf("%s is no file of the API according to hack/generated", name)
		}
	}
}

func TestWithoutOursLeavesUpstreams(t *testing.T) {
	data := `{
		"definitions": {
			"io.k8s.api.sharding.v1alpha1.Gift": {},
			"ObjectMeta": {"properties": {"hashKey": {"format": "int64"}, "uid": {}}},
			"DeleteOptions": {"x-kubernetes-group-version-kind": [{"group": "apps"}, {"group": "sharding.k8s.io"}]}
		},
		"groups": [{"name": "apps"}, {"name": "sharding.k8s.io"}],
		"items": [{"metadata": {"name": "sharding.k8s.io"}}, {"metadata": {"name": "apps"}}],
		"paths": {"/apis/apps/": {}, "/apis/sharding.k8s.io/": {}}
	}`
	got, err := withoutOurs("api/openapi-spec/swagger.json", []byte(data))
	if err != nil {
		t.Fatal(err)
	}
	want, err := inUpstreamsForm([]byte(`{
		"definitions": {
			"ObjectMeta": {"properties": {"uid": {}}},
			"DeleteOptions": {"x-kubernetes-group-version-kind": [{"group": "apps"}]}
		},
		"groups": [{"name": "apps"}],
		"items": [{"metadata": {"name": "apps"}}],
		"paths": {"/apis/apps/": {}}
	}`))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got, err := withoutOurs("api/discovery/apis__sharding.k8s.io.json", []byte("{}")); got != nil || err != nil {
		t.Errorf("of a file about the group it leaves %q, %v", got, err)
	}
}

func TestServerThatEndsShowsItsLog(t *testing.T) {
	s, err := startServer(t.Context(), t.TempDir(), "sh", nil, "-c", "echo unknown flag >&2; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	addresses, err := freeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.waitReady(t.Context(), "http://"+addresses[0]); err == nil || !strings.Contains(err.Error(), "unknown flag") {
		t.Errorf("got error %v", err)
	}
}
