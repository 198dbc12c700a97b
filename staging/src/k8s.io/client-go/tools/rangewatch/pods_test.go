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

package rangewatch

import (
	"fmt"
	"math"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
)

var uids atomic.Int64

// newPod returns a pod with a new UID and, in field, a hash key at percent of the line of keys. By
// sharding.ControllerHashKeyPath, that is its controller's key, and it has no controller if percent
// is negative.
func newPod(field, name string, percent int) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name:          name,
		UID:           types.UID(fmt.Sprintf("uid-%d", uids.Add(1))),
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "test"}},
	}}
	setPercent(field, pod, percent)
	return pod
}

// setPercent moves pod to percent of the line of keys, as in newPod. What is moved by its own key
// has another UID then.
func setPercent(field string, pod *v1.Pod, percent int) {
	switch {
	case field == sharding.HashKeyPath:
		pod.UID = uidAt("uid", uids.Add(1), max(percent, 0))
	case percent < 0:
		pod.OwnerReferences = nil
	default:
		yes := true
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "owner", UID: uidAt("owner", 0, percent), Controller: &yes}}
	}
}

// uidAt returns a UID whose key lies at percent of the line of keys, or less than one above. What
// has the same number and percent has the same UID.
func uidAt(prefix string, number int64, percent int) types.UID {
	at := percents(percent, percent+1)
	for i := 0; ; i++ {
		if uid := types.UID(fmt.Sprintf("%s-%d-%d", prefix, number, i)); at.Contains(hashkey.OfUID(uid)) {
			return uid
		}
	}
}

// percents returns the range from start to end percent of the line of keys.
func percents(start, end int) hashkey.Ranges {
	at := func(percent int) uint64 {
		if percent == 100 {
			return hashkey.Limit
		}
		return uint64(percent) * (math.MaxInt64 / 100)
	}
	return hashkey.NewRanges(hashkey.Range{Start: at(start), End: at(end)})
}
