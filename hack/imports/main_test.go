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

package main

import (
	"slices"
	"testing"
)

func TestBroken(t *testing.T) {
	const clientGo, kubernetes = "k8s.io/client-go/tools/", "k8s.io/kubernetes/"
	for name, test := range map[string]struct {
		from, to string
		want     string
	}{
		"down":                       {from: clientGo + "ring/member", to: clientGo + "ring"},
		"within a layer":             {from: kubernetes + "pkg/controller/a", to: kubernetes + "pkg/controller/b"},
		"up":                         {from: clientGo + "ring", to: clientGo + "ring/fence", want: "a higher layer"},
		"the longer path decides":    {from: kubernetes + "pkg/controller/ring/catalogue", to: kubernetes + "pkg/controller/a", want: "a higher layer"},
		"a name that only begins so": {from: clientGo + "ring", to: clientGo + "ringer"},
		"a package without a place":  {from: kubernetes + "pkg/ringtable", to: kubernetes + "pkg/controller/ring"},
		"from there to a command":    {from: kubernetes + "pkg/ringtable", to: kubernetes + "cmd/a/b", want: "a higher layer"},
		"a command to a test":        {from: kubernetes + "cmd/a", to: kubernetes + "test/b", want: "a higher layer"},
		"a command to itself":        {from: kubernetes + "cmd/a", to: kubernetes + "cmd/a/b"},
		"a command to another":       {from: kubernetes + "cmd/a", to: kubernetes + "cmd/b/c", want: "another command"},
		"the harness to a program":   {from: kubernetes + "test/harness/a", to: kubernetes + "test/b", want: "a higher layer"},
		"a test to a command":        {from: kubernetes + "test/a", to: kubernetes + "cmd/b"},
	} {
		t.Run(name, func(t *testing.T) {
			var want []string
			if test.want != "" {
				want = []string{test.from + " -> " + test.to + ": " + test.want}
			}
			g := graph{test.from: {test.to}, test.to: nil}
			if got := g.broken(); !slices.Equal(got, want) {
				t.Errorf("broken() = %q, want %q", got, want)
			}
		})
	}
}
