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
	"strings"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/ring"
	"k8s.io/kubernetes/pkg/apis/sharding"
	_ "k8s.io/kubernetes/pkg/apis/sharding/install"
	"k8s.io/kubernetes/pkg/printers"
)

func addControllerInstanceHandlers(h printers.PrintHandler) {
	spec, status, meta := shardingv1alpha1.ControllerInstanceSpec{}.SwaggerDoc(), shardingv1alpha1.ControllerInstanceStatus{}.SwaggerDoc(), metav1.ObjectMeta{}.SwaggerDoc()
	columns := []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: meta["name"]},
		{Name: "Ring", Type: "string", Description: spec["ring"]},
		{Name: "Phase", Type: "string", Description: "Where the instance stands in the protocol of the ring; Drained behind it: it is to own no range while another can."},
		{Name: "Range", Type: "string", Description: "The hash keys that the instance owns, as (after, upTo] in hexadecimal; behind an arrow, the key to which the upper end is to move. A lone object tells only the upper end."},
		{Name: "Weight", Type: "integer", Description: status["weight"]},
		{Name: "Controllers", Type: "string", Description: "How many of its controllers the instance works on, of how many that it runs on the ring."},
		{Name: "Age", Type: "string", Description: meta["creationTimestamp"]},
		{Name: "Waiting", Type: "string", Description: "Why the instance does not work on a controller, or is about to cease."},
		{Name: "Holder", Type: "string", Priority: 1, Description: spec["holderIdentity"]},
		{Name: "Donor", Type: "string", Priority: 1, Description: spec["donor"]},
		{Name: "Next Key", Type: "string", Priority: 1, Description: spec["nextHashKey"]},
		{Name: "Heap", Type: "string", Priority: 1, Description: status["heap"]},
		{Name: "Controller Names", Type: "string", Priority: 1, Description: spec["controllers"]},
	}
	_ = h.TableHandler(columns, printControllerInstance)
	_ = h.TableHandler(columns, printControllerInstanceList)
}

// printControllerInstance prints a lone instance. Where its range begins depends on its
// predecessor in the ring, so only the end is known.
func printControllerInstance(obj *sharding.ControllerInstance, options printers.GenerateOptions) ([]metav1.TableRow, error) {
	keys := "-"
	if obj.Spec.HashKey != nil {
		keys = "≤" + hashkey.Format(*obj.Spec.HashKey)
	}
	return []metav1.TableRow{controllerInstanceRow(obj, keys, options)}, nil
}

// printControllerInstanceList prints instances with their ranges. It takes the list for
// whole rings.
func printControllerInstanceList(list *sharding.ControllerInstanceList, options printers.GenerateOptions) ([]metav1.TableRow, error) {
	records := make([]ring.Record, 0, len(list.Items))
	for i := range list.Items {
		obj := &list.Items[i]
		records = append(records, ring.Record{Name: obj.Name, Ring: obj.Spec.Ring, Key: obj.Spec.HashKey})
	}
	views := ring.NewViews(0, records...)
	rows := make([]metav1.TableRow, 0, len(list.Items))
	for i := range list.Items {
		obj := &list.Items[i]
		keys := "-"
		if owned := views.Ring(obj.Spec.Ring).Owned(obj.Name); !owned.Empty() {
			keys = owned.String()
		}
		rows = append(rows, controllerInstanceRow(obj, keys, options))
	}
	return rows, nil
}

func controllerInstanceRow(obj *sharding.ControllerInstance, keys string, options printers.GenerateOptions) metav1.TableRow {
	next := "<none>"
	if obj.Spec.NextHashKey != nil {
		next = hashkey.Format(*obj.Spec.NextHashKey)
		keys += "→" + next
	}
	working := 0
	var waiting []string
	for _, state := range obj.Status.Controllers {
		if state.Working {
			working++
		}
		if state.Reason != "" {
			waiting = append(waiting, state.Name+": "+state.Reason)
		}
	}
	phase := orNone(string(obj.Status.Phase))
	if obj.Spec.Drained {
		phase += ",Drained"
	}
	row := metav1.TableRow{
		Object: runtime.RawExtension{Object: obj},
		Cells: []interface{}{obj.Name, obj.Spec.Ring, phase, keys, obj.Status.Weight,
			fmt.Sprintf("%d/%d", working, len(obj.Spec.Controllers)), translateTimestampSince(obj.CreationTimestamp), orNone(strings.Join(waiting, "; "))},
	}
	if options.Wide {
		row.Cells = append(row.Cells, obj.Spec.HolderIdentity, orNone(obj.Spec.Donor), next, heap(obj.Status.Heap), orNone(strings.Join(obj.Spec.Controllers, ",")))
	}
	for n, cell := range row.Cells {
		if text, ok := cell.(string); ok {
			row.Cells[n] = ring.Printable(text)
		}
	}
	return row
}

// heap prints the size in whole mebibytes, rounded down.
func heap(h *sharding.ProcessHeap) string {
	if h == nil {
		return "<none>"
	}
	return fmt.Sprintf("%dMi", h.LiveBytes>>20)
}

func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}
