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
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// A process that has to end at once (it has lost the leader's Lease, a second signal, work that
// never ends, a fatal error, a panic) deletes its records on the way out. Else each range would
// wait until its record has expired.

const (
	// exitLimit bounds how long the end of the process is held up, whatever happens. A bit more
	// than abandonLimit.
	exitLimit = abandonLimit + 500*time.Millisecond
	// panicLimit is when a process ends whose panic was recovered from: its rings are gone.
	panicLimit = 5 * time.Second
)

var (
	hookExit = sync.OnceFunc(func() {
		exit := klog.OsExit
		klog.OsExit = func(code int) {
			abandonAll()
			exit(code)
		}
		utilruntime.PanicHandlers = append(utilruntime.PanicHandlers, abandonInPanic)
	})

	exitLock sync.Mutex
	// exitHosts are those whose records are to be deleted.
	exitHosts = map[*ringHost]context.Context{}
)

// abandonOnExit deletes the records of h when the process ends at once, until forget is
// called.
func abandonOnExit(ctx context.Context, h *ringHost) (forget func()) {
	hookExit()
	exitLock.Lock()
	defer exitLock.Unlock()
	exitHosts[h] = context.WithoutCancel(ctx)
	return func() {
		exitLock.Lock()
		defer exitLock.Unlock()
		delete(exitHosts, h)
	}
}

// abandonAll deletes the records of this process, within exitLimit. It logs nothing itself:
// klog may be what ends the process, with its lock held.
func abandonAll() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		exitLock.Lock()
		defer exitLock.Unlock()
		var wg sync.WaitGroup
		defer wg.Wait()
		for h, ctx := range exitHosts {
			wg.Go(func() { h.abandonRings(ctx) })
		}
	}()
	select {
	case <-done:
	case <-time.After(exitLimit):
	}
}

// abandonInPanic is a panic handler.
func abandonInPanic(_ context.Context, reason interface{}) {
	if err, ok := reason.(error); !utilruntime.ReallyCrash || ok && errors.Is(err, http.ErrAbortHandler) {
		return
	}
	abandonAll()
	// Whoever recovers from the panic, as an HTTP server does, must not live on without rings.
	time.AfterFunc(panicLimit, func() { klog.FlushAndExit(klog.ExitFlushTimeout, 1) })
}

// exitFor ends the process, as its part in that ring has to end with it: work never ends, and only
// that lets go of what it holds; or etcd was restored, and what the process has seen is of another
// history.
func exitFor(logger klog.Logger, ring, reason string) {
	logger.Error(nil, "This process has to end", "ring", ring, "reason", reason)
	klog.FlushAndExit(klog.ExitFlushTimeout, 1)
}
