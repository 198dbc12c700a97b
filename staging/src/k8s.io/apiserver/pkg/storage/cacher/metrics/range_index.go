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

package metrics

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	compbasemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	rangeIndexOfferedTotal = compbasemetrics.NewCounterVec(
		&compbasemetrics.CounterOpts{
			Namespace:      namespace,
			Subsystem:      subsystem,
			Name:           "range_index_offered_events_total",
			Help:           "Counter of events times the watchers on ranges of hash keys that they were offered to, because a range held the event's old or new key, broken by resource type.",
			StabilityLevel: compbasemetrics.ALPHA,
		},
		[]string{"group", "resource"},
	)
	rangeIndexSparedTotal = compbasemetrics.NewCounterVec(
		&compbasemetrics.CounterOpts{
			Namespace:      namespace,
			Subsystem:      subsystem,
			Name:           "range_index_spared_events_total",
			Help:           "Counter of events times the watchers on ranges of hash keys that they were not offered to, because no range held the event's keys, broken by resource type.",
			StabilityLevel: compbasemetrics.ALPHA,
		},
		[]string{"group", "resource"},
	)
)

func registerRangeIndex() {
	if utilfeature.DefaultFeatureGate.Enabled(features.ControllerRing) {
		legacyregistry.MustRegister(rangeIndexOfferedTotal)
		legacyregistry.MustRegister(rangeIndexSparedTotal)
	}
}

// RangeIndexCounters count what the index of watchers by range does for one
// resource.
type RangeIndexCounters struct {
	offered, spared compbasemetrics.CounterMetric
}

// NewRangeIndexCounters returns the counters of that resource.
func NewRangeIndexCounters(groupResource schema.GroupResource) RangeIndexCounters {
	return RangeIndexCounters{
		offered: rangeIndexOfferedTotal.WithLabelValues(groupResource.Group, groupResource.Resource),
		spared:  rangeIndexSparedTotal.WithLabelValues(groupResource.Group, groupResource.Resource),
	}
}

// Record counts one event: the watchers on ranges that it was offered to, and
// those that it was kept from.
func (c RangeIndexCounters) Record(offered, spared int) {
	c.offered.Add(float64(offered))
	c.spared.Add(float64(spared))
}
