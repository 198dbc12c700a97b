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
	"go/ast"
	"go/constant"
	"go/types"
	"strings"

	"golang.org/x/tools/go/packages"
)

const (
	kubernetes = "k8s.io/kubernetes/pkg/"
	core       = "k8s.io/api/core/v1."
)

// controllerPackages has the packages of each controller behind the leader's lease that gets pods
// from the informer which all share.
var controllerPackages = map[string][]string{
	"device-taint-eviction-controller": {kubernetes + "controller/devicetainteviction"},
	"garbage-collector-controller":     {kubernetes + "controller/garbagecollector"},
	"node-lifecycle-controller": {
		kubernetes + "controller/nodelifecycle", kubernetes + "controller/nodelifecycle/scheduler",
		kubernetes + "controller/tainteviction",
	},
	"persistentvolume-attach-detach-controller": {
		kubernetes + "controller/volume/attachdetach", kubernetes + "controller/volume/attachdetach/cache",
		kubernetes + "controller/volume/attachdetach/metrics", kubernetes + "controller/volume/attachdetach/populator",
		kubernetes + "controller/volume/attachdetach/reconciler", kubernetes + "controller/volume/attachdetach/statusupdater",
		kubernetes + "controller/volume/attachdetach/util",
	},
	"persistentvolume-binder-controller": {
		kubernetes + "controller/volume/persistentvolume", kubernetes + "controller/volume/persistentvolume/metrics",
	},
	"pod-garbage-collector-controller": {kubernetes + "controller/podgc"},
	"podgroup-protection-controller":   {kubernetes + "controller/scheduling/podgroupprotection"},
	"resourceclaim-controller":         {kubernetes + "controller/resourceclaim"},
	"resourcequota-controller": {
		kubernetes + "controller/resourcequota", kubernetes + "quota/v1/evaluator/core", kubernetes + "quota/v1/install",
	},
	"storage-version-migrator-controller": {kubernetes + "controller/storageversionmigrator"},
	"taint-eviction-controller":           {kubernetes + "controller/tainteviction"},
}

// helpers are packages that many call. What is called is looked into, and nothing else of them.
var helpers = []string{
	kubernetes + "api/v1/pod", kubernetes + "apis/core/v1/helper", kubernetes + "apis/core/v1/helper/qos",
	kubernetes + "controller", kubernetes + "controller/util/node", kubernetes + "controller/volume/common",
	kubernetes + "kubelet/eviction", kubernetes + "util/pod", kubernetes + "volume/csimigration", kubernetes + "volume/util",
	"k8s.io/apiserver/pkg/quota/v1/generic", "k8s.io/component-helpers/resource",
	"k8s.io/component-helpers/scheduling/corev1", "k8s.io/component-helpers/storage/ephemeral",
	"k8s.io/csi-translation-lib", "k8s.io/csi-translation-lib/plugins", "k8s.io/dynamic-resource-allocation/resourceclaim",
}

// tracked are the structs that podtrim takes parts of.
var tracked = []string{
	core + "Affinity", core + "Container", core + "ContainerState", core + "ContainerStateRunning",
	core + "ContainerStateTerminated", core + "ContainerStateWaiting", core + "ContainerStatus",
	core + "EphemeralVolumeSource", core + "Pod", core + "PodAffinityTerm", core + "PodCondition", core + "PodSpec",
	core + "PodStatus", core + "Volume", core + "VolumeSource", core + "WeightedPodAffinityTerm",
}

// carriers lead to pods.
var carriers = []string{
	"k8s.io/client-go/informers/core/v1.PodInformer",
	"k8s.io/client-go/listers/core/v1.PodLister",
	"k8s.io/client-go/listers/core/v1.PodNamespaceLister",
	"k8s.io/client-go/tools/cache.Indexer",
	"k8s.io/client-go/tools/cache.SharedIndexInformer",
	"k8s.io/client-go/tools/cache.Store",
}

// live are functions that use pods which have just been read from the API server.
var live = map[string]exemption{
	kubernetes + "controller/tainteviction.addConditionAndDeletePod":                          {why: "gets the pod"},
	"(*" + kubernetes + "controller/devicetainteviction.Controller).addConditionAndDeletePod": {why: "gets the pod"},
	kubernetes + "controller/util/node.MarkPodsNotReady": {
		why: "has another function read the pods", instead: kubernetes + "controller/util/node.readBeforeWrite",
	},
}

// allowed are functions outside of the source that is read, which may be given what leads to a pod,
// and why. A star stands for all methods of a type. With "by" and a function's name, that function
// alone may give it.
var allowed = map[string]string{
	"(k8s.io/client-go/tools/record.EventRecorder).*":     metadata,
	"k8s.io/apimachinery/pkg/apis/meta/v1.IsControlledBy": metadata,
	"k8s.io/client-go/tools/cache.MetaNamespaceKeyFunc":   metadata,
	"k8s.io/client-go/tools/cache.MetaObjectToName":       metadata,
	"k8s.io/klog/v2.KObj":                                 metadata,
	"k8s.io/klog/v2.KObjSlice":                            metadata,
	"k8s.io/client-go/tools/cache.NewIntegerResourceVersionMutationCacheWithOptions by " + kubernetes + "controller/resourceclaim.newControllerWithFeatures": "is for claims",

	"(github.com/go-logr/logr.Logger).Info": "logs",
	"k8s.io/klog/v2.Format":                 "formats for a log",
	"k8s.io/apimachinery/pkg/util/diff.Diff by (*" + kubernetes + "controller/devicetainteviction.Controller).handlePodChange": "logs in tests",

	"(*k8s.io/api/core/v1.PodStatus).DeepCopy":                                                                                       "reads of the copy count",
	"encoding/json.Marshal by " + kubernetes + "util/pod.preparePatchBytesForPodStatus":                                              patch,
	"k8s.io/apimachinery/pkg/util/strategicpatch.CreateTwoWayMergePatch by " + kubernetes + "util/pod.preparePatchBytesForPodStatus": patch,

	"sort.Sort by (*" + kubernetes + "controller/podgc.PodGCController).gcTerminated":  "asks methods of this package",
	"sort.Sort by (*" + kubernetes + "controller/podgc.PodGCController).gcTerminating": "asks methods of this package",

	"(*" + kubernetes + "volume.VolumePluginMgr).*":                                                                                        plugins,
	"(" + kubernetes + "volume.DeletableVolumePlugin).NewDeleter":                                                                          plugins,
	"(" + kubernetes + "volume.RecyclableVolumePlugin).Recycle":                                                                            plugins,
	"(" + kubernetes + "volume.VolumePlugin).GetVolumeName":                                                                                plugins,
	kubernetes + "volume.NewSpecFromVolume":                                                                                                plugins,
	"(" + kubernetes + "volume/util/operationexecutor.OperationExecutor).*":                                                                plugins + "; pods are named in events",
	"k8s.io/component-base/metrics/legacyregistry.CustomMustRegister by " + kubernetes + "controller/volume/attachdetach/metrics.Register": "registers a collector of this package",

	kubernetes + "apis/core/v1.Convert_core_Pod_To_v1_Pod by " + kubernetes + "quota/v1/evaluator/core.toExternalPodOrError": "converts no cached pod",
}

const (
	metadata = "reads metadata"
	patch    = "makes a patch between two statuses that lack the same, and keep the types of conditions"
	plugins  = "has plugins read the source of a volume, which is kept"
)

// elsewhere are controllers that need the informer of pods for something else than what it holds.
var elsewhere = map[string]string{
	"legacy-serviceaccount-token-cleaner-controller": "lists pods from the API server",
}

const (
	catalogue    = kubernetes + "controller/ring/catalogue"
	constructors = "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	podtrim      = kubernetes + "controller/podtrim"
)

// users returns the controllers whose constructors use the informer of pods, or give somebody all
// informers, by the package of kube-controller-manager's that has their descriptors.
func users(app *packages.Package) map[string]bool {
	bodies := map[types.Object]*ast.FuncDecl{}
	for _, file := range app.Syntax {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok {
				bodies[app.TypesInfo.Defs[f.Name]] = f
			}
		}
	}
	found := map[string]bool{}
	for _, f := range bodies {
		ast.Inspect(f, func(n ast.Node) bool {
			literal, ok := n.(*ast.CompositeLit)
			if !ok || typeName(app.TypesInfo.TypeOf(literal)) != app.PkgPath+".ControllerDescriptor" {
				return true
			}
			var name string
			var constructor ast.Node
			for _, element := range literal.Elts {
				entry := element.(*ast.KeyValueExpr)
				switch entry.Key.(*ast.Ident).Name {
				case "name":
					name = constant.StringVal(app.TypesInfo.Types[entry.Value].Value)
				case "constructor":
					constructor = entry.Value
				}
			}
			if constructor == nil {
				return true
			}
			found[name] = usesPods(app, constructor, bodies, map[types.Object]bool{})
			return false
		})
	}
	return found
}

// ringControllers returns the names in the catalogue. Those that are not declared get whole pods
// where they are behind the lease.
func ringControllers(catalogue *packages.Package) map[string]bool {
	names := map[string]bool{}
	scope := catalogue.Types.Scope()
	for _, name := range scope.Names() {
		if c, ok := scope.Lookup(name).(*types.Const); ok && strings.HasSuffix(name, "Controller") {
			names[constant.StringVal(c.Val())] = true
		}
	}
	return names
}

// usesPods says whether a part of the source, or a function of the package that it mentions, asks
// for the informer of pods or hands on what may.
func usesPods(app *packages.Package, part ast.Node, bodies map[types.Object]*ast.FuncDecl, seen map[types.Object]bool) (uses bool) {
	// What is selected further is not handed on.
	inner := map[ast.Node]bool{}
	ast.Inspect(part, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			inner[n.X] = true
			switch n.Sel.Name {
			case "Pods":
				uses = uses || typeName(app.TypesInfo.TypeOf(n.X)) == "k8s.io/client-go/informers/core/v1.Interface"
			case "InformerFactory":
				uses = uses || !inner[n]
			case "ForResource", "ObjectOrMetadataInformerFactory", "GraphBuilder":
				uses = true
			}
		case *ast.Ident:
			of := app.TypesInfo.Uses[n]
			if f := bodies[of]; f != nil && !seen[of] {
				seen[of] = true
				uses = uses || usesPods(app, f, bodies, seen)
			}
		}
		return true
	})
	return uses
}
