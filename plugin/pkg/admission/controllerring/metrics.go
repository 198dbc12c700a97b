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
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	refusals = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace:      "apiserver",
		Subsystem:      "controller_ring",
		Name:           "fence_refusals_total",
		Help:           "Writes of controller instances that were refused, by reason: the instance is gone, is replaced by another of its name, is not_owner of the governing hash key, or its controller is unknown to the catalogue of rings.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"reason"})
	quorumReads = metrics.NewCounter(&metrics.CounterOpts{
		Namespace:      "apiserver",
		Subsystem:      "controller_ring",
		Name:           "fence_quorum_reads_total",
		Help:           "Writes of controller instances for which the registry was read with quorum, because what the API server had seen of it was not enough.",
		StabilityLevel: metrics.ALPHA,
	})

	registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(refusals, quorumReads) })
)
