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

package features

import (
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

// ControllerRing gives every object a hash key, lets lists and watches select a range of
// hash keys, and lets many controller managers share a cluster's work by such ranges. It
// depends on ShardedListAndWatch. With it off, a server behaves like a stock one: it stores
// no hash keys and refuses selectors on them.
const ControllerRing featuregate.Feature = "ControllerRing"

func init() {
	runtime.Must(utilfeature.DefaultMutableFeatureGate.AddVersioned(ringFeatureGates))
}

// ringFeatureGates are the feature gates of this fork. pkg/features lists them again, with
// their dependencies, as it does all feature gates of this package.
var ringFeatureGates = map[featuregate.Feature]featuregate.VersionedSpecs{
	ControllerRing: {
		{Version: version.MustParse("1.37"), Default: true, PreRelease: featuregate.Beta},
	},
}
