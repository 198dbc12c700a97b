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
	"net/http"
	"testing"
	"testing/synctest"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/ring/host"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/test/utils/ktesting"
)

func newTestHost() *ringHost {
	return &ringHost{Process: host.NewProcess(host.ProcessConfig{})}
}

func TestAFatalEndAbandonsTheRingsAndKeepsItsExitCode(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	hookExit()
	hooked, codes := klog.OsExit, make(chan int, 2)
	defer func() { klog.OsExit = hooked }()
	// The hook is in front of what was there when it was set.
	exit := func(code int) { abandonAll(); codes <- code }
	exit(3)
	if code := <-codes; code != 3 {
		t.Errorf("exit code %d without a ring, want 3", code)
	}
	h := newTestHost()
	forget := abandonOnExit(ctx, h)
	exit(4)
	exit(5)
	if first, second := <-codes, <-codes; first != 4 || second != 5 {
		t.Errorf("exit codes %d and %d, want 4 and 5", first, second)
	}
	if !h.Abandoned() {
		t.Error("the process may join a ring though it ends")
	}
	forget()
	other := newTestHost()
	abandonOnExit(ctx, other)()
	abandonAll()
	if other.Abandoned() {
		t.Error("a host was abandoned that had left its rings")
	}
}

// The records of its other rings go at once, too.
func TestAProcessWhoseWorkNeverEndsAbandonsItsRings(t *testing.T) {
	logger, ctx := ktesting.NewTestContext(t)
	hookExit()
	h := newTestHost()
	defer abandonOnExit(ctx, h)()
	hooked := klog.OsExit
	defer func() { klog.OsExit = hooked }()
	code := 0
	// As the hook does, in front of an exit that returns.
	klog.OsExit = func(c int) { abandonAll(); code = c }
	exitFor(logger, "workloads", "replicaset-controller on 00000000000000ff")
	if code != 1 || !h.Abandoned() {
		t.Errorf("exit code %d, abandoned: %t; want 1, true", code, h.Abandoned())
	}
}

// Whatever hangs, the process ends.
func TestAbandoningIsBounded(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	h := newTestHost()
	hangs, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		h.abandon.Do(func() { close(hangs); <-goOn })
	}()
	<-hangs
	forget := abandonOnExit(ctx, h)
	abandonAll()
	close(goOn)
	<-ended
	forget()
}

func TestOnlyAPanicThatEndsTheProcessAbandonsTheRings(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	h := newTestHost()
	defer abandonOnExit(ctx, h)()
	abandonInPanic(ctx, http.ErrAbortHandler)
	if h.Abandoned() {
		t.Error("abandoned because an HTTP handler gave a request up")
	}
	really := utilruntime.ReallyCrash
	defer func() { utilruntime.ReallyCrash = really }()
	utilruntime.ReallyCrash = false
	abandonInPanic(ctx, "a panic that is only logged")
	if h.Abandoned() {
		t.Error("abandoned because of a panic that does not end the process")
	}
	synctest.Test(t, func(t *testing.T) {
		codes := make(chan int, 1)
		exit := klog.OsExit
		defer func() { klog.OsExit = exit }()
		klog.OsExit = func(code int) { codes <- code }
		utilruntime.ReallyCrash = true
		abandonInPanic(ctx, "a panic")
		if !h.Abandoned() {
			t.Error("not abandoned because of a panic")
		}
		if code := <-codes; code != 1 {
			t.Errorf("exit code %d for a panic that was recovered from, want 1", code)
		}
	})
}
