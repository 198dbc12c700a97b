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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CauseFenced is the cause in the status of a write that the API server refused, with
// 409, because of the instance that Header names. It ends the text of that answer, and of the
// errors of writes that the instance itself has stopped.
const CauseFenced metav1.CauseType = "ControllerInstanceFenced"

// IsFenced says whether err is the API server's answer to a write of an instance
// that does not own what it wanted to change.
func IsFenced(err error) bool { return apierrors.HasStatusCause(err, CauseFenced) }

// CauseRingsRunning is the cause in the status of a write that the API server refused, with
// 409: it would have given the leader's Lease to a kube-controller-manager without rings while
// others with rings are registered. It can be tried again once their records are gone.
const CauseRingsRunning metav1.CauseType = "ControllerRingsRunning"

// IsRingsRunning says whether err is the API server's answer to such a write.
func IsRingsRunning(err error) bool { return apierrors.HasStatusCause(err, CauseRingsRunning) }

// CauseLeaseLost is the cause in the status of a renewal that the API server refused, with
// 409, because the record has no lease in etcd any more. A renewal can no longer save it.
const CauseLeaseLost metav1.CauseType = "ControllerInstanceLeaseLost"

// IsLeaseLost says whether err is the API server's answer to a renewal that came too late.
func IsLeaseLost(err error) bool { return apierrors.HasStatusCause(err, CauseLeaseLost) }
