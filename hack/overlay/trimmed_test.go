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
	"strings"
	"testing"
)

const cacheFolder = "staging/src/k8s.io/client-go/tools/cache/"

var cacheFiles = map[string]string{
	cacheFolder + "store.go": `package cache

var _ Store = &cache{}

func NewStore() Store {
	c := &cache{
		keys: keys,
	}
	return c
}`,
	cacheFolder + "shared_informer.go": `package cache

func New() SharedIndexInformer {
	return &sharedIndexInformer{
		clock: clock,
	}
}`,
	"pkg/controller/podgc/podgc.go":              "package podgc\n",
	"pkg/controller/serviceaccount/tokens.go":    "package serviceaccount\n",
	"test/integration/quota/quota_test.go":       "package quota\n",
	"test/integration/podgc/podgc_extra_test.go": "package podgc_test\n",
}

func TestTrimmed(t *testing.T) {
	o := overlayOf(t, cacheFiles)
	packages := []string{"pkg/controller/podgc", "pkg/controller/serviceaccount", "test/integration/quota", "test/integration/podgc"}
	chosen, err := trimmed(o, packages)
	if err != nil || !slices.Equal(chosen, packages) {
		t.Errorf("got %q, %v", chosen, err)
	}
	const (
		kinds  = "*v1.Node, *v1.Secret, *v1.ConfigMap:"
		stored = "cache.TrimStored = cache.Trim\n"
	)
	for file, test := range map[string]struct{ has, lacks []string }{
		cacheFolder + "store.go":           {has: []string{"= &cache{}\n", "c := &cache{transformer: trimStored,\n"}},
		cacheFolder + "shared_informer.go": {has: []string{"return &sharedIndexInformer{transform: trim,\n"}},
		cacheFolder + "trim.go":            {has: []string{"package cache\n", "var Trim, TrimStored = "}},
		"pkg/controller/podgc/trim_pods_test.go": {
			has:   []string{"package podgc\n", `podtrim.ReadBy("pod-garbage-collector-controller", )`, "case *v1.Pod, " + kinds, stored},
			lacks: []string{"serviceaccount"},
		},
		"pkg/controller/serviceaccount/trim_pods_test.go": {has: []string{"package serviceaccount\n", "case " + kinds, stored}},
		"test/integration/quota/trim_pods_test.go": {
			has:   []string{"package quota\n", `"pod-garbage-collector-controller", `, `"ttl-controller", `, "case *v1.Pod, " + kinds},
			lacks: []string{"cache.TrimStored"},
		},
		"test/integration/podgc/trim_pods_test.go": {has: []string{"package podgc\n"}},
	} {
		text := string(o.files[file])
		if _, err := parse(file, []byte(text)); err != nil {
			t.Error(err)
		}
		for _, part := range test.has {
			if !strings.Contains(text, part) {
				t.Errorf("%s has no %q:\n%s", file, part, text)
			}
		}
		for _, part := range test.lacks {
			if strings.Contains(text, part) {
				t.Errorf("%s has %q:\n%s", file, part, text)
			}
		}
	}
}

func TestACacheWithoutAPlaceFails(t *testing.T) {
	for file, edit := range map[string]string{cacheFolder + "store.go": "transformer", cacheFolder + "shared_informer.go": "transform"} {
		o := overlayOf(t, cacheFiles, file)
		if _, err := trimmed(o, []string{"pkg/controller/podgc"}); err == nil || err.Error() != file+`: the edit "`+edit+`" finds no place` {
			t.Errorf("without a place in %s: %v", file, err)
		}
	}
}

func TestAPackageThatIsGoneFails(t *testing.T) {
	o := overlayOf(t, cacheFiles)
	if _, err := trimmed(o, []string{"pkg/controller/ttl"}); err == nil || !strings.Contains(err.Error(), "pkg/controller/ttl") {
		t.Errorf("got %v", err)
	}
}
