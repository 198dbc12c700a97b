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

// Package controllerring has the metrics of a process's instances on rings.
package controllerring

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/member"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "controller_ring"

// buckets are from a millisecond to half a minute.
var buckets = metrics.ExponentialBuckets(0.001, 2, 16)

var (
	phaseMetric = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "phase", StabilityLevel: metrics.ALPHA,
		Help: "1 for the phase that this instance is in on the ring, 0 for all others; all are 0 while it is not registered.",
	}, []string{"ring", "phase"})
	ownedMetric = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "owned_ratio", StabilityLevel: metrics.ALPHA,
		Help: "Share of the ring's key space that this instance owns, from 0 to 1.",
	}, []string{"ring"})
	weightMetric = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "weight", StabilityLevel: metrics.ALPHA,
		Help: "Objects that this instance holds for the keys that it owns: those it is responsible for, and their dependents.",
	}, []string{"ring"})
	heaviestMetric = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "heaviest_key_ratio", StabilityLevel: metrics.ALPHA,
		Help: "Share of the ring's load, from 0 to 1, that the objects of one key are: the heaviest key of this instance. A key, such as that of a namespace, cannot be split.",
	}, []string{"ring"})
	workMetric = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "work_ratio", StabilityLevel: metrics.ALPHA,
		Help: "Part of their time, from 0 to 1, that the workers of this instance have lately spent on objects: of the controller whose workers have had most to do.",
	}, []string{"ring"})
	balanceMetric = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "balance_moves_total", StabilityLevel: metrics.ALPHA,
		Help: "Moves of a boundary that this instance, the donor, has decided on to even out the load, by result: begun, dry_run.",
	}, []string{"ring", "result"})
	busyMetric = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "busy", StabilityLevel: metrics.ALPHA,
		Help: "Objects that this instance has in work.",
	}, []string{"ring"})
	workingMetric = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "working", StabilityLevel: metrics.ALPHA,
		Help: "1 while this instance works on that controller, 0 while it does not: status.controllers of its record says why.",
	}, []string{"ring", "controller"})
	stuckMetric = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "stuck_work", StabilityLevel: metrics.ALPHA,
		Help: "Objects that this instance has worked on for more than two minutes: such work may never end, and their keys cannot change hands meanwhile. status.controllers of its record names one.",
	}, []string{"ring", "controller"})
	registrationsMetric = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "registrations_total", StabilityLevel: metrics.ALPHA,
		Help: "Registrations on the ring: the first, and one after each loss of the record.",
	}, []string{"ring"})
	presenceMetric = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "presence", StabilityLevel: metrics.ALPHA,
		Help: "1 while this instance has a presence at an API server, so that the death of its process is known at once; 0 while it has none: /ringz says why.",
	}, []string{"ring"})
	renewalsMetric = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "renewals_total", StabilityLevel: metrics.ALPHA,
		Help: "Renewals of the record, by result: renewed, failed, lost, withheld.",
	}, []string{"ring", "result"})
	newsMetric = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "news_total", StabilityLevel: metrics.ALPHA,
		Help: "Writes of the record's status that told something new, by result: stored, failed, conflict.",
	}, []string{"ring", "result"})
	handoversMetric = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "handovers_total", StabilityLevel: metrics.ALPHA,
		Help: "Ranges that this instance has received, by kind (first, join, move, leave, crash, death) and result (warm, cold), and those that it kept as a handover was called off (called_off).",
	}, []string{"ring", "kind", "result"})
	stepsMetric = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: subsystem, Name: "handover_step_seconds", StabilityLevel: metrics.ALPHA, Buckets: buckets,
		Help: "How long the steps of handovers took: fill and open of the receiver, drain and grant of the donor.",
	}, []string{"ring", "step"})
	unservedMetric = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: subsystem, Name: "unserved_seconds", StabilityLevel: metrics.ALPHA, Buckets: buckets,
		Help: "How long the keys of a range had no worker when this instance received it, as far as its own clock tells.",
	}, []string{"ring", "kind"})
	refusedMetric = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "refused_writes_total", StabilityLevel: metrics.ALPHA,
		Help: "Writes that were refused because this instance may no longer own the object: by self, not sent because the record was not renewed in time, or by server, refused by the API server's fence.",
	}, []string{"ring", "by"})
)

// all are the metrics of rings.
var all = collectors{phaseMetric, ownedMetric, weightMetric, heaviestMetric, workMetric, balanceMetric, busyMetric, workingMetric, stuckMetric, registrationsMetric, presenceMetric, renewalsMetric, newsMetric, handoversMetric, stepsMetric, unservedMetric, refusedMetric}

var register = sync.OnceFunc(func() { legacyregistry.MustRegister(all...) })

// Collector returns the metrics of all rings of the process, for a program that serves another
// registry than the legacyregistry, as controller-runtime's manager does.
func Collector() prometheus.Collector {
	register()
	// Those that a flag has disabled cannot be created.
	return slices.DeleteFunc(slices.Clone(all), func(m metrics.Registerable) bool { return !m.Create(nil) })
}

// collectors are several in one.
type collectors []metrics.Registerable

// Describe implements prometheus.Collector.
func (c collectors) Describe(descriptions chan<- *prometheus.Desc) {
	for _, m := range c {
		m.Describe(descriptions)
	}
}

// Collect implements prometheus.Collector.
func (c collectors) Collect(samples chan<- prometheus.Metric) {
	for _, m := range c {
		m.Collect(samples)
	}
}

// ofRing are those of the ring with that name.
type ofRing string

var _ member.Metrics = ofRing("")

// New returns the metrics of an instance that is about to run these controllers on the ring of that
// name. They are in the legacyregistry, and in what Collector returns.
func New(name string, controllers []string) member.Metrics {
	register()
	m := ofRing(name)
	// What an alert may count exists before it first happens.
	for _, by := range []string{member.RefusedBySelf, member.RefusedByServer} {
		refusedMetric.WithLabelValues(name, by)
	}
	for _, result := range []string{member.ResultRenewed, member.ResultFailed, member.ResultLost, member.ResultWithheld} {
		renewalsMetric.WithLabelValues(name, result)
	}
	for _, result := range []string{member.ResultStored, member.ResultFailed, member.ResultConflict} {
		newsMetric.WithLabelValues(name, result)
	}
	for _, result := range []string{member.ResultBegun, member.ResultDryRun} {
		balanceMetric.WithLabelValues(name, result)
	}
	m.State("", 0)
	m.Present(false)
	for _, c := range controllers {
		m.Working(c, false)
		m.Stuck(c, 0)
	}
	return m
}

func (m ofRing) Registered() { registrationsMetric.WithLabelValues(string(m)).Inc() }

func (m ofRing) Present(present bool) {
	presenceMetric.WithLabelValues(string(m)).Set(oneIf(present))
}

func (m ofRing) State(phase shardingv1alpha1.InstancePhase, owned float64) {
	for _, p := range []shardingv1alpha1.InstancePhase{
		shardingv1alpha1.InstanceInit, shardingv1alpha1.InstanceLocked, shardingv1alpha1.InstanceWait,
		shardingv1alpha1.InstanceActive, shardingv1alpha1.InstanceLeaving,
	} {
		phaseMetric.WithLabelValues(string(m), string(p)).Set(oneIf(p == phase))
	}
	ownedMetric.WithLabelValues(string(m)).Set(owned)
}

func (m ofRing) Load(weight, busy int64) {
	weightMetric.WithLabelValues(string(m)).Set(float64(weight))
	busyMetric.WithLabelValues(string(m)).Set(float64(busy))
}

func (m ofRing) Heaviest(share float64) { heaviestMetric.WithLabelValues(string(m)).Set(share) }

func (m ofRing) Work(share float64) { workMetric.WithLabelValues(string(m)).Set(share) }

func (m ofRing) Balanced(result string) { balanceMetric.WithLabelValues(string(m), result).Inc() }

func (m ofRing) Working(controller string, working bool) {
	workingMetric.WithLabelValues(string(m), controller).Set(oneIf(working))
}

func (m ofRing) Stuck(controller string, objects int) {
	stuckMetric.WithLabelValues(string(m), controller).Set(float64(objects))
}

func (m ofRing) Renewed(result string) { renewalsMetric.WithLabelValues(string(m), result).Inc() }

func (m ofRing) News(result string) { newsMetric.WithLabelValues(string(m), result).Inc() }

func (m ofRing) HandedOver(kind ring.Kind, result string) {
	handoversMetric.WithLabelValues(string(m), string(kind), result).Inc()
}

func (m ofRing) Step(step string, took time.Duration) {
	stepsMetric.WithLabelValues(string(m), step).Observe(took.Seconds())
}

func (m ofRing) Unserved(kind ring.Kind, took time.Duration) {
	unservedMetric.WithLabelValues(string(m), string(kind)).Observe(took.Seconds())
}

func (m ofRing) Refused(by string) { refusedMetric.WithLabelValues(string(m), by).Inc() }

// oneIf returns the value of a gauge that says whether something is so.
func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
