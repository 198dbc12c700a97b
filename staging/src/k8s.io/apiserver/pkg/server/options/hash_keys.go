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

package options

import (
	"errors"

	"github.com/spf13/pflag"

	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// addHashKeyFlag adds the flag --serve-hash-keys.
func addHashKeyFlag(serve *bool, fs *pflag.FlagSet) {
	fs.BoolVar(serve, "serve-hash-keys", *serve, ""+
		"Serve hash keys, metadata.hashKey and metadata.ownerReferences[*].hashKey, in all answers of this server. Without this flag they are served to "+
		"clients that ask for them, by an Accept header such as 'application/json;hashKeys=1'. Clients that refuse fields which they "+
		"do not know cannot read such answers. It needs the feature gate ControllerRing.")
}

func validateHashKeyFlag(serve bool) []error {
	if serve && !utilfeature.DefaultFeatureGate.Enabled(features.ControllerRing) {
		return []error{errors.New("--serve-hash-keys needs the feature gate ControllerRing: add --feature-gates=ControllerRing=true, or leave the flag out")}
	}
	return nil
}
