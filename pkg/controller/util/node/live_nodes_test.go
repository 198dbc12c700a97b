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

package node

import (
	"errors"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestImagesAreReadOnlyIfTheyWereDropped(t *testing.T) {
	images := []v1.ContainerImage{{Names: []string{"i"}}}
	node := func(uid, version string, images []v1.ContainerImage) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: types.UID(uid), ResourceVersion: version}, Status: v1.NodeStatus{Images: images}}
	}
	for name, tc := range map[string]struct {
		cached, stored *v1.Node
		reads          int
		want           int
		gone           bool
	}{
		"whole":          {node("1", "5", images), node("1", "5", images), 0, 1, false},
		"without images": {node("1", "5", nil), node("1", "5", images), 0, 0, false},
		"dropped":        {node("1", "5", []v1.ContainerImage{}), node("1", "6", images), 1, 1, false},
		"none any more":  {node("1", "5", []v1.ContainerImage{}), node("1", "6", nil), 1, 0, false},
		"made anew":      {node("1", "5", []v1.ContainerImage{}), node("2", "6", images), 1, 0, true},
		"gone":           {node("1", "5", []v1.ContainerImage{}), nil, 1, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			if tc.stored != nil {
				client = fake.NewClientset(tc.stored)
			}
			before := tc.cached.DeepCopy()
			forget, err := ReadImages(t.Context(), client, tc.cached)
			if apierrors.IsNotFound(err) != tc.gone || err != nil && !tc.gone {
				t.Errorf("got %v", err)
			}
			if len(client.Actions()) != tc.reads || len(tc.cached.Status.Images) != tc.want || tc.cached.ResourceVersion != "5" {
				t.Errorf("%d reads, and %+v", len(client.Actions()), tc.cached)
			}
			if err == nil {
				if forget(); !reflect.DeepEqual(tc.cached, before) {
					t.Errorf("it is left as %+v", tc.cached)
				}
			}
		})
	}
}

func TestImagesThatCannotBeReadAreAnError(t *testing.T) {
	wrong := errors.New("wrong")
	client := fake.NewClientset()
	client.PrependReactor("get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, wrong })
	if _, err := ReadImages(t.Context(), client, &v1.Node{Status: v1.NodeStatus{Images: []v1.ContainerImage{}}}); !errors.Is(err, wrong) {
		t.Errorf("got %v", err)
	}
}
