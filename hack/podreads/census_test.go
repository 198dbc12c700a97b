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
	"go/token"
	"maps"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/tools/go/packages"
)

var position = token.Position{Filename: "f.go", Line: 1}

func load(t *testing.T, patterns ...string) map[string]*packages.Package {
	t.Helper()
	pkgs, err := packages.Load(&packages.Config{Mode: packages.LoadSyntax, Dir: "testdata/tree"}, patterns...)
	if err != nil {
		t.Fatal(err)
	}
	byPath := map[string]*packages.Package{}
	for _, p := range pkgs {
		for _, err := range p.Errors {
			t.Fatal(err)
		}
		byPath[p.PkgPath] = p
	}
	return byPath
}

func TestCensusFindsEachWayOfReading(t *testing.T) {
	const module = "example.com/tree/"
	pkgs := load(t, "./controller", "./helper")
	c := newCensus(slices.Collect(maps.Values(pkgs)),
		[]string{module + "api.Pod", module + "api.Spec", module + "api.Status"}, []string{module + "stranger.Lister"},
		map[string]exemption{module + "helper.Live": {why: "reads what it got anew", instead: module + "helper.Read"}})
	reads := c.read(c.rootsOf(pkgs[module+"controller"]), map[string]bool{module + "controller": true, module + "helper": true})
	want := map[string][]string{
		"Pod.Meta":                      {module + "controller.direct"},
		"Pod.Spec":                      {module + "controller.direct", module + "controller.inAClosure", module + "helper.Image", module + "helper.Read"},
		"Pod.Status":                    {"(" + module + "controller.byName).Less", "(" + module + "helper.Plugin).Reason"},
		"Spec.Host":                     {module + "helper.Read"},
		"Spec.Image":                    {module + "helper.Image"},
		"Spec.Node":                     {module + "controller.direct"},
		"Spec.Volume":                   {module + "controller.inAClosure"},
		"Status.Phase":                  {"(" + module + "controller.byName).Less"},
		"Status.Reason":                 {"(" + module + "helper.Plugin).Reason"},
		module + "stranger.Look":        {module + "controller.away"},
		module + "stranger.LookAtAny":   {module + "controller.away"},
		module + "stranger.With":        {module + "controller.away"},
		module + "stranger.Sort":        {module + "controller.away"},
		module + "stranger.Wrapped":     {module + "controller.away"},
		module + "stranger.Value":       {module + "controller.away"},
		"(*" + module + "api.Pod).Copy": {module + "controller.away"},
	}
	got := map[string][]string{}
	for what, by := range reads {
		got[what] = slices.Sorted(maps.Keys(by))
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("found\n%v, want\n%v", got, want)
	}
	if !c.met[module+"helper.Live"] {
		t.Error("the exempt function was called and not met")
	}
}

func TestCompare(t *testing.T) {
	reads := found{}
	for what, by := range map[string]string{
		"Pod.Spec": "a", "PodSpec.NodeName": "a", "PodStatus.ContainerStatuses": "a", "ContainerStatus.State": "b",
		"klog.KObj": "a", "(record.Recorder).Event": "a", "PodCondition.Type": "c", "PodCondition.Reason": "k8s.io/component-helpers/resource.IsPodResizeInfeasible",
	} {
		reads.add(what, by, position)
	}
	allowed := map[string]string{"klog.KObj": "reads metadata", "(record.Recorder).*": "reads metadata"}
	for _, c := range []struct {
		name     string
		declared []string
		more     string
		want     []string
	}{
		{"all that is read", []string{"Conditions", "ContainerStates", "NodeName"}, "", nil},
		{"one too few", []string{"Conditions", "ContainerStates"}, "", []string{"reads PodSpec.NodeName in a, at f.go:1"}},
		{"one too many", []string{"Conditions", "ContainerStates", "NodeName", "Phase"}, "", []string{"declares Phase and does not read it"}},
		{"what others may read", []string{"Conditions", "ContainerStates", "NodeName"}, "PodCondition.Message",
			[]string{"reads PodCondition.Message in a, at f.go:1"}},
		{"what no group has", []string{"Conditions", "ContainerStates", "NodeName"}, "PodSpec.Hostname",
			[]string{"reads PodSpec.Hostname in a, at f.go:1"}},
		{"what is given away", []string{"Conditions", "ContainerStates", "NodeName"}, "json.Marshal",
			[]string{"reads json.Marshal in a, at f.go:1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			reads := maps.Clone(reads)
			if c.more != "" {
				reads.add(c.more, "a", position)
			}
			if got := compare(reads, c.declared, allowed); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
