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
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/apis/sharding"
	"k8s.io/kubernetes/pkg/printers"
	printersinternal "k8s.io/kubernetes/pkg/printers/internalversion"
	printerstorage "k8s.io/kubernetes/pkg/printers/storage"
	"k8s.io/utils/ptr"
)

// The table of a list that may lack members of a ring says of each instance only what is true
// whoever the others are.
func TestTableOfPart(t *testing.T) {
	const whole, part = "[0000000000000000, 7fffffffffffffff]", "≤7fffffffffffffff"
	tests := map[string]struct {
		info *genericapirequest.RequestInfo
		meta metav1.ListMeta
		want string
	}{
		"no request":                {want: whole},
		"all":                       {info: &genericapirequest.RequestInfo{}, want: whole},
		"one ring":                  {info: &genericapirequest.RequestInfo{FieldSelector: "spec.ring=test"}, want: whole},
		"by name":                   {info: &genericapirequest.RequestInfo{FieldSelector: "metadata.name=a"}, want: part},
		"by ring and name":          {info: &genericapirequest.RequestInfo{FieldSelector: "spec.ring=test,metadata.name=a"}, want: part},
		"by label":                  {info: &genericapirequest.RequestInfo{LabelSelector: "zone=a"}, want: part},
		"by nonsense":               {info: &genericapirequest.RequestInfo{FieldSelector: "nonsense"}, want: part},
		"a page that others follow": {meta: metav1.ListMeta{Continue: "next"}, want: part},
		"a shard":                   {meta: metav1.ListMeta{ShardInfo: &metav1.ShardInfo{}}, want: part},
	}
	convertor := tableConvertor{printerstorage.TableConvertor{TableGenerator: printers.NewTableGenerator().With(printersinternal.AddHandlers)}}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ctx := genericapirequest.NewContext()
			if test.info != nil {
				ctx = genericapirequest.WithRequestInfo(ctx, test.info)
			}
			instance := newInstance("a")
			instance.Spec.HashKey = ptr.To[int64](0x7fffffffffffffff)
			list := &sharding.ControllerInstanceList{ListMeta: test.meta, Items: []sharding.ControllerInstance{*instance}}
			list.ResourceVersion = "7"
			table, err := convertor.ConvertToTable(ctx, list, &metav1.TableOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if table.ResourceVersion != "7" || table.Continue != test.meta.Continue {
				t.Errorf("the table lost the list's metadata: %+v", table.ListMeta)
			}
			if len(table.Rows) != 1 || len(table.ColumnDefinitions) != len(table.Rows[0].Cells) {
				t.Fatalf("got %d rows, want one with a cell for each column", len(table.Rows))
			}
			for i, column := range table.ColumnDefinitions {
				if strings.EqualFold(column.Name, "range") && table.Rows[0].Cells[i] != test.want {
					t.Errorf("got range %v, want %s", table.Rows[0].Cells[i], test.want)
				}
			}
		})
	}
}
