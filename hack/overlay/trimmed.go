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
	"bytes"
	"errors"
	"go/ast"
	"go/build"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
)

// readers are the packages with tests of controllers that stay behind the leader's lease, with the
// names of those controllers. Those of test/integration have all of the others'.
var readers = map[string][]string{
	"pkg/controller/bootstrap":                        {"bootstrap-signer-controller"},
	"pkg/controller/certificates/rootcacertpublisher": {"root-ca-certificate-publisher-controller"},
	"pkg/controller/devicetainteviction":              {"device-taint-eviction-controller"},
	"pkg/controller/garbagecollector":                 {"garbage-collector-controller"},
	"pkg/controller/nodeipam/ipam":                    {"node-ipam-controller"},
	"pkg/controller/nodelifecycle":                    {"node-lifecycle-controller"},
	"pkg/controller/podgc":                            {"pod-garbage-collector-controller"},
	"pkg/controller/resourceclaim":                    {"resourceclaim-controller"},
	"pkg/controller/resourcequota":                    {"resourcequota-controller"},
	"pkg/controller/scheduling/podgroupprotection":    {"podgroup-protection-controller"},
	tokenCleaner:                                    {"serviceaccount-token-controller"},
	"pkg/controller/tainteviction":                  {"taint-eviction-controller"},
	"pkg/controller/ttl":                            {"ttl-controller"},
	"pkg/controller/volume/attachdetach":            {"persistentvolume-attach-detach-controller"},
	"pkg/controller/volume/attachdetach/metrics":    {"persistentvolume-attach-detach-controller"},
	"pkg/controller/volume/attachdetach/populator":  {"persistentvolume-attach-detach-controller"},
	"pkg/controller/volume/attachdetach/reconciler": {"persistentvolume-attach-detach-controller"},
	"pkg/controller/volume/persistentvolume":        {"persistentvolume-binder-controller"},
	"test/integration/dra":                          nil,
	"test/integration/dra/all":                      nil,
	"test/integration/dra/api":                      nil,
	"test/integration/dra/default":                  nil,
	"test/integration/dra/ga":                       nil,
	"test/integration/evictions":                    nil,
	"test/integration/garbagecollector":             nil,
	"test/integration/node":                         nil,
	"test/integration/podgc":                        nil,
	"test/integration/quota":                        nil,
	"test/integration/volume":                       nil,
	"test/integration/volumescheduling":             nil,
}

// tokenCleaner has a controller that gets pods from the API server.
const tokenCleaner = "pkg/controller/serviceaccount"

// trimmed has tests run on pods, nodes, secrets and configmaps that have only what the controllers
// read, in each store and informer that a test makes.
func trimmed(o *overlay, packages []string) ([]string, error) {
	const cache = "staging/src/k8s.io/client-go/tools/cache"
	chosen, err := choose(readers, packages)
	errs := []error{err,
		o.editFile(cache+"/store.go", "transformer", first("cache", "transformer: trimStored,")),
		o.editFile(cache+"/shared_informer.go", "transform", first("sharedIndexInformer", "transform: trim,")),
	}
	o.files[cache+"/trim.go"] = []byte(trimOfCache)
	var all []string
	for _, controllers := range readers {
		all = append(all, controllers...)
	}
	slices.Sort(all)
	for _, folder := range chosen {
		pkg, err := build.ImportDir(filepath.Join(o.tree, folder), 0)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		controllers := readers[folder]
		if controllers == nil {
			controllers = slices.Compact(slices.Clone(all))
		}
		var text bytes.Buffer
		err = trimOfPackage.Execute(&text, map[string]any{
			"Package": pkg.Name, "Controllers": controllers, "Pods": folder != tokenCleaner,
			// Unit tests put pods into stores. Beside a controller that is tested with an API server
			// there may be a scheduler, whose informers have a transform of their own, and whole pods.
			"Stored": strings.HasPrefix(folder, "pkg/"),
		})
		errs = append(errs, err)
		o.files[path.Join(folder, "trim_pods_test.go")] = text.Bytes()
	}
	return chosen, errors.Join(errs...)
}

// first finds the literals of a struct that have fields, and puts one before these.
func first(structure, field string) func(node ast.Node) (from, to token.Pos, with string) {
	return func(node ast.Node) (from, to token.Pos, with string) {
		if literal, ok := node.(*ast.CompositeLit); ok && len(literal.Elts) > 0 && lastName(literal.Type) == structure {
			return literal.Lbrace + 1, literal.Lbrace + 1, field
		}
		return
	}
}

const trimOfCache = `package cache

func whole(obj any) any { return obj }

// Trim is for what informers get, TrimStored for what is put into stores.
var Trim, TrimStored = whole, whole

func trim(obj any) (any, error) { return Trim(obj), nil }

func trimStored(obj any) (any, error) { return TrimStored(obj), nil }
`

var trimOfPackage = template.Must(template.New("").Parse(`package {{.Package}}

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/podtrim"
)

func init() {
	trimmer := podtrim.NewTrimmer()
	trimmer.Keep(podtrim.ReadBy({{range .Controllers}}"{{.}}", {{end}}), nil)
	cache.Trim = func(obj any) any {
		switch obj := obj.(type) {
		case {{if .Pods}}*v1.Pod, {{end}}*v1.Node, *v1.Secret, *v1.ConfigMap:
			// A test may have the object in other places, too.
			trimmed := obj.(runtime.Object).DeepCopyObject()
			trimmer.Transform(trimmed)
			return trimmed
		}
		return obj
	}
	{{- if .Stored}}
	cache.TrimStored = cache.Trim
	{{- end}}
}
`))
