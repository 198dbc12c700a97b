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

package internalversion

import (
	"fmt"
	"sort"
	"strings"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/apis/sharding"
	_ "k8s.io/kubernetes/pkg/apis/sharding/install"
	"k8s.io/kubernetes/pkg/printers"
)

func addControllerInstanceHandlers(h printers.PrintHandler) {
	spec, status, meta := shardingv1alpha1.ControllerInstanceSpec{}.SwaggerDoc(), shardingv1alpha1.ControllerInstanceStatus{}.SwaggerDoc(), metav1.ObjectMeta{}.SwaggerDoc()
	columns := []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: meta["name"]},
		{Name: "Controller", Type: "string", Description: spec["controllerName"]},
		{Name: "Phase", Type: "string", Description: status["phase"]},
		{Name: "Range", Type: "string", Description: "The hash keys the instance owns, in hexadecimal, and after an arrow where their upper end is to move. A lone object tells only the upper end."},
		{Name: "Workloads", Type: "integer", Description: status["workloads"]},
		{Name: "Age", Type: "string", Description: meta["creationTimestamp"]},
		{Name: "Holder", Type: "string", Priority: 1, Description: spec["holderIdentity"]},
		{Name: "Donor", Type: "string", Priority: 1, Description: spec["donor"]},
		{Name: "Next Key", Type: "string", Priority: 1, Description: spec["nextHashKey"]},
		{Name: "Renewed", Type: "string", Priority: 1, Description: status["renewTime"]},
	}
	_ = h.TableHandler(columns, printControllerInstance)
	_ = h.TableHandler(columns, printControllerInstanceList)
}

// printControllerInstance prints a lone instance. Where its range begins depends on its
// predecessor in the ring, so only the end is known.
func printControllerInstance(obj *sharding.ControllerInstance, options printers.GenerateOptions) ([]metav1.TableRow, error) {
	keys := "-"
	if obj.Spec.HashKey != nil {
		keys = "≤" + formatHashKey(*obj.Spec.HashKey)
	}
	return []metav1.TableRow{controllerInstanceRow(obj, keys, options)}, nil
}

// printControllerInstanceList prints instances with their ranges. It takes the list for
// whole rings, one for each controller.
func printControllerInstanceList(list *sharding.ControllerInstanceList, options printers.GenerateOptions) ([]metav1.TableRow, error) {
	rings := map[string][]int64{}
	for i := range list.Items {
		if spec := &list.Items[i].Spec; spec.HashKey != nil {
			rings[spec.ControllerName] = append(rings[spec.ControllerName], *spec.HashKey)
		}
	}
	for _, ring := range rings {
		sort.Slice(ring, func(i, j int) bool { return ring[i] < ring[j] })
	}

	rows := make([]metav1.TableRow, 0, len(list.Items))
	for i := range list.Items {
		obj := &list.Items[i]
		keys := "-"
		if obj.Spec.HashKey != nil {
			keys = ownRange(rings[obj.Spec.ControllerName], *obj.Spec.HashKey)
		}
		rows = append(rows, controllerInstanceRow(obj, keys, options))
	}
	return rows, nil
}

func controllerInstanceRow(obj *sharding.ControllerInstance, keys string, options printers.GenerateOptions) metav1.TableRow {
	next := "<none>"
	if obj.Spec.NextHashKey != nil {
		next = formatHashKey(*obj.Spec.NextHashKey)
		keys += "→" + next
	}
	row := metav1.TableRow{
		Object: runtime.RawExtension{Object: obj},
		Cells:  []interface{}{obj.Name, obj.Spec.ControllerName, orNone(string(obj.Status.Phase)), keys, obj.Status.Workloads, translateTimestampSince(obj.CreationTimestamp)},
	}
	if options.Wide {
		renewed := "<none>"
		if obj.Status.RenewTime != nil {
			renewed = translateMicroTimestampSince(*obj.Status.RenewTime)
		}
		row.Cells = append(row.Cells, obj.Spec.HolderIdentity, orNone(obj.Spec.Donor), next, renewed)
	}
	return row
}

// ownRange prints the keys that the owner of key has in a ring, given as the keys of
// all its owners in ascending order: (predecessor,key], and for the lowest of them, which
// also owns what lies above the highest, [0,key] and that.
func ownRange(ring []int64, key int64) string {
	predecessor := ring[len(ring)-1]
	if i := sort.Search(len(ring), func(i int) bool { return ring[i] >= key }); i > 0 {
		predecessor = ring[i-1]
	}
	var parts []string
	for _, r := range hashkey.Between(predecessor, key) {
		start := "[" + formatHashKey(0)
		if r.Start > 0 {
			start = "(" + formatHashKey(int64(r.Start-1))
		}
		parts = append(parts, start+","+formatHashKey(int64(r.End-1))+"]")
	}
	return strings.Join(parts, ",")
}

func formatHashKey(key int64) string {
	return fmt.Sprintf("%016x", key)
}

func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}
