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
	"strings"
	"testing"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/ring/fence"
)

// story is a made-up history of an operator with two instances: a, of the process operator-1, owns
// the keys up to the middle of the line, and b, of operator-2, those above. The workload w has the
// UID low, whose key is a's, and v the UID high, whose key is b's.
type story struct {
	*checker
	t        *testing.T
	revision int64
	now      time.Time
}

const middle = int64(1) << 62

// low and high are UIDs on either side of the middle.
var low, high = func() (low, high types.UID) {
	for i := 0; low == "" || high == ""; i++ {
		if uid := types.UID(fmt.Sprintf("uid-%d", i)); hashkey.OfUID(uid) < middle {
			low = uid
		} else {
			high = uid
		}
	}
	return low, high
}()

func newStory(t *testing.T) *story {
	c := &config{
		Ring: "ring", Controller: "controller", User: "operator", Command: []string{"run"},
		Workload:   workloadConfig{Count: 2, Object: map[string]any{"apiVersion": "v1", "kind": "Workload"}, Patches: []string{"{}"}},
		Dependents: []dependentConfig{{APIVersion: "v1", Kind: "Pod", Want: "{.spec.replicas}"}},
		Settled:    []condition{{Path: "{.status.observedGeneration}", Is: "{.metadata.generation}"}},
	}
	if problems := c.check(); len(problems) > 0 {
		t.Fatal(problems)
	}
	s := &story{checker: newChecker(c), t: t, now: time.Unix(1000, 0)}
	s.register("a", "operator-1", middle)
	s.register("b", "operator-2", 1<<63-1)
	return s
}

// next begins the next revision, a second later.
func (s *story) next() int64 {
	s.revision++
	s.now = s.now.Add(time.Second)
	return s.revision
}

func recordOf(name string, key int64) *shardingv1alpha1.ControllerInstance {
	return &shardingv1alpha1.ControllerInstance{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name)},
		Spec: shardingv1alpha1.ControllerInstanceSpec{
			Ring: "ring", HashKey: (*shardingv1alpha1.HashKey)(&key), LeaseDurationSeconds: 6, Controllers: []string{"controller"},
			Governs: []shardingv1alpha1.Governs{
				{Controller: "controller", Resource: "workloads", By: shardingv1alpha1.GoverningKeyOwn},
				{Controller: "controller", Resource: "pods", By: shardingv1alpha1.GoverningKeyController},
			},
		},
		Status: shardingv1alpha1.ControllerInstanceStatus{Phase: shardingv1alpha1.InstanceActive},
	}
}

func (s *story) register(name, process string, key int64) {
	s.record(recordOf(name, key), false)
	s.heard(&request{verb: "create", user: "operator", process: process, resource: recordsResource, uid: types.UID("uid-of-" + name), name: name, code: 201})
}

func (s *story) record(r *shardingv1alpha1.ControllerInstance, gone bool) {
	s.recordStored(r, s.next(), gone, s.now)
}

// put stores an object.
func (s *story) put(o *unstructured.Unstructured) *unstructured.Unstructured {
	s.next()
	o.SetResourceVersion(fmt.Sprint(s.revision))
	if err := s.stored(o, s.revision, false); err != nil {
		s.t.Fatal(err)
	}
	return o
}

// remove removes an object.
func (s *story) remove(o *unstructured.Unstructured) {
	if err := s.stored(o, s.next(), true); err != nil {
		s.t.Fatal(err)
	}
}

// workload stores a workload. Its status has no observedGeneration if observed is 0.
func (s *story) workload(name string, uid types.UID, generation, replicas, observed int64) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Workload", "spec": map[string]any{"replicas": replicas}, "status": map[string]any{}}}
	if observed > 0 {
		o.Object["status"] = map[string]any{"observedGeneration": observed}
	}
	o.SetName(name)
	o.SetUID(uid)
	o.SetGeneration(generation)
	s.put(o)
	return o
}

// pod stores a pod of a workload.
func (s *story) pod(name string, of types.UID) *unstructured.Unstructured {
	isController := true
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod"}}
	o.SetName(name)
	o.SetUID(types.UID("uid-of-" + name))
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Workload", Name: "w", UID: of, Controller: &isController}})
	return s.put(o)
}

// by returns a request of an instance that was carried out.
func by(instance, process, verb string, o *unstructured.Unstructured) *request {
	return &request{
		verb: verb, user: "operator", process: process, resource: resourceOf(o.GroupVersionKind().GroupKind()), namespace: o.GetNamespace(), name: o.GetName(),
		uid: o.GetUID(), revision: revisionOf(o), code: 200, named: true,
		instance: fence.Identity{Ring: "ring", Name: instance, UID: types.UID("uid-of-" + instance), Controller: "controller"},
	}
}

func byA(verb string, o *unstructured.Unstructured) *request { return by("a", "operator-1", verb, o) }
func byB(verb string, o *unstructured.Unstructured) *request { return by("b", "operator-2", verb, o) }

// refused makes of a request one that the fence has refused.
func (s *story) refused(r *request, epoch int64) *request {
	r.code, r.fenced, r.message, r.instance.Epoch, r.uid, r.revision, r.answered = 409, true, "refused, "+outdatedReason, epoch, "", 0, s.now
	return r
}

// raise raises an instance's epoch to give away what it says.
func (s *story) raise(name string, key, epoch int64, gives *shardingv1alpha1.Gift) {
	r := recordOf(name, key)
	r.Status.Epoch, r.Status.Gives = epoch, gives
	s.record(r, false)
}

func TestRules(t *testing.T) {
	for name, test := range map[string]struct {
		happens func(*story)
		// want has the rule and a part of the text of the one violation; none if it is empty.
		want rule
		text string
	}{
		"a write without an instance": {func(s *story) {
			w := s.workload("w", low, 1, 1, 0)
			r := byA("update", s.workload("w", low, 1, 1, 1))
			r.named = false
			s.heard(r)
			_ = w
		}, named, "operator-1 sent update workloads w without the header Controller-Instance"},
		"what no line covers needs no instance": {func(s *story) {
			o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
			o.SetName("c")
			r := byA("create", s.put(o))
			r.named = false
			s.heard(r)
		}, "", ""},
		"an administrator needs none": {func(s *story) {
			r := byA("create", s.workload("w", low, 1, 1, 0))
			r.named, r.user, r.process = false, "admin", ""
			s.heard(r)
		}, "", ""},
		"a refused write without an instance has changed nothing": {func(s *story) {
			r := byA("update", s.workload("w", low, 1, 1, 0))
			r.named, r.code = false, 403
			s.heard(r)
		}, "", ""},

		"the owner writes": {func(s *story) {
			s.workload("w", low, 1, 1, 0)
			s.heard(byA("create", s.pod("p", low)))
		}, "", ""},
		"another one writes a workload": {func(s *story) {
			s.workload("w", low, 1, 1, 0)
			s.heard(byB("update", s.workload("w", low, 1, 1, 1)))
		}, owner, "b (operator-2) sent update workloads w; key " + hashkey.Format(hashkey.OfUID(low)) + ", which governs it (Own), was a's"},
		"another one writes a dependent": {func(s *story) {
			s.workload("w", low, 1, 1, 0)
			s.heard(byB("create", s.pod("p", low)))
		}, owner, "which governs it (Controller), was a's"},
		"the owner of before": {func(s *story) {
			s.workload("w", low, 1, 1, 0)
			p := s.pod("p", low)
			s.record(recordOf("a", 0), false)
			s.heard(byA("create", p))
		}, "", ""},
		"an owner that is gone": {func(s *story) {
			s.workload("w", low, 1, 1, 0)
			s.touched["operator-1"] = true
			s.record(recordOf("a", middle), true)
			s.heard(byA("create", s.pod("p", low)))
		}, owner, "was b's"},
		"who changes nothing has not made the last change": {func(s *story) {
			s.workload("w", low, 1, 1, 0)
			o := s.workload("w", low, 1, 1, 1)
			s.heard(byB("update", o))
			s.heard(byA("update", o))
		}, "", ""},
		"an answer that comes in the next round": {func(s *story) {
			s.workload("w", low, 1, 1, 0)
			p := s.pod("p", low)
			s.conclude()
			s.heard(byB("create", p))
		}, owner, "was a's"},
		"a line is missing": {func(s *story) {
			o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
			o.SetName("c")
			o.SetUID("uid")
			s.heard(byA("create", s.put(o)))
		}, owner, "no line of its spec.governs covers what \"controller\" writes to configmaps"},

		"a refusal": {func(s *story) {
			o := s.workload("w", low, 1, 1, 0)
			s.heard(s.refused(byB("update", o), 0))
		}, gate, "operator-2 sent update workloads w in the name of b; the API server refused it: refused"},
		"a refusal of one that a fault has touched": {func(s *story) {
			s.touched["operator-2"] = true
			s.heard(s.refused(byB("update", s.workload("w", low, 1, 1, 0)), 0))
		}, "", ""},
		"a refusal for an epoch raised to give others away": {func(s *story) {
			o := s.workload("w", low, 1, 1, 0)
			s.raise("a", middle, 1, &shardingv1alpha1.Gift{To: "c", HashKey: shardingv1alpha1.HashKey(hashkey.OfUID(low) - 1)})
			s.heard(s.refused(byA("update", o), 0))
		}, "", ""},
		"a refusal for an epoch raised to give this away": {func(s *story) {
			o := s.workload("w", low, 1, 1, 0)
			s.raise("a", middle, 1, &shardingv1alpha1.Gift{To: "c", HashKey: shardingv1alpha1.HashKey(hashkey.OfUID(low))})
			s.heard(s.refused(byA("update", o), 0))
		}, gate, "refused"},
		"a later epoch has nothing to do with an earlier refusal": {func(s *story) {
			o := s.workload("w", low, 1, 1, 0)
			s.raise("a", middle, 1, &shardingv1alpha1.Gift{To: "c", HashKey: 1})
			s.heard(s.refused(byA("update", o), 0))
			s.raise("a", middle, 2, &shardingv1alpha1.Gift{To: "c", HashKey: shardingv1alpha1.HashKey(hashkey.OfUID(low))})
		}, "", ""},
		"a refusal that is not for the epoch": {func(s *story) {
			o := s.workload("w", low, 1, 1, 0)
			r := s.refused(byB("update", o), 0)
			r.message = "another instance owns it"
			s.heard(r)
			s.raise("b", 1<<63-1, 1, &shardingv1alpha1.Gift{To: "c", HashKey: shardingv1alpha1.HashKey(middle + 1)})
		}, gate, "another instance owns it"},
		"a request of somebody else that changes nothing": {func(s *story) {
			s.workload("w", low, 1, 1, 0)
			r := byB("update", s.workload("w", low, 1, 1, 1))
			r.subresource = "status"
			other := *r
			other.user, other.process, other.named, other.verb, other.subresource = "load", "", false, "patch", ""
			s.heard(r)
			s.heard(&other)
		}, owner, "b (operator-2) sent update workloads/status w"},
		"a refusal for an epoch, of one that was made anew since": {func(s *story) {
			o := s.workload("w", low, 1, 1, 0)
			s.raise("a", middle, 1, &shardingv1alpha1.Gift{To: "c", HashKey: shardingv1alpha1.HashKey(hashkey.OfUID(low) - 1)})
			s.remove(o)
			s.workload("w", high, 1, 1, 0)
			s.heard(s.refused(byA("update", o), 0))
		}, "", ""},
		"a refusal of a creation": {func(s *story) {
			s.workload("w", low, 1, 1, 0)
			p := s.pod("p", low)
			r := s.refused(byB("create", p), 0)
			r.created, r.name = p, ""
			s.heard(r)
		}, gate, "refused"},

		"one more than any generation wanted": {func(s *story) {
			s.workload("w", low, 1, 1, 0)
			s.heard(byA("create", s.pod("p", low)))
			s.heard(byA("create", s.pod("q", low)))
		}, excess, "a (operator-1) made Pod q for Workload w, which had 1 and wanted no more than 1 (generation 1)"},
		"as many as an earlier generation wanted that was not observed": {func(s *story) {
			s.workload("w", low, 1, 1, 1)
			s.workload("w", low, 2, 2, 1)
			s.workload("w", low, 3, 0, 1)
			s.heard(byA("create", s.pod("p", low)))
			s.heard(byA("create", s.pod("q", low)))
		}, "", ""},
		"as many as one wanted that is past": {func(s *story) {
			s.workload("w", low, 2, 2, 2)
			s.workload("w", low, 3, 1, 2)
			s.workload("w", low, 3, 1, 3)
			s.heard(byA("create", s.pod("p", low)))
			s.heard(byA("create", s.pod("q", low)))
		}, excess, "wanted no more than 1"},
		"one that is replaced": {func(s *story) {
			s.workload("w", low, 1, 1, 1)
			s.workload("w", low, 2, 0, 1)
			p := s.pod("p", low)
			s.remove(p)
			s.heard(byA("create", p))
			s.heard(byA("delete", p))
			s.heard(byA("create", s.pod("q", low)))
		}, "", ""},
		"one made after its workload is gone": {func(s *story) {
			s.remove(s.workload("w", low, 1, 0, 1))
			s.heard(byA("create", s.pod("p", low)))
		}, "", ""},
		"without observed generations, those since the last round but one count": {func(s *story) {
			s.workload("w", low, 1, 2, 0)
			s.workload("w", low, 2, 1, 0)
			s.calm()
			s.heard(byA("create", s.pod("p", low)))
			s.heard(byA("create", s.pod("q", low)))
		}, "", ""},
		"and no earlier ones": {func(s *story) {
			s.workload("w", low, 1, 2, 0)
			s.workload("w", low, 2, 1, 0)
			s.calm()
			s.calm()
			s.heard(byA("create", s.pod("p", low)))
			s.heard(byA("create", s.pod("q", low)))
		}, excess, "wanted no more than 1"},

		"a deletion of what is wanted": {func(s *story) {
			s.workload("w", low, 1, 1, 1)
			p := s.pod("p", low)
			s.remove(p)
			s.heard(byA("create", p))
			s.heard(byA("delete", p))
		}, absence, "a (operator-1) deleted Pod p of Workload w, which had 1 and wanted no less than 1"},
		"a deletion of what one generation does not want": {func(s *story) {
			s.workload("w", low, 1, 1, 1)
			s.workload("w", low, 2, 0, 1)
			s.workload("w", low, 3, 1, 1)
			p := s.pod("p", low)
			s.remove(p)
			s.heard(byA("create", p))
			s.heard(byA("delete", p))
		}, "", ""},
		"a deletion by somebody else": {func(s *story) {
			s.workload("w", low, 1, 1, 1)
			p := s.pod("p", low)
			s.remove(p)
			s.heard(byA("create", p))
			r := byA("delete", p)
			r.user, r.process = "garbage-collector", ""
			s.heard(r)
		}, "", ""},
		"a deletion whose answer is lost": {func(s *story) {
			s.workload("w", low, 1, 1, 1)
			p := s.pod("p", low)
			s.heard(byA("create", p))
			r := byA("delete", p)
			s.remove(p)
			r.code, r.uid = 504, ""
			s.heard(r)
		}, absence, "a (operator-1) deleted Pod p"},
		"a deletion of what belongs to a workload that is deleted": {func(s *story) {
			w := s.workload("w", low, 1, 1, 1)
			p := s.pod("p", low)
			s.heard(byA("create", p))
			w = w.DeepCopy()
			now := metav1.Now()
			w.SetDeletionTimestamp(&now)
			s.put(w)
			s.remove(p)
			s.heard(byA("delete", p))
		}, "", ""},
		"a deletion in two steps is one": {func(s *story) {
			s.workload("w", low, 1, 1, 1)
			p := s.pod("p", low)
			s.heard(byA("create", p))
			s.workload("w", low, 2, 0, 1)
			marked := p.DeepCopy()
			now := metav1.Now()
			marked.SetDeletionTimestamp(&now)
			s.put(marked)
			s.workload("w", low, 3, 0, 3)
			s.remove(marked)
			s.heard(byA("delete", marked))
		}, "", ""},

		"a record that is lost": {func(s *story) {
			s.record(recordOf("b", 1<<63-1), true)
		}, leave, "operator-2 lost its record b, though no fault had touched it"},
		"a record lost by a fault": {func(s *story) {
			s.touched["operator-2"] = true
			s.record(recordOf("b", 1<<63-1), true)
		}, "", ""},
		"a record that a process leaves behind": {func(s *story) {
			s.leaving["operator-2"] = true
			s.record(recordOf("b", 1<<63-1), true)
		}, leave, "operator-2 got SIGTERM, and did not delete its record b"},
		"a process that leaves": {func(s *story) {
			s.leaving["operator-2"] = true
			s.record(recordOf("b", 1<<63-1), true)
			s.heard(&request{verb: "delete", user: "operator", process: "operator-2", resource: recordsResource, name: "b", code: 200})
		}, "", ""},
		"a process that leaves before it has the answer": {func(s *story) {
			s.leaving["operator-2"] = true
			s.record(recordOf("b", 1<<63-1), true)
			s.heard(&request{verb: "delete", user: "operator", process: "operator-2", resource: recordsResource, name: "b", code: 504})
		}, "", ""},
		"a process that leaves unasked": {func(s *story) {
			s.record(recordOf("b", 1<<63-1), true)
			s.heard(&request{verb: "delete", user: "operator", process: "operator-2", resource: recordsResource, name: "b", code: 200})
		}, leave, "operator-2 deleted its record b, though nobody had asked it to end"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			test.happens(s)
			found, _ := s.conclude()
			switch {
			case test.want == "" && len(found) > 0:
				t.Errorf("found %v", found)
			case test.want != "" && (len(found) != 1 || found[0].rule != test.want || !strings.Contains(found[0].text, test.text)):
				t.Errorf("found %q, want %s: %s", found, test.want, test.text)
			}
			if again, _ := s.conclude(); len(again) > 0 {
				t.Errorf("found again: %v", again)
			}
		})
	}
}

func TestWhatIsLeftToDo(t *testing.T) {
	s := newStory(t)
	s.workload("w", low, 2, 1, 1)
	if got, want := texts(s.unsettled()), "Workload w wants 1 of Pod and has 0; Workload w: {.status.observedGeneration} is 1, {.metadata.generation} is 2"; got != want {
		t.Errorf("unsettled: %s, want %s", got, want)
	}
	s.workload("w", low, 2, 1, 2)
	s.pod("p", low)
	if got := s.unsettled(); len(got) > 0 {
		t.Errorf("unsettled: %q", got)
	}
	if got := s.incomplete([]string{"operator-1", "operator-2"}); len(got) > 0 {
		t.Errorf("incomplete: %q", got)
	}
	if got, want := texts(s.incomplete([]string{"operator-1", "operator-3"})), "b is that of operator-2, which has ended; operator-3 has no record"; got != want {
		t.Errorf("incomplete: %s, want %s", got, want)
	}
	s.register("c", "operator-3", 1)
	if got, want := texts(s.incomplete([]string{"operator-1", "operator-2"})), "ring ring has 3 instances, want 2; c is that of operator-3, which has ended"; got != want {
		t.Errorf("incomplete: %s, want %s", got, want)
	}
}

func texts(left []leftover) string {
	var all []string
	for _, l := range left {
		all = append(all, l.text)
	}
	return strings.Join(all, "; ")
}

// What is left of a workload breaks a rule of its own if dependents of another of its name were
// there when it was made, and nothing else is left.
func TestWhatIsLeftOfAWorkloadMadeAnew(t *testing.T) {
	for name, test := range map[string]struct {
		happens func(*story)
		want    rule
	}{
		"while a dependent goes": {func(s *story) {
			w := s.workload("w", low, 1, 1, 1)
			p := s.pod("p", low)
			s.remove(w)
			s.workload("w", high, 1, 1, 1)
			s.remove(p)
		}, anew},
		"while a dependent is made for the earlier one": {func(s *story) {
			s.remove(s.workload("w", low, 1, 1, 1))
			s.workload("w", high, 1, 1, 1)
			s.remove(s.pod("p", low))
		}, anew},
		"after its dependents have gone": {func(s *story) {
			w := s.workload("w", low, 1, 1, 1)
			s.remove(s.pod("p", low))
			s.remove(w)
			s.workload("w", high, 1, 1, 1)
		}, settled},
		"under another name": {func(s *story) {
			w := s.workload("w", low, 1, 1, 1)
			s.pod("p", low)
			s.remove(w)
			s.workload("v", high, 1, 1, 1)
		}, settled},
		"beside another that is not settled": {func(s *story) {
			w := s.workload("w", low, 1, 1, 1)
			s.pod("p", low)
			s.remove(w)
			s.workload("w", high, 1, 1, 1)
			s.workload("v", "another", 1, 1, 1)
		}, settled},
	} {
		s := newStory(t)
		test.happens(s)
		if got := (&errUnsettled{left: s.unsettled()}).rule(); got != test.want {
			t.Errorf("%s: the rule is %s, want %s", name, got, test.want)
		}
	}
}

func TestPlacesThatProcessesShare(t *testing.T) {
	for want, holders := range map[string][]string{
		"":     {"host:1_17_x", "host:2_18_y", "host", "host"},
		"host": {"host_17_x", "host_18_y"},
	} {
		s := newStory(t)
		for i, holder := range holders {
			r := recordOf(fmt.Sprintf("c%d", i), int64(i))
			r.Spec.HolderIdentity = holder
			s.record(r, false)
		}
		if got := s.sharedPlace(); got != want {
			t.Errorf("%q share %q, want %q", holders, got, want)
		}
	}
}

func TestGoverningKeys(t *testing.T) {
	s := newStory(t)
	w, p := s.workload("w", low, 1, 1, 0), s.pod("p", low)
	adopted := s.pod("p", high)
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	namespace.SetName("n")
	inside := w.DeepCopy()
	inside.SetNamespace("n")
	for name, test := range map[string]struct {
		by            shardingv1alpha1.GoverningKey
		before, after *unstructured.Unstructured
		want          []int64
	}{
		"own":                    {shardingv1alpha1.GoverningKeyOwn, w, nil, []int64{hashkey.OfUID(low)}},
		"controller":             {shardingv1alpha1.GoverningKeyController, nil, p, []int64{hashkey.OfUID(low)}},
		"both controllers":       {shardingv1alpha1.GoverningKeyController, p, adopted, []int64{hashkey.OfUID(low), hashkey.OfUID(high)}},
		"no controller":          {shardingv1alpha1.GoverningKeyController, w, w, nil},
		"home of what has none":  {shardingv1alpha1.GoverningKeyHome, nil, w, []int64{hashkey.OfUID(low)}},
		"home of what has one":   {shardingv1alpha1.GoverningKeyHome, nil, p, []int64{hashkey.OfUID(low)}},
		"namespace":              {shardingv1alpha1.GoverningKeyNamespace, nil, inside, []int64{hashkey.OfNamespace("n")}},
		"a namespace":            {shardingv1alpha1.GoverningKeyNamespace, nil, namespace, []int64{hashkey.OfNamespace("n")}},
		"outside all namespaces": {shardingv1alpha1.GoverningKeyNamespace, nil, w, nil},
	} {
		if got := governingKeys(test.by, test.before, test.after); fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

func TestEveryRuleHasACause(t *testing.T) {
	for _, r := range rules {
		if causeOf(r.rule) == "" || r.meaning == "" {
			t.Errorf("%s has no cause or no meaning", r.rule)
		}
	}
	if got := resourceOf(schema.GroupKind{Group: "g", Kind: "Policy"}).String(); got != "policies.g" {
		t.Errorf("got %s", got)
	}
}
