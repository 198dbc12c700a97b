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

package fence

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestOnlyTheFencesConflictIsFenced(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "a", errors.New("changed"))
	if IsFenced(conflict) {
		t.Error("an ordinary conflict was taken for the fence's")
	}
	conflict.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: CauseFenced}}
	if !IsFenced(conflict) {
		t.Error("the fence's conflict was not recognised")
	}
	if IsLeaseLost(conflict) || IsRingsRunning(conflict) {
		t.Error("the fence's conflict was taken for another one")
	}
}

func TestTheEndOfALeaseIsToldFromOtherConflicts(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "controllerinstances"}, "a", errors.New("lost"))
	conflict.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: CauseLeaseLost}}
	if !IsLeaseLost(conflict) || IsFenced(conflict) {
		t.Error("the end of a lease was not recognised")
	}
}

func TestARefusalOfTheLeadersLeaseIsToldFromOtherConflicts(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, "a", errors.New("rings"))
	conflict.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: CauseRingsRunning}}
	if !IsRingsRunning(conflict) || IsFenced(conflict) {
		t.Error("the refusal of the leader's Lease was not recognised")
	}
}
