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

package fenced

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
		Help:           "Writes of controller instances that were refused, by reason: the instance is gone, is replaced by another of its name, has given away since what it owned then (outdated), is not_owner of the governing hash key, has not_given the hash key that it grants, or its record does not cover the write (unknown). Or of the leader's Lease, by a holder without rings while rings run (unsigned_leader).",
		StabilityLevel: metrics.ALPHA,
	}, []string{"reason"})
	quorumReads = metrics.NewCounter(&metrics.CounterOpts{
		Namespace:      "apiserver",
		Subsystem:      "controller_ring",
		Name:           "fence_quorum_reads_total",
		Help:           "Reads of the registry with quorum for writes of controller instances and of the leader's Lease: before a write is refused, where a record has changed under a write, and for each write to a resource in another etcd.",
		StabilityLevel: metrics.ALPHA,
	})
	judgedAnew = metrics.NewCounter(&metrics.CounterOpts{
		Namespace:      "apiserver",
		Subsystem:      "controller_ring",
		Name:           "fence_judged_anew_total",
		Help:           "Transactions that were not carried out, and so were judged anew, because the record of their instance had changed since they were judged, or because a holder without rings was to get the leader's Lease while rings run.",
		StabilityLevel: metrics.ALPHA,
	})
	unleasedRemoved = metrics.NewCounter(&metrics.CounterOpts{
		Namespace:      "apiserver",
		Subsystem:      "controller_ring",
		Name:           "unleased_records_removed_total",
		Help:           "Records of controller instances that were removed because they had no etcd lease, so that they would never have ended: somebody else than an API server had written their keys, as a mirror or a backup of etcd by key does.",
		StabilityLevel: metrics.ALPHA,
	})
	presencesOpened = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace:      "apiserver",
		Subsystem:      "controller_ring",
		Name:           "presences_opened_total",
		Help:           "Presences of controller instances that were opened, by reason: the first of a record, in place of one that was lost, or the next one before another is ended on purpose.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"reason"})
	presenceEnds = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace:      "apiserver",
		Subsystem:      "controller_ring",
		Name:           "presence_ends_total",
		Help:           "Presences of controller instances that ended at this server, by verdict: the record was removed, or it was left to its lease as it was renewed, another presence was opened (reopened), presences of several processes ended, this server was late or etcd slow, it was unclear, or too many were removed of late (many).",
		StabilityLevel: metrics.ALPHA,
	}, []string{"verdict"})

	registerMetrics = sync.OnceFunc(func() {
		legacyregistry.MustRegister(refusals, quorumReads, judgedAnew, unleasedRemoved, presencesOpened, presenceEnds)
	})
)
