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

import "github.com/spf13/pflag"

// addPresenceFlag adds the flag --ignore-presence.
func addPresenceFlag(ignore *bool, fs *pflag.FlagSet) {
	fs.BoolVar(ignore, "ignore-presence", *ignore, ""+
		"Notice the death of a process on a ring when the lease of its ControllerInstance ends. Without this flag the record of one that has presences is "+
		"removed two to three seconds after its kernel has closed its connection to this server, if nothing renews it meanwhile. It has no effect without the "+
		"feature gate ControllerRing.")
}
