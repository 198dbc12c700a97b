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

// Package generated knows which files of the tree hack/codegen makes. Such files are neither
// kept in the repository nor patched.
package generated

import (
	"path"
	"strings"
)

// Is reports whether the file is generated code, a fixture or a file of the API. The path is
// relative to the root of the tree and has slashes.
func Is(file string) bool {
	base := path.Base(file)
	if strings.HasPrefix(base, "zz_generated.") {
		return true
	}
	switch base {
	case "generated.proto", "generated.pb.go", "generated.protomessage.pb.go", "types_swagger_doc_generated.go":
		return true
	}
	return isClient(file) || IsFixture(file) || IsAPI(file)
}

// IsAPI reports whether the file is an OpenAPI or discovery file, which the built API server
// serves. The path is as for Is.
func IsAPI(file string) bool {
	return under(file, served) && strings.HasSuffix(file, ".json")
}

var served = []string{"api/discovery/", "api/openapi-spec/"}

// IsFixture reports whether the file is test data that is derived from the code,
// which only upstream's tests need. The path is as for Is.
func IsFixture(file string) bool {
	return under(file, fixtures) && path.Base(file) != "OWNERS" || isRoundTrip(file)
}

// isRoundTrip reports whether the file has an earlier release's object after it was read and
// written. A new field that is written even if it is zero changes such files.
func isRoundTrip(file string) bool {
	return strings.Contains(file, "/testdata/v") && strings.Contains(path.Base(file), ".after_roundtrip.")
}

var fixtures = []string{
	"plugin/pkg/auth/authorizer/rbac/bootstrappolicy/testdata/",
	"staging/src/k8s.io/api/testdata/HEAD/",
	"staging/src/k8s.io/apiextensions-apiserver/pkg/apis/testdata/HEAD/",
	"test/compatibility_lifecycle/reference/",
}

// clients are the output folders of the generators of clients, informers, listers and apply
// configurations.
var clients = []string{
	"staging/src/k8s.io/apiextensions-apiserver/examples/client-go/pkg/client/",
	"staging/src/k8s.io/apiextensions-apiserver/pkg/client/",
	"staging/src/k8s.io/client-go/applyconfigurations/",
	"staging/src/k8s.io/client-go/informers/",
	"staging/src/k8s.io/client-go/kubernetes/",
	"staging/src/k8s.io/client-go/listers/",
	"staging/src/k8s.io/kube-aggregator/pkg/client/",
	"staging/src/k8s.io/metrics/pkg/client/clientset/",
	"staging/src/k8s.io/sample-apiserver/pkg/generated/",
	"staging/src/k8s.io/sample-controller/pkg/generated/",
}

// handWritten are the files in clients that no generator writes, besides tests and
// *_expansion.go.
var handWritten = map[string]bool{
	"staging/src/k8s.io/client-go/applyconfigurations/doc.go":                              true,
	"staging/src/k8s.io/client-go/applyconfigurations/meta/v1/unstructured.go":             true,
	"staging/src/k8s.io/client-go/informers/doc.go":                                        true,
	"staging/src/k8s.io/client-go/kubernetes/doc.go":                                       true,
	"staging/src/k8s.io/client-go/kubernetes/import.go":                                    true,
	"staging/src/k8s.io/client-go/listers/doc.go":                                          true,
	"staging/src/k8s.io/client-go/listers/generic_helpers.go":                              true,
	"staging/src/k8s.io/sample-apiserver/pkg/generated/openapi/cmd/models-schema/main.go":  true,
	"staging/src/k8s.io/sample-controller/pkg/generated/openapi/cmd/models-schema/main.go": true,
}

func isClient(file string) bool {
	if !under(file, clients) || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") || handWritten[file] {
		return false
	}
	base := path.Base(file)
	return base == "generated_expansion.go" || !strings.HasSuffix(base, "_expansion.go")
}

func under(file string, folders []string) bool {
	for _, folder := range folders {
		if strings.HasPrefix(file, folder) {
			return true
		}
	}
	return false
}
