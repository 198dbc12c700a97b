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

package host

import (
	"slices"
	"testing"

	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/ring/member"
	"k8s.io/utils/clock"
)

func TestAProcessShowsItsPartsAndAnAbandonedOneJoinsNoMore(t *testing.T) {
	p := NewProcess(ProcessConfig{})
	join := func(ring string) bool {
		m, err := member.New(member.Config{
			Client: fake.NewClientset().ShardingV1alpha1().ControllerInstances(), Ring: ring, HolderIdentity: "host_1",
			Controllers: map[string]member.Controller{"replicaset-controller": nil}, Gate: member.NewGate(clock.RealClock{}),
		})
		if err != nil {
			t.Fatal(err)
		}
		return p.joins(ring, m)
	}
	if s := p.Snapshots(); s == nil || len(s) != 0 {
		t.Errorf("on no ring it shows %+v", s)
	}
	for _, ring := range []string{"workloads", "claims"} {
		if !join(ring) {
			t.Errorf("it may not join ring %s", ring)
		}
	}
	var rings []string
	for _, s := range p.Snapshots() {
		rings = append(rings, s.Ring)
	}
	if !slices.Equal(rings, []string{"claims", "workloads"}) {
		t.Errorf("it shows the rings %q", rings)
	}
	p.left("claims")
	if s := p.Snapshots(); len(s) != 1 || s[0].Ring != "workloads" || s[0].Name != "" {
		t.Errorf("it shows %+v", s)
	}
	p.left("workloads")
	if err := p.Abandon(t.Context()); err != nil || !p.Abandoned() || join("claims") {
		t.Errorf("an abandoned process joins a ring; %v", err)
	}
}
