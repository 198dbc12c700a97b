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
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/util/wait"
	testclock "k8s.io/utils/clock/testing"
)

// Work that began under one registration must not see the next, in whose name it
// would write, so a member waits for its end; only one that goes waits no longer
// than a lease.
func TestDrainOutwaitsAllWorkUnlessTheMemberGoes(t *testing.T) {
	clock := testclock.NewFakeClock(time.Now())
	gate := NewGate(clock)
	gate.set(hashkey.All())
	gate.extend(clock.Now().Add(time.Minute))
	term := &term{Member: &Member{cfg: Config{Gate: gate, LeaseDuration: 2 * time.Second, Clock: clock}}, kick: make(chan struct{}, 1)}
	gate.notify(term.again)
	first, _ := gate.Enter(1)
	second, _ := gate.Enter(2)

	drained := func(ctx context.Context) <-chan struct{} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			term.drain(ctx)
		}()
		return done
	}
	eventually := func(what string, condition func() bool) {
		t.Helper()
		if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, wait.ForeverTestTimeout, true, func(context.Context) (bool, error) { return condition(), nil }); err != nil {
			t.Fatal(what)
		}
	}
	stays := drained(t.Context())
	first()
	eventually("the end of work is not heard of", func() bool { return len(term.kick) == 0 })
	if clock.HasWaiters() {
		t.Fatal("a member that stays waits for a limited time only")
	}
	select {
	case <-stays:
		t.Fatal("a member that stays did not wait for all of its work")
	default:
	}
	second()
	<-stays

	third, _ := gate.Enter(3)
	defer third()
	ctx, leave := context.WithCancel(t.Context())
	goes := drained(ctx)
	leave()
	eventually("a member that goes waits without limit", clock.HasWaiters)
	clock.Step(2 * time.Second)
	<-goes
}
