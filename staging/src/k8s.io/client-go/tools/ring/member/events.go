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
	"fmt"

	v1 "k8s.io/api/core/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/ring"
)

// The reasons of events on ControllerInstances.
const (
	eventJoined    = "Joined"
	eventGranted   = "Granted"
	eventTookOver  = "TookOver"
	eventCalledOff = "CalledOff"
	eventFenced    = "Fenced"
	eventWithheld  = "RenewalWithheld"
	eventHeavy     = "HeavyKey"
	eventBalance   = "Balance"
	eventStuck     = "StuckWork"
)

// Events takes events on ControllerInstances; record.EventRecorder fits.
type Events interface {
	Eventf(object runtime.Object, eventType, reason, format string, args ...any)
}

type noEvents struct{}

func (noEvents) Eventf(runtime.Object, string, string, string, ...any) {}

// printableEvents tells events whose text has nothing in it that controls a terminal, whoever has
// written what it is about.
type printableEvents struct{ Events }

func (e printableEvents) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	e.Events.Eventf(object, eventType, reason, "%s", ring.Printable(fmt.Sprintf(format, args...)))
}

// reference is what events on a record refer to.
func reference(r ring.Record) *v1.ObjectReference {
	return &v1.ObjectReference{APIVersion: shardingv1alpha1.SchemeGroupVersion.String(), Kind: "ControllerInstance", Name: r.Name, UID: r.UID}
}
