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

package ring

import (
	"strings"
	"testing"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
)

func instanceOf(ring, name, revision string, key *int64) shardingv1alpha1.ControllerInstance {
	return shardingv1alpha1.ControllerInstance{
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: revision},
		Spec:       shardingv1alpha1.ControllerInstanceSpec{Ring: ring, HashKey: (*shardingv1alpha1.HashKey)(key)},
	}
}

func listOf(revision string, items ...shardingv1alpha1.ControllerInstance) *shardingv1alpha1.ControllerInstanceList {
	return &shardingv1alpha1.ControllerInstanceList{ListMeta: metav1.ListMeta{ResourceVersion: revision}, Items: items}
}

func TestAListHoldsItsRingsByName(t *testing.T) {
	views, err := ReadList(listOf("30",
		instanceOf("workloads", "r1", "11", at(100)), instanceOf("claims", "j1", "12", at(50)), instanceOf("workloads", "r2", "13", at(200)), instanceOf("claims", "j2", "14", nil)))
	if err != nil {
		t.Fatal(err)
	}
	if got := views.Ring("workloads").Owned("r2"); !got.Equal(keys(100, 200)) {
		t.Errorf("r2 owns %v, want %v", got, keys(100, 200))
	}
	if got := views.Ring("claims").Owned("j1"); !got.Equal(hashkey.All()) {
		t.Errorf("j1 owns %v, want %v", got, hashkey.All())
	}
	if got := views.Of("j2"); got != views.Ring("claims") {
		t.Errorf("j2 is in the ring of %v", got.Records())
	}
	if r, ok := views.Of("r1").Get("r1"); !ok || r.Revision != 11 {
		t.Errorf("r1 is at revision %d, want 11", r.Revision)
	}
	for what, view := range map[string]*View{"an unknown name": views.Ring("none"), "an unknown instance": views.Of("nobody")} {
		if view == nil || len(view.Records()) != 0 || view.Revision != 30 {
			t.Errorf("the ring of %s is %+v, want an empty one at revision 30", what, view)
		}
	}
	if views.Revision != 30 || views.Ring("claims").Revision != 30 {
		t.Errorf("revisions %d and %d, want 30", views.Revision, views.Ring("claims").Revision)
	}
}

func TestAListWithARevisionThatIsNoNumberIsRefused(t *testing.T) {
	for want, list := range map[string]*shardingv1alpha1.ControllerInstanceList{
		`list of ControllerInstances has resourceVersion ""`:     listOf("", instanceOf("claims", "j1", "12", nil)),
		`list of ControllerInstances has resourceVersion "x"`:    listOf("x"),
		`ControllerInstance j2 has resourceVersion "12.5", want`: listOf("30", instanceOf("claims", "j1", "12", nil), instanceOf("claims", "j2", "12.5", nil)),
	} {
		if _, err := ReadList(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
