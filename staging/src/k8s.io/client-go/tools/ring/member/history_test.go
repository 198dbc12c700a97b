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

package member

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// exits has the instance note why it is to exit.
func exits(reasons chan string) func(*Config) {
	return func(c *Config) { c.Exit = func(reason string) { reasons <- reason } }
}

// endsFor checks that the instance is asked once to exit, works on nothing and registers no more.
func (i *instance) endsFor(reasons chan string, want string) {
	i.t.Helper()
	time.Sleep(3 * lease)
	select {
	case reason := <-reasons:
		if !strings.Contains(reason, want) {
			i.t.Errorf("asked to exit since %s, want %q", reason, want)
		}
	default:
		i.t.Error("not asked to exit")
	}
	if open := i.gate.serving(); !open.Empty() {
		i.t.Errorf("works on %v", open)
	}
	n := len(i.registry.got(ofVerb("create")))
	time.Sleep(10 * lease)
	if again := len(i.registry.got(ofVerb("create"))); again > n {
		i.t.Errorf("registered %d times more", again-n)
	}
	if len(reasons) > 0 {
		i.t.Errorf("asked to exit again: %s", <-reasons)
	}
}

func TestARegistryThatGoesBackEndsTheMember(t *testing.T) {
	for name, c := range map[string]struct {
		again int
		want  string
	}{
		"and stays there":         {0, "ControllerInstance workloads-"},
		"and comes further again": {50, "ControllerInstance workloads-"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t)
				reasons := make(chan string, 10)
				a := newInstance(t, r, exits(reasons))
				a.start()
				time.Sleep(lease)
				backup := r.revision()
				record := a.record()
				record.Annotations = map[string]string{"changed": "later"}
				r.edit(record)
				r.touch(5)
				time.Sleep(lease)
				r.rewind(backup)
				r.touch(c.again)
				a.endsFor(reasons, c.want)
			})
		})
	}
}

// The record is lost, too: it was made after the backup.
func TestARegistryThatGoesBackBehindTheRecordEndsTheMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		reasons := make(chan string, 10)
		a := newInstance(t, r, exits(reasons))
		backup := r.revision()
		a.start()
		time.Sleep(lease)
		r.touch(20)
		time.Sleep(5 * lease)
		r.rewind(backup)
		a.endsFor(reasons, "the registry is at resource version")
	})
}

func TestAnInformerOfAnotherHistoryEndsTheMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		reasons := make(chan string, 10)
		a := newInstance(t, r, exits(reasons))
		a.start()
		time.Sleep(lease)
		a.sources[1].diverge("pods are older than before")
		a.endsFor(reasons, "pods are older than before")
	})
}

// A list that began before the log told of something may end after it.
func TestAListFromBeforeWhatTheLogHasToldIsOfTheSameHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		a := newInstance(t, r)
		term := a.registered(testContext(t))
		known := term.history.asks()
		view, err := term.list(testContext(t), known, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		record := *view.Records()[0]
		record.Revision += 5
		term.history.saw(record)
		if reason := known.judge(view); reason != "" {
			t.Errorf("it is of another history: %s", reason)
		}
		if reason := term.history.asks().judge(view); reason == "" {
			t.Error("a list that began later may be older")
		}
	})
}
