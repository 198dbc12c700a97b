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

package balance

import (
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/ring"
)

func at(key int64) *int64 { return &key }

// member returns the record of an instance that is Active.
func member(name string, key *int64) ring.Record {
	return ring.Record{Name: name, UID: types.UID(name), Key: key, Phase: shardingv1alpha1.InstanceActive}
}

// joining returns the record of an instance that owns nothing yet and has asked donor.
func joining(name, donor string) ring.Record {
	return ring.Record{Name: name, UID: types.UID(name), Donor: donor, Phase: shardingv1alpha1.InstanceInit}
}

var limits = ring.Limits{Step: 30 * time.Second, Fill: 5 * time.Minute, Leave: 5 * time.Second}
