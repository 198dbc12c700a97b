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
	"testing"
)

func TestParseReadsWhatStringWrites(t *testing.T) {
	for _, want := range []Identity{
		{Ring: "workloads", Name: "workloads-x7k2p", UID: "6f0ad2b0-2b2e-4b44-8f0e-3cf0bd6a8f3b", Epoch: 3, Controller: "replicaset-controller"},
		{Ring: "workloads", Name: "workloads-x7k2p", UID: "6f0ad2b0-2b2e-4b44-8f0e-3cf0bd6a8f3b"},
	} {
		if got, err := Parse(want.String()); err != nil || got != want {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	}
	for _, s := range []string{"", "////", "ring/name/uid", "ring/name/uid/1", "/name/uid/1/c", "ring//uid/1/c", "ring/name//1/c", "ring/name/uid//c", "ring/name/uid/-1/c", "ring/name/uid/x/c", "ring/name/uid/1/c/d"} {
		if got, err := Parse(s); err == nil {
			t.Errorf("%q was read as %v", s, got)
		}
	}
}
