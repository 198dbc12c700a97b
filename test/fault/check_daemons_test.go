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
	"testing"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// daemonSet writes a DaemonSet of that generation.
func (s story) daemonSet(generation int64) {
	s.revision++
	s.daemonSetWritten(&apps.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "ds", UID: "ds", Generation: generation}}, s.revision)
}

func (s story) node(name, label string, deleted bool) {
	s.revision++
	s.nodeWritten(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{daemonLabel: label}}}, deleted)
}

// daemonPod creates or deletes a pod of the DaemonSet.
func (s story) daemonPod(t *testing.T, name, node string, deleted bool) {
	t.Helper()
	s.revision++
	p := pod("ds", name)
	p.OwnerReferences[0].Kind, p.Spec.NodeName = "DaemonSet", node
	if known, err := s.podWritten(p, false, deleted, s.revision); !known || err != nil {
		t.Fatalf("pod %s is not taken for a DaemonSet's: %v", name, err)
	}
}

// later makes everything that has happened too old to be a reason.
func (s story) later() {
	for _, n := range s.nodes {
		n.unfitAt = n.unfitAt.Add(-2 * daemonLag)
	}
	for _, d := range s.daemonSets {
		d.changedAt = d.changedAt.Add(-2 * daemonLag)
	}
}

func TestASecondDaemonPod(t *testing.T) {
	s := begin()
	s.daemonSet(1)
	s.daemonPod(t, "p1", "n1", false)
	s.daemonPod(t, "p2", "n2", false)
	s.expect(t)
	s.daemonPod(t, "p3", "n1", false)
	s.expect(t, excess)
}

func TestADaemonPodIsDeletedForAReason(t *testing.T) {
	for name, reason := range map[string]func(s story){
		"a rollout":         func(s story) { s.daemonSet(2) },
		"a Node that goes":  func(s story) { s.node("n1", daemonsFit, true) },
		"a label":           func(s story) { s.node("n1", "unfit", false) },
		"a Node for a time": func(s story) { s.node("n1", daemonsFit, true); s.node("n1", daemonsFit, false) },
	} {
		s := begin()
		s.daemonSet(1)
		s.node("n1", daemonsFit, false)
		s.daemonPod(t, "p1", "n1", false)
		s.later()
		reason(s)
		s.daemonPod(t, "p1", "n1", true)
		if len(s.violations) != 0 {
			t.Errorf("%s: %v", name, s.violations)
		}
	}
	s := begin()
	s.daemonSet(1)
	s.node("n1", daemonsFit, false)
	s.daemonPod(t, "p1", "n1", false)
	s.later()
	s.daemonPod(t, "p1", "n1", true)
	s.expect(t, needless)
}

func TestADaemonSetHasAPodOnEachNodeThatFits(t *testing.T) {
	s := begin()
	s.daemonSet(1)
	s.node("n1", daemonsFit, false)
	s.node("n2", "unfit", false)
	s.revision++
	s.daemonSetWritten(&apps.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "ds", UID: "ds", Generation: 1},
		Status:     apps.DaemonSetStatus{DesiredNumberScheduled: 1, UpdatedNumberScheduled: 1, ObservedGeneration: 1},
	}, s.revision)
	if left := s.undaemoned(); len(left) != 1 {
		t.Errorf("without a pod: left are %q", left)
	}
	s.daemonPod(t, "p1", "n1", false)
	if left := s.undaemoned(); len(left) != 0 {
		t.Errorf("left are %q", left)
	}
}
