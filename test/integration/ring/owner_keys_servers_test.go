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

package ring

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/test/integration/framework"
)

// TestOwnerKeysBetweenServersWithAndWithoutTheGate: an object is written by turns through a
// server with the feature gate and one without it. Neither adds or removes a key of an owner
// reference, so a user who may not change the references may write all else.
//
// A process has one feature gate: the test sets it before the requests to each of the servers.
func TestOwnerKeysBetweenServersWithAndWithoutTheGate(t *testing.T) {
	setGate := func(t *testing.T, on bool) {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ControllerRing, on)
	}
	storage := framework.SharedEtcd()
	with := startKeyServerOn(t, storage, enforcing...)
	setGate(t, false)
	without := startKeyServerOn(t, storage, enforcing...)
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, wait.ForeverTestTimeout, true, func(ctx context.Context) (bool, error) {
		_, err := without.resourceLike(with.custom).List(ctx, metav1.ListOptions{})
		return err == nil, nil
	})
	if err != nil {
		t.Fatal("the second server does not serve the custom resource of the first")
	}

	for _, r := range []keyResource{with.replicas, with.custom} {
		servers := map[bool]keyResource{true: r, false: without.resourceLike(r)}
		users := map[bool]keyResource{true: with.asRestricted(t, r), false: without.asRestricted(t, servers[false])}
		for name, tc := range map[string]struct {
			gate  bool // of the server that creates the object
			key   int64
			keyed bool
		}{
			"created-with-a-key":    {true, 1, true},
			"created-without-a-key": {true, 0, false},
			"created-with-gate-off": {false, 1, false},
		} {
			t.Run(r.Resource+", "+name, func(t *testing.T) {
				setGate(t, tc.gate)
				live, err := servers[tc.gate].Create(t.Context(), r.object(name, owner(lowUID, true, tc.key)), metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				expectOwnerKeys(t, live, tc.keyed)
				n := int64(0)
				for _, write := range slices.Sorted(maps.Keys(otherWrites(r, 0))) {
					for _, gate := range []bool{!tc.gate, tc.gate} {
						n++
						t.Run(fmt.Sprintf("%s, gate %t", write, gate), func(t *testing.T) {
							setGate(t, gate)
							written, err := otherWrites(users[gate], n)[write](t.Context(), live)
							if err != nil {
								t.Fatal(err)
							}
							if gate {
								expectKeys(t, written, nil)
							} else if written.GetHashKey() != 0 {
								t.Errorf("it has the key %x", written.GetHashKey())
							}
							expectOwnerKeys(t, written, tc.keyed)
							if written.GetResourceVersion() == live.GetResourceVersion() {
								t.Error("nothing was written")
							}
							live = written
						})
					}
				}
			})
		}
	}
}

// resourceLike returns this server's collection of a resource of another one.
func (s *keyServer) resourceLike(r keyResource) keyResource {
	r.ResourceInterface = s.dynamic.Resource(r.GroupVersionResource).Namespace(s.namespace)
	return r
}
