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

package storage

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/apis/sharding"
)

// tableConvertor prints the objects of a list one at a time if the list may lack members of a
// ring. The printer of lists takes its input for whole rings: it begins each range where that
// of the predecessor in the list ends.
type tableConvertor struct {
	rest.TableConvertor
}

func (c tableConvertor) ConvertToTable(ctx context.Context, object, tableOptions runtime.Object) (*metav1.Table, error) {
	list, ok := object.(*sharding.ControllerInstanceList)
	if !ok || holdsWholeRings(ctx, list) {
		return c.TableConvertor.ConvertToTable(ctx, object, tableOptions)
	}
	table, err := c.TableConvertor.ConvertToTable(ctx, &sharding.ControllerInstanceList{ListMeta: list.ListMeta}, tableOptions)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		row, err := c.TableConvertor.ConvertToTable(ctx, &list.Items[i], tableOptions)
		if err != nil {
			return nil, err
		}
		table.Rows = append(table.Rows, row.Rows...)
	}
	return table, nil
}

// holdsWholeRings says whether the list is complete but for a selector on
// spec.ring: no other selector, and one page.
func holdsWholeRings(ctx context.Context, list *sharding.ControllerInstanceList) bool {
	if list.Continue != "" || list.ShardInfo != nil {
		return false
	}
	info, ok := genericapirequest.RequestInfoFrom(ctx)
	if !ok {
		return true
	}
	if info.LabelSelector != "" {
		return false
	}
	selector, err := fields.ParseSelector(info.FieldSelector)
	if err != nil {
		return false
	}
	for _, requirement := range selector.Requirements() {
		if requirement.Field != "spec.ring" {
			return false
		}
	}
	return true
}
