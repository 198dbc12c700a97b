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

package app

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"time"

	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/ring/host"
	"k8s.io/client-go/tools/ring/member"
)

const ringzPath = "/ringz"

// installRingz serves what this process knows of its rings, where it may be on one.
func installRingz(mux interface{ Handle(string, http.Handler) }) {
	if utilfeature.DefaultFeatureGate.Enabled(genericfeatures.ControllerRing) {
		started := time.Now()
		mux.Handle(ringzPath, host.NewRingz(kubeControllerManager, func() member.Process {
			return member.Process{Started: started, Instances: ringSnapshots()}
		}))
	}
}

// ringSnapshots returns this process's parts in its rings, in order of the rings' names.
func ringSnapshots() []member.Snapshot {
	exitLock.Lock()
	hosts := slices.Collect(maps.Keys(exitHosts))
	exitLock.Unlock()
	snapshots := []member.Snapshot{}
	for _, h := range hosts {
		snapshots = append(snapshots, h.Snapshots()...)
	}
	slices.SortFunc(snapshots, func(a, b member.Snapshot) int { return cmp.Compare(a.Ring, b.Ring) })
	return snapshots
}
