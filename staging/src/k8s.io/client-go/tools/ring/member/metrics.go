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

package member

import (
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/client-go/tools/ring"
)

// Metrics takes what a member counts and measures. All labels have few values: the
// constants of this file, and the phases. The methods may be called from several
// goroutines and must not block.
type Metrics interface {
	// Registered is called for each registration, the first and those after the
	// loss of a record.
	Registered()
	// Present tells whether the instance has a presence, when that changes.
	Present(present bool)
	// State tells the present phase, "" while not registered, and the owned share of
	// the key space, from 0 to 1.
	State(phase shardingv1alpha1.InstancePhase, owned float64)
	// Load tells how many objects the instance is responsible for, and how many are in
	// work, about once a second.
	Load(weight, busy int64)
	// Heaviest tells which share of the ring's load the objects of one key are, from 0 to 1: of
	// the instance's own keys that which most have. It comes with Load.
	Heaviest(share float64)
	// Work tells which part of their time, from 0 to 1, the busiest controller's workers have lately
	// spent on objects. It comes with Load.
	Work(share float64)
	// Balanced is called for each move of a boundary that this instance decides on to even out the
	// load.
	Balanced(result string)
	// Working tells whether the instance works on a controller, when that changes.
	Working(controller string, working bool)
	// Stuck tells on how many objects a controller has worked for so long that it may never end.
	Stuck(controller string, objects int)
	// Renewed is called for each renewal of the record.
	Renewed(result string)
	// News is called for each write of the record's status that tells something new.
	News(result string)
	// HandedOver is called for each handover: by the receiver when its gate has opened
	// for the range, or by the donor when the handover is called off.
	HandedOver(kind ring.Kind, result string)
	// Step tells how long a step of a handover took.
	Step(step string, took time.Duration)
	// Unserved tells how long the keys of a range had no worker, as far as the
	// receiver can tell by its own clock. It counts, for a join and a move, from when
	// it saw the donor in phase Wait, which is one write after the donor shut its
	// gate; for a crash, from a lease before the record was gone, which is up to a sixth
	// of the lease too long; for a death, from when an API server noticed it, by its clock; for a
	// leave, from when the record was gone, which leaves out how long the instance drained.
	Unserved(kind ring.Kind, took time.Duration)
	// Refused is called for each write that was not sent, or was refused, because the
	// instance may no longer own the object.
	Refused(by string)
}

// KindDeath is the kind of a crash that an API server has noticed by the end of a presence: it has
// removed the record. A ring.KindCrash is noticed when the lease of the record ends.
const KindDeath ring.Kind = "death"

// How a handover ends.
const (
	ResultWarm      = "warm"       // the receiver held the range when it was granted
	ResultCold      = "cold"       // the receiver had to fill its caches first
	ResultCalledOff = "called_off" // the donor keeps the range
)

// What comes of a decision to even out the load.
const (
	ResultBegun  = "begun"   // the handover has begun
	ResultDryRun = "dry_run" // it was only said
)

// How a renewal ends.
const (
	ResultRenewed  = "renewed"
	ResultFailed   = "failed"   // no answer, or an error
	ResultLost     = "lost"     // the record is gone
	ResultWithheld = "withheld" // not sent: no decision was made for long, or work goes on behind a shut door
)

// How news end, or in ResultFailed.
const (
	ResultStored   = "stored"
	ResultConflict = "conflict" // somebody has written the record since: they are told again
)

// The steps of a handover.
const (
	StepFill  = "fill"  // the receiver's: from when a range is named to when its caches hold it
	StepDrain = "drain" // the donor's: from when its gate is shut to when nothing of the range is in work
	StepGrant = "grant" // the donor's: from there to when the grant is in the log
	StepOpen  = "open"  // the receiver's: from when the range is its own to when its gate is open
)

// Who refuses a write.
const (
	RefusedBySelf   = "self"   // the instance: it could not renew its record in time
	RefusedByServer = "server" // the API server's fence
)

type noMetrics struct{}

func (noMetrics) Registered()                                   {}
func (noMetrics) Present(bool)                                  {}
func (noMetrics) State(shardingv1alpha1.InstancePhase, float64) {}
func (noMetrics) Load(int64, int64)                             {}
func (noMetrics) Heaviest(float64)                              {}
func (noMetrics) Work(float64)                                  {}
func (noMetrics) Balanced(string)                               {}
func (noMetrics) Working(string, bool)                          {}
func (noMetrics) Stuck(string, int)                             {}
func (noMetrics) Renewed(string)                                {}
func (noMetrics) News(string)                                   {}
func (noMetrics) HandedOver(ring.Kind, string)                  {}
func (noMetrics) Step(string, time.Duration)                    {}
func (noMetrics) Unserved(ring.Kind, time.Duration)             {}
func (noMetrics) Refused(string)                                {}
