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

package controllerring

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/member"
	"k8s.io/component-base/metrics/legacyregistry"
)

// A process may be on several rings, so each metric tells which it is about.
func TestEveryMetricNamesItsRing(t *testing.T) {
	m := New("some-ring", []string{"some-controller"})
	m.Registered()
	m.Present(true)
	m.State(shardingv1alpha1.InstanceActive, 0.5)
	m.Load(7, 1)
	m.Heaviest(0.5)
	m.Work(0.5)
	m.Balanced(member.ResultBegun)
	m.Working("some-controller", true)
	m.Stuck("some-controller", 1)
	m.Renewed(member.ResultRenewed)
	m.News(member.ResultStored)
	m.HandedOver(ring.KindJoin, member.ResultWarm)
	m.Step(member.StepFill, time.Second)
	m.Unserved(ring.KindJoin, time.Second)
	m.Refused(member.RefusedByServer)

	registry := prometheus.NewRegistry()
	registry.MustRegister(Collector())
	for name, gatherer := range map[string]prometheus.Gatherer{"legacyregistry": legacyregistry.DefaultGatherer, "another registry": registry} {
		t.Run(name, func(t *testing.T) { everyMetricNamesItsRing(t, gatherer) })
	}
}

func everyMetricNamesItsRing(t *testing.T, gatherer prometheus.Gatherer) {
	families, err := gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), subsystem+"_") {
			continue
		}
		found++
		for _, sample := range family.Metric {
			named := false
			for _, label := range sample.Label {
				named = named || label.GetName() == "ring" && label.GetValue() == "some-ring"
			}
			if !named {
				t.Errorf("%s has a sample that does not name its ring: %v", family.GetName(), sample)
			}
		}
	}
	if found != 17 {
		t.Errorf("%d metrics of rings, want 17", found)
	}
}
