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
			Help:           "Number of times that an event was offered to a watcher of a range of hash keys, because the range held the event's old or new key, by resource type.",
			StabilityLevel: compbasemetrics.ALPHA,
		},
		[]string{"group", "resource"},
	)
	rangeIndexSparedTotal = compbasemetrics.NewCounterVec(
		&compbasemetrics.CounterOpts{
			Namespace:      namespace,
			Subsystem:      subsystem,
			Name:           "range_index_spared_events_total",
			Help:           "Number of times that a watcher of a range of hash keys was spared an event, because the range held neither its old nor its new key, by resource type.",
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

// RangeIndexCounters count the events that the index of watchers by range offers and
// spares for one resource.
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

// Record counts one event: the number of watchers of ranges that were offered it, and of
// those that were spared it.
func (c RangeIndexCounters) Record(offered, spared int) {
	c.offered.Add(float64(offered))
	c.spared.Add(float64(spared))
}
