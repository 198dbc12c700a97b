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
	"go/ast"
	"go/types"
	"maps"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// unread has the fields that podtrim drops of objects other than pods, and the methods that write
// such objects whole. Of each it has the functions that may use it all the same, and why.
var unread = map[string]map[string]string{
	"NodeStatus.Images": {
		podtrim + ".dropUnread":                        "drops them",
		kubernetes + "controller/util/node.ReadImages": "reads them from the API server",
	},
	"Secret.Data": {
		podtrim + ".dropUnread": "drops it",
		"(*" + kubernetes + "controller/serviceaccount.TokensController).secretUpdateNeeded":    "of tokens of service accounts, which are whole",
		"(*" + kubernetes + "controller/serviceaccount.TokensController).generateTokenIfNeeded": "of a Secret that it has just read",
		"k8s.io/cluster-bootstrap/util/secrets.GetData":                                         "its callers look at bootstrap tokens alone, which are whole",
		"(*" + kubernetes + "serviceaccount.legacyValidator).Validate":                          "runs in kube-apiserver",
	},
	"Secret.StringData": {},
	"ConfigMap.Data": {
		podtrim + ".dropUnread": "drops it",
		"(*" + kubernetes + "controller/certificates/rootcacertpublisher.Publisher).syncNamespace":           "of kube-root-ca.crt, which is whole",
		"(*" + kubernetes + "controller/bootstrap.Signer).signConfigMap":                                     "of cluster-info, which is whole",
		"(*" + kubernetes + "controller/serviceaccount.LegacySATokenCleaner).latestPossibleTrackedSinceTime": "of a ConfigMap that it has just read",
	},
	"ConfigMap.BinaryData":                {podtrim + ".dropUnread": "drops it"},
	typed + "NodeInterface).Apply":        {},
	typed + "NodeInterface).ApplyStatus":  {},
	typed + "NodeInterface).Update":       {},
	typed + "NodeInterface).UpdateStatus": {"(*" + kubernetes + "controller/nodelifecycle.Controller).tryUpdateNodeHealth": "reads the images first"},
	typed + "SecretInterface).Apply":      {},
	typed + "SecretInterface).Update":     {"(*" + kubernetes + "controller/serviceaccount.TokensController).generateTokenIfNeeded": "a Secret that it has just read"},
	typed + "ConfigMapInterface).Apply":   {},
	typed + "ConfigMapInterface).Update": {
		"(*" + kubernetes + "controller/certificates/rootcacertpublisher.Publisher).syncNamespace": "kube-root-ca.crt, which is whole",
		"(*" + kubernetes + "controller/bootstrap.Signer).updateConfigMap":                         "cluster-info, which is whole",
	},
}

const typed = "(k8s.io/client-go/kubernetes/typed/core/v1."

// holders are the structs with those fields.
var holders = []string{core + "NodeStatus", core + "Secret", core + "ConfigMap"}

// controllersOf are the packages in which controllers, and what they call, may be: those that begin
// so and that kube-controller-manager is made of. Volume plugins are left out: they read Secrets
// from the API server, and of Nodes in informers they get the one that was selected for a volume.
var controllersOf = []string{
	constructors, kubernetes + "controller", kubernetes + "quota/", kubernetes + "serviceaccount", kubernetes + "util/",
	"k8s.io/apiserver/pkg/quota/", "k8s.io/cloud-provider/", "k8s.io/cluster-bootstrap/", "k8s.io/component-helpers/",
	"k8s.io/controller-manager/", "k8s.io/csi-translation-lib", "k8s.io/dynamic-resource-allocation/", "k8s.io/endpointslice",
}

// unreadFaults returns where a controller uses what podtrim drops, and which exceptions nobody
// needs.
func unreadFaults(tree string, verbose bool) ([]string, error) {
	all, err := packages.Load(&packages.Config{Mode: packages.NeedName | packages.NeedImports | packages.NeedDeps, Dir: tree}, constructors)
	if err != nil {
		return nil, err
	}
	var paths []string
	packages.Visit(all, nil, func(p *packages.Package) {
		if slices.ContainsFunc(controllersOf, func(prefix string) bool { return strings.HasPrefix(p.PkgPath, prefix) }) {
			paths = append(paths, p.PkgPath)
		}
	})
	fmt.Printf("loading %d packages of controllers with their types\n", len(paths))
	pkgs, err := packages.Load(&packages.Config{Mode: packages.LoadSyntax, Dir: tree}, paths...)
	if err != nil {
		return nil, err
	}
	for _, p := range pkgs {
		for _, err := range p.Errors {
			return nil, err
		}
	}
	uses := usesOfUnread(pkgs)
	if verbose {
		for _, what := range slices.Sorted(maps.Keys(uses)) {
			fmt.Printf("  %s: %s\n", what, strings.Join(slices.Sorted(maps.Keys(uses[what])), ", "))
		}
	}
	return compareUnread(uses, unread), nil
}

// usesOfUnread returns which functions use what is in unread.
func usesOfUnread(pkgs []*packages.Package) found {
	c := newCensus(pkgs, holders, nil, nil)
	fields, uses := found{}, found{}
	for _, p := range pkgs {
		for _, root := range c.rootsOf(p) {
			ast.Inspect(root.body, func(n ast.Node) bool {
				selector, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				c.selects(root, selector, fields)
				if method, ok := root.info.Uses[selector.Sel].(*types.Func); ok && unread[method.FullName()] != nil {
					uses.add(method.FullName(), root.name, c.fset.Position(selector.Sel.Pos()))
				}
				return true
			})
		}
	}
	for what, by := range fields {
		if unread[what] != nil {
			uses[what] = by
		}
	}
	return uses
}

// compareUnread returns which uses have no exception, and which exceptions have no use.
func compareUnread(uses found, exceptions map[string]map[string]string) (faults []string) {
	for what, by := range uses {
		for name, at := range by {
			if exceptions[what][name] == "" {
				faults = append(faults, fmt.Sprintf("%s uses %s, at %s: podtrim drops that, or what is written has lost it", name, what, at))
			}
		}
	}
	for what, by := range exceptions {
		for name := range by {
			if _, used := uses[what][name]; !used {
				faults = append(faults, fmt.Sprintf("%s does not use %s, which hack/podreads allows", name, what))
			}
		}
	}
	return faults
}
