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

package expand

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
)

// A range has thousands of claims that are as large as they should be. The others do not wait for
// them.
func TestClaimsThatAreToGrowComeFirst(t *testing.T) {
	expc := &expandController{queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())}
	defer expc.queue.ShutDown()
	for name, tc := range map[string]struct {
		want, have string
		phase      v1.PersistentVolumeClaimPhase
	}{
		"grows":    {"2Gi", "1Gi", v1.ClaimBound},
		"has":      {"1Gi", "1Gi", v1.ClaimBound},
		"has more": {"1Gi", "2Gi", v1.ClaimBound},
		"pending":  {"2Gi", "1Gi", v1.ClaimPending},
	} {
		expc.enqueueAcquired(&v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
			Spec:       v1.PersistentVolumeClaimSpec{Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse(tc.want)}}},
			Status:     v1.PersistentVolumeClaimStatus{Phase: tc.phase, Capacity: v1.ResourceList{v1.ResourceStorage: resource.MustParse(tc.have)}},
		})
	}
	if n := expc.queue.Len(); n != 1 {
		t.Fatalf("%d claims are queued at once, want 1", n)
	}
	if name, _ := expc.queue.Get(); name != "ns/grows" {
		t.Errorf("queued is %s", name)
	}
}
