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
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/ring"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
)

// tale is what happens to a ReplicaSet, one revision after another.
type tale struct{ *judge }

// The processes of a tale stand for leader, and for their instances, under their own names.
func newTale() tale {
	j := newJudge(newAccounts(), func(holder string) string { return holder })
	for _, process := range []string{"a", "b"} {
		j.leaders[process] = process
		j.leaders[ring.SignLeader(process, []string{"*"})] = process
		j.leaders[ring.SignLeader(process, []string{"*", "-" + replicaSetController})] = process
	}
	return tale{j}
}

// stock makes the process the leader, as a stock manager that runs everything.
func (t tale) stock(process string) {
	t.revision++
	t.leads(process)
}

// leadsRing makes the process the leader, which leaves the ReplicaSets to the ring.
func (t tale) leadsRing(process string) {
	t.revision++
	t.leads(ring.SignLeader(process, []string{"*", "-" + replicaSetController}))
}

// owns writes the only record, that of the process.
func (t tale) owns(process string, working bool) {
	t.revision++
	key := int64(1)
	r := &shardingv1alpha1.ControllerInstance{ObjectMeta: metav1.ObjectMeta{Name: "i"}}
	r.Spec.Ring, r.Spec.HolderIdentity, r.Spec.HashKey = catalogue.WorkloadsRing, process, (*shardingv1alpha1.HashKey)(&key)
	r.Status.Controllers = []shardingv1alpha1.ControllerState{{Name: replicaSetController, Working: working}}
	t.instanceWritten(r)
}

// wants writes the ReplicaSet.
func (t tale) wants(generation int64, replicas int32, observed int64) {
	t.revision++
	t.workloadWritten(replicaSetController, &metav1.ObjectMeta{Name: "set", UID: "set", Generation: generation}, replicas, observed)
}

func (t tale) pod(name string) *v1.Pod {
	yes := true
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), OwnerReferences: []metav1.OwnerReference{{UID: "set", Controller: &yes}}}}
}

func (t tale) creates(process, pod string) {
	t.revision++
	t.writers[writeID{types.UID(pod), t.revision}] = writer{process, replicaSetController}
	t.podCreated(t.pod(pod))
}

func (t tale) deletes(process, pod string) {
	t.revision++
	t.writers[writeID{uid: types.UID(pod)}] = writer{process, replicaSetController}
	t.podDeleted(t.pod(pod))
}

func TestJudge(t *testing.T) {
	for name, test := range map[string]struct {
		happens func(tale)
		want    []string
	}{
		"a stock leader works, then another": {func(t tale) {
			t.stock("a")
			t.wants(1, 2, 0)
			t.creates("a", "1")
			t.stock("b")
			t.creates("b", "2")
		}, nil},
		"a stock leader works on after another leads": {func(t tale) {
			t.stock("a")
			t.wants(1, 2, 0)
			t.stock("b")
			t.creates("a", "1")
			t.creates("b", "2")
		}, []string{nonWorker}},
		"a pod that has succeeded is replaced": {func(t tale) {
			t.stock("a")
			t.wants(1, 1, 0)
			t.creates("a", "1")
			t.podFinished(t.pod("1"))
			t.creates("a", "2")
		}, nil},
		"nobody leads": {func(t tale) {
			t.stock("")
			t.wants(1, 1, 0)
			t.creates("a", "1")
		}, []string{nonWorker}},
		"the ring works beside its leader": {func(t tale) {
			t.leadsRing("a")
			t.owns("b", true)
			t.wants(1, 1, 0)
			t.creates("b", "1")
		}, nil},
		"the leader works though it leaves that to the ring": {func(t tale) {
			t.leadsRing("a")
			t.owns("b", true)
			t.wants(1, 1, 0)
			t.creates("a", "1")
		}, []string{nonWorker}},
		"an instance works that says it does not": {func(t tale) {
			t.leadsRing("a")
			t.owns("b", false)
			t.wants(1, 1, 0)
			t.creates("b", "1")
		}, []string{nonWorker}},
		"an instance works whose record has gone": {func(t tale) {
			t.leadsRing("a")
			t.owns("b", true)
			t.wants(1, 1, 0)
			t.revision++
			t.instanceGone("i")
			t.creates("b", "1")
		}, []string{nonWorker}},
		"the leader and the ring both work": {func(t tale) {
			t.stock("a")
			t.owns("b", true)
			t.wants(1, 2, 0)
			t.creates("a", "1")
			t.creates("b", "2")
		}, []string{twoWorkers}},
		"an instance says it works, and the leader alone does": {func(t tale) {
			t.stock("a")
			t.owns("b", true)
			t.wants(1, 2, 0)
			t.creates("a", "1")
			t.creates("a", "2")
		}, nil},
		"the leader works again after the ring": {func(t tale) {
			t.stock("a")
			t.wants(1, 3, 0)
			t.creates("a", "1")
			t.leadsRing("b")
			t.owns("b", true)
			t.creates("b", "2")
			t.owns("b", false)
			t.stock("a")
			t.creates("a", "3")
		}, nil},
		"a pod too many": {func(t tale) {
			t.stock("a")
			t.wants(1, 1, 0)
			t.creates("a", "1")
			t.creates("a", "2")
		}, []string{excess, unfinished}},
		"a creation for a size that was not observed to have ended": {func(t tale) {
			t.stock("a")
			t.wants(1, 1, 0)
			t.wants(2, 0, 1)
			t.creates("a", "1")
			t.deletes("a", "1")
		}, nil},
		"a needless deletion": {func(t tale) {
			t.stock("a")
			t.wants(1, 1, 0)
			t.creates("a", "1")
			t.deletes("a", "1")
		}, []string{needless, unfinished}},
		"a creation by nobody": {func(t tale) {
			t.stock("a")
			t.wants(1, 1, 0)
			t.revision++
			t.podCreated(t.pod("1"))
		}, []string{untold}},
		"a creation that was reported as failed": {func(t tale) {
			t.stock("a")
			t.wants(1, 1, 0)
			t.unclear["create set"] = []writer{{"b", replicaSetController}, {"a", replicaSetController}}
			t.revision++
			t.podCreated(t.pod("1"))
		}, nil},
		"a size that is not reached": {func(t tale) {
			t.stock("a")
			t.wants(1, 1, 0)
		}, []string{unfinished}},
	} {
		told := newTale()
		test.happens(told)
		told.conclude()
		var got []string
		for _, v := range told.violations {
			got = append(got, v.kind)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q: %v", name, got, test.want, told.violations)
		}
	}
}
