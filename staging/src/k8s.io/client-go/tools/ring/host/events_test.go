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
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// sink takes events.
type sink struct{ events chan *v1.Event }

func (s *sink) Create(e *v1.Event) (*v1.Event, error)          { s.events <- e; return e, nil }
func (s *sink) Update(e *v1.Event) (*v1.Event, error)          { s.events <- e; return e, nil }
func (s *sink) Patch(e *v1.Event, _ []byte) (*v1.Event, error) { s.events <- e; return e, nil }

func TestNoEventOfABusyRingIsDroppedOrCombined(t *testing.T) {
	const many = 100
	broadcaster := NewEventBroadcaster(t.Context())
	defer broadcaster.Shutdown()
	got := &sink{events: make(chan *v1.Event, many)}
	broadcaster.StartRecordingToSink(got)
	recorder := broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: "ring"})
	on := &v1.ObjectReference{Kind: "ControllerInstance", Name: "a", UID: "u"}
	for i := range many {
		recorder.Eventf(on, v1.EventTypeNormal, "Granted", "%d", i)
		if e, want := <-got.events, fmt.Sprint(i); e.Message != want {
			t.Fatalf("got %q, want %q", e.Message, want)
		}
	}
}
