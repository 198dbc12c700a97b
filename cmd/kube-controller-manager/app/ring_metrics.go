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

package app

import (
	"sync"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/member"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const ringSubsystem = "controller_ring"

// ringSeconds are buckets from a millisecond to half a minute.
var ringSeconds = metrics.ExponentialBuckets(0.001, 2, 16)

var (
	ringPhase = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: ringSubsystem, Name: "phase", StabilityLevel: metrics.ALPHA,
		Help: "1 for the phase that this instance is in on the ring, 0 for all others; all are 0 while it is not registered.",
	}, []string{"ring", "phase"})
	ringOwned = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: ringSubsystem, Name: "owned_ratio", StabilityLevel: metrics.ALPHA,
		Help: "Share of the ring's key space that this instance owns, from 0 to 1.",
	}, []string{"ring"})
	ringWeight = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: ringSubsystem, Name: "weight", StabilityLevel: metrics.ALPHA,
		Help: "Objects that this instance holds for the keys that it owns: those it is responsible for, and their dependents.",
	}, []string{"ring"})
	ringHeaviest = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: ringSubsystem, Name: "heaviest_key_ratio", StabilityLevel: metrics.ALPHA,
		Help: "Share of the ring's load, from 0 to 1, that the objects of one key are: the heaviest key of this instance. A key, such as that of a namespace, cannot be split.",
	}, []string{"ring"})
	ringWork = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: ringSubsystem, Name: "work_ratio", StabilityLevel: metrics.ALPHA,
		Help: "Part of their time, from 0 to 1, that the workers of this instance have lately spent on objects: of the controller whose workers have had most to do.",
	}, []string{"ring"})
	ringBalance = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: ringSubsystem, Name: "balance_moves_total", StabilityLevel: metrics.ALPHA,
		Help: "Moves of a boundary that this instance, the donor, has decided on to even out the load, by result: begun, dry_run.",
	}, []string{"ring", "result"})
	ringBusy = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: ringSubsystem, Name: "busy", StabilityLevel: metrics.ALPHA,
		Help: "Objects that this instance has in work.",
	}, []string{"ring"})
	ringWorking = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: ringSubsystem, Name: "working", StabilityLevel: metrics.ALPHA,
		Help: "1 while this instance works on that controller, 0 while it does not: status.controllers of its record says why.",
	}, []string{"ring", "controller"})
	ringRegistrations = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: ringSubsystem, Name: "registrations_total", StabilityLevel: metrics.ALPHA,
		Help: "Registrations on the ring: the first, and one after each loss of the record.",
	}, []string{"ring"})
	ringRenewals = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: ringSubsystem, Name: "renewals_total", StabilityLevel: metrics.ALPHA,
		Help: "Renewals of the record, by result: renewed, failed, lost, withheld.",
	}, []string{"ring", "result"})
	ringNews = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: ringSubsystem, Name: "news_total", StabilityLevel: metrics.ALPHA,
		Help: "Writes of the record's status that told something new, by result: stored, failed, conflict.",
	}, []string{"ring", "result"})
	ringHandovers = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: ringSubsystem, Name: "handovers_total", StabilityLevel: metrics.ALPHA,
		Help: "Ranges that this instance has received, by kind (first, join, move, leave, crash) and result (warm, cold), and those that it kept as a handover was called off (called_off).",
	}, []string{"ring", "kind", "result"})
	ringSteps = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: ringSubsystem, Name: "handover_step_seconds", StabilityLevel: metrics.ALPHA, Buckets: ringSeconds,
		Help: "How long the steps of handovers took: fill and open of the receiver, drain and grant of the donor.",
	}, []string{"ring", "step"})
	ringUnserved = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: ringSubsystem, Name: "unserved_seconds", StabilityLevel: metrics.ALPHA, Buckets: ringSeconds,
		Help: "How long the keys of a range had no worker when this instance received it, as far as its own clock tells.",
	}, []string{"ring", "kind"})
	ringRefused = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: ringSubsystem, Name: "refused_writes_total", StabilityLevel: metrics.ALPHA,
		Help: "Writes that were refused because this instance may no longer own the object: by self, not sent because the record was not renewed in time, or by server, refused by the API server's fence.",
	}, []string{"ring", "by"})
)

var registerRingMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(ringPhase, ringOwned, ringWeight, ringHeaviest, ringWork, ringBalance, ringBusy, ringWorking, ringRegistrations, ringRenewals, ringNews, ringHandovers, ringSteps, ringUnserved, ringRefused)
})

// ringMetrics are those of the ring with that name.
type ringMetrics string

var _ member.Metrics = ringMetrics("")

// newRingMetrics returns the metrics of an instance that is about to run these controllers.
func newRingMetrics(name string, controllers []string) member.Metrics {
	registerRingMetrics()
	m := ringMetrics(name)
	// What an alert may count exists before it first happens.
	for _, by := range []string{member.RefusedBySelf, member.RefusedByServer} {
		ringRefused.WithLabelValues(name, by)
	}
	for _, result := range []string{member.ResultRenewed, member.ResultFailed, member.ResultLost, member.ResultWithheld} {
		ringRenewals.WithLabelValues(name, result)
	}
	for _, result := range []string{member.ResultStored, member.ResultFailed, member.ResultConflict} {
		ringNews.WithLabelValues(name, result)
	}
	for _, result := range []string{member.ResultBegun, member.ResultDryRun} {
		ringBalance.WithLabelValues(name, result)
	}
	m.State("", 0)
	for _, c := range controllers {
		m.Working(c, false)
	}
	return m
}

func (m ringMetrics) Registered() { ringRegistrations.WithLabelValues(string(m)).Inc() }

func (m ringMetrics) State(phase shardingv1alpha1.InstancePhase, owned float64) {
	for _, p := range []shardingv1alpha1.InstancePhase{
		shardingv1alpha1.InstanceInit, shardingv1alpha1.InstanceLocked, shardingv1alpha1.InstanceWait,
		shardingv1alpha1.InstanceActive, shardingv1alpha1.InstanceLeaving,
	} {
		value := 0.0
		if p == phase {
			value = 1
		}
		ringPhase.WithLabelValues(string(m), string(p)).Set(value)
	}
	ringOwned.WithLabelValues(string(m)).Set(owned)
}

func (m ringMetrics) Load(weight, busy int64) {
	ringWeight.WithLabelValues(string(m)).Set(float64(weight))
	ringBusy.WithLabelValues(string(m)).Set(float64(busy))
}

func (m ringMetrics) Heaviest(share float64) { ringHeaviest.WithLabelValues(string(m)).Set(share) }

func (m ringMetrics) Work(share float64) { ringWork.WithLabelValues(string(m)).Set(share) }

func (m ringMetrics) Balanced(result string) { ringBalance.WithLabelValues(string(m), result).Inc() }

func (m ringMetrics) Working(controller string, working bool) {
	value := 0.0
	if working {
		value = 1
	}
	ringWorking.WithLabelValues(string(m), controller).Set(value)
}

func (m ringMetrics) Renewed(result string) { ringRenewals.WithLabelValues(string(m), result).Inc() }

func (m ringMetrics) News(result string) { ringNews.WithLabelValues(string(m), result).Inc() }

func (m ringMetrics) HandedOver(kind ring.Kind, result string) {
	ringHandovers.WithLabelValues(string(m), string(kind), result).Inc()
}

func (m ringMetrics) Step(step string, took time.Duration) {
	ringSteps.WithLabelValues(string(m), step).Observe(took.Seconds())
}

func (m ringMetrics) Unserved(kind ring.Kind, took time.Duration) {
	ringUnserved.WithLabelValues(string(m), string(kind)).Observe(took.Seconds())
}

func (m ringMetrics) Refused(by string) { ringRefused.WithLabelValues(string(m), by).Inc() }
