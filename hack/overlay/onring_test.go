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
	"strings"
	"testing"
)

// What all tests that start controllers have.
const (
	serverStart     = "server := apiservertesting.StartTestServerOrDie(t, nil)"
	serverUsed      = "server := controllermanager.Use(apiservertesting.StartTestServerOrDie(t, nil))"
	controllerStart = "go c.Run(ctx, 5)"
	ringStart       = "controllermanager.InsteadOf(t, ctx, c.Run)"
)

func TestEditsOfTestsThatStartControllers(t *testing.T) {
	for name, test := range map[string]struct {
		edits      []string
		code, want string
	}{
		"the server and the start": {
			code: "func TestX(t *testing.T) { " + serverStart + "\n" + controllerStart + " }",
			want: "func TestX(t *testing.T) { " + serverUsed + "\n" + ringStart + " }",
		},
		"the framework's server": {
			code: "func TestX(t *testing.T) { c, config, end := framework.StartTestServer(ctx, t, setup)\n" + controllerStart + " }",
			want: "func TestX(t *testing.T) { c, config, end := controllermanager.StartTestServer(ctx, t, setup)\n" + ringStart + " }",
		},
		"the innermost test": {
			code: "func startAll(tb *testing.B) { " + serverStart + "\n" + `tb.Run("x", func(b *testing.B) { go all.c.Run(ctx.Sub(), n) }) }`,
			want: "func startAll(tb *testing.B) { " + serverUsed + "\n" + `tb.Run("x", func(b *testing.B) { controllermanager.InsteadOf(b, ctx.Sub(), all.c.Run) }) }`,
		},
		"a function without the test": {
			edits: []string{parameter},
			code:  "func run(c C) { go a.Run(ctx, 1); go b.Run(ctx, 1) }\nfunc TestX(t *testing.T) { " + serverStart + "; run(c) }",
			want:  "func run(t *testing.T, c C) { controllermanager.InsteadOf(t, ctx, a.Run); controllermanager.InsteadOf(t, ctx, b.Run) }\nfunc TestX(t *testing.T) { " + serverUsed + "; run(t, c) }",
		},
		"informers that are only waited for": {
			edits: []string{informers},
			code:  "func TestX(t *testing.T) { " + serverStart + "\nset.Start(ctx.Done())\n" + controllerStart + "\nset.WaitForCacheSync(ctx.Done()) }",
			want:  "func TestX(t *testing.T) { " + serverUsed + "\ncontrollermanager.WithoutRing(func() { set.Start(ctx.Done()) })\n" + ringStart + "\nset.WaitForCacheSync(ctx.Done()) }",
		},
		"other informers": {
			code: "func TestX(t *testing.T) { " + serverStart + "\nset.Start(ctx.Done())\n" + controllerStart + "\nother.WaitForCacheSync(ctx.Done()) }",
			want: "func TestX(t *testing.T) { " + serverUsed + "\nset.Start(ctx.Done())\n" + ringStart + "\nother.WaitForCacheSync(ctx.Done()) }",
		},
		"what is left": {
			edits: []string{leave + "scheduler", leave + "TestY"},
			code:  "func TestX(t *testing.T) { " + serverStart + "\ngo scheduler.Run(ctx)\n" + controllerStart + " }\nfunc TestY(t *testing.T) { set.Start(done); go c.Run(ctx, 1); set.WaitForCacheSync(done) }",
			want:  "func TestX(t *testing.T) { " + serverUsed + "\ngo scheduler.Run(ctx)\n" + ringStart + " }\nfunc TestY(t *testing.T) { set.Start(done); go c.Run(ctx, 1); set.WaitForCacheSync(done) }",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := parsed(t, "package x\n\nimport \"testing\"\n\n"+test.code)
			if err := putOnRing("x", []*source{s}, test.edits); err != nil {
				t.Fatal(err)
			}
			want := "package x; import \"k8s.io/kubernetes/test/utils/controllermanager\"\n\nimport \"testing\"\n\n" + test.want
			if got := string(s.changed()); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestAFileWithoutAPlaceStaysAsItIs(t *testing.T) {
	s, other := parsed(t, "package x\n\nfunc TestX(t *testing.T) { "+serverStart+"; "+controllerStart+" }"), parsed(t, "package x\n\nfunc TestMain(m *testing.M) { framework.EtcdMain(m.Run) }")
	if err := putOnRing("x", []*source{s, other}, nil); err != nil || len(other.changes) > 0 {
		t.Errorf("got %v, %v", other.changes, err)
	}
}

func TestTestsThatAreNotAsTheyWereFail(t *testing.T) {
	const both = serverStart + "\n" + controllerStart
	for name, test := range map[string]struct {
		edits      []string
		code, want string
	}{
		"no server":                   {code: "func TestX(t *testing.T) { " + controllerStart + " }", want: `x: the edit "server" finds no place`},
		"no start":                    {code: "func TestX(t *testing.T) { " + serverStart + " }", want: `x: the edit "start" finds no place`},
		"no other edit":               {edits: []string{informers}, code: "func TestX(t *testing.T) { " + both + " }", want: `x: the edit "informers" finds no place`},
		"nothing to leave":            {edits: []string{leave + "sched"}, code: "func TestX(t *testing.T) { " + both + " }", want: `x: the edit "leave sched" finds no place`},
		"a start without workers":     {code: "func TestX(t *testing.T) { " + both + "\ngo d.Run(ctx) }", want: "a_test.go:5: hack/overlay does not know this way to start a controller: d.Run"},
		"a start in a function":       {code: "func TestX(t *testing.T) { " + both + "\nwg.Go(func() { d.Run(ctx, 1) }) }", want: "a_test.go:5: hack/overlay does not know this way to start a controller: d.Run"},
		"a start by a method's value": {code: "func TestX(t *testing.T) { " + both + "\nwg.StartWithContext(ctx, d.Run) }", want: "a_test.go:5: hack/overlay does not know this way to start a controller: d.Run"},
		"a start outside of functions": {
			code: "var start = func() { go d.Run(ctx, 1) }\nfunc TestX(t *testing.T) { " + both + " }", want: "a_test.go:3: hack/overlay does not know this way to start a controller: d.Run",
		},
		"a start without a test": {
			edits: []string{parameter},
			code:  "func run() { go d.Run(ctx, 1) }\nfunc TestX(t *testing.T) { " + both + "\n run() }\nfunc init() { run() }",
			want:  "a_test.go:7: there is no test to give to run, which starts a controller",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := putOnRing("x", []*source{parsed(t, "package x\n\n"+test.code)}, test.edits)
			if err == nil || err.Error() != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

func TestOnRing(t *testing.T) {
	files := map[string]string{
		"cmd/kube-controller-manager/app/controllermanager.go": `package app

func create(s Server) { name, err := leader.name(cache.NewInformerName("kube-controller-manager")) }`,
		"pkg/controller/disruption/disruption.go": `package disruption

const (
	stalePodDisruptionTimeout = 2 * time.Minute
)`,
		"test/integration/deployment/a_test.go": "package deployment\n\nfunc TestX(t *testing.T) { " + serverStart + "; " + controllerStart + " }",
	}
	o := overlayOf(t, files)
	packages, err := onRing(o, []string{"deployment"})
	if err != nil || len(packages) != 1 || packages[0] != "test/integration/deployment" {
		t.Errorf("got %q, %v", packages, err)
	}
	for file, want := range map[string]string{
		"cmd/kube-controller-manager/app/controllermanager.go": `cache.NewInformerName(fmt.Sprintf("kube-controller-manager-%p", s))`,
		"pkg/controller/disruption/disruption.go":              "stalePodDisruptionTimeout = 3 * time.Second",
		"test/integration/deployment/a_test.go":                ringStart,
	} {
		if got := string(o.files[file]); !strings.Contains(got, want) {
			t.Errorf("%s has no %s:\n%s", file, want, got)
		}
	}
	for file, edit := range map[string]string{
		"cmd/kube-controller-manager/app/controllermanager.go": "name of informers", "pkg/controller/disruption/disruption.go": "timeout",
	} {
		o := overlayOf(t, files, file)
		if _, err := onRing(o, []string{"deployment"}); err == nil || err.Error() != file+`: the edit "`+edit+`" finds no place` {
			t.Errorf("without a place in %s: %v", file, err)
		}
	}
}
