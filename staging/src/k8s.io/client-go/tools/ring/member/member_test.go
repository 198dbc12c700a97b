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
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
)

func TestNewRefusesAConfigurationThatCannotWork(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no client":                {func(c *Config) { c.Client = nil }, "needs Client, Gate and Controllers"},
		"no gate":                  {func(c *Config) { c.Gate = nil }, "needs Client, Gate and Controllers"},
		"no controller":            {func(c *Config) { c.Controllers = nil }, "needs Client, Gate and Controllers"},
		"no ring":                  {func(c *Config) { c.Ring = "" }, "needs Ring and HolderIdentity"},
		"no identity":              {func(c *Config) { c.HolderIdentity = "" }, "needs Ring and HolderIdentity"},
		"a step within a lease":    {func(c *Config) { c.StepLimit = lease - 1 }, "StepLimit is 5.999999999s, want at least LeaseDuration (6s)"},
		"hung within a step":       {func(c *Config) { c.HungLimit = lease }, "HungLimit is 6s, want at least StepLimit (30s)"},
		"a lease too short":        {func(c *Config) { c.LeaseDuration = time.Second }, "LeaseDuration is 1s, want whole seconds from 2s to 1h0m0s"},
		"a lease too long":         {func(c *Config) { c.LeaseDuration = 2 * time.Hour }, "LeaseDuration is 2h0m0s, want"},
		"a lease of half a second": {func(c *Config) { c.LeaseDuration = 2500 * time.Millisecond }, "LeaseDuration is 2.5s, want whole seconds"},
		"a negative lease":         {func(c *Config) { c.LeaseDuration = -lease }, "LeaseDuration is -6s, want"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := newInstance(t, newRegistry(t)).cfg
			cfg.StepLimit, cfg.HungLimit = 0, 0
			tc.change(&cfg)
			if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestNewFillsInDefaults(t *testing.T) {
	for name, tc := range map[string]struct {
		lease, step         time.Duration
		wantLease, wantStep time.Duration
		wantHung            time.Duration
	}{
		"nothing set":   {0, 0, DefaultLeaseDuration, DefaultStepLimit, DefaultHungLimit},
		"a short lease": {2 * time.Second, 0, 2 * time.Second, DefaultStepLimit, DefaultHungLimit},
		"a long lease":  {time.Minute, 0, time.Minute, time.Minute, DefaultHungLimit},
		"a longer one":  {time.Hour, 0, time.Hour, time.Hour, time.Hour},
		"both set":      {2 * time.Second, 2 * time.Second, 2 * time.Second, 2 * time.Second, DefaultHungLimit},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := newInstance(t, newRegistry(t)).cfg
			cfg.LeaseDuration, cfg.StepLimit, cfg.HungLimit = tc.lease, tc.step, 0
			cfg.Metrics, cfg.Events, cfg.Clock = nil, nil, nil
			m, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if m.cfg.LeaseDuration != tc.wantLease || m.cfg.StepLimit != tc.wantStep || m.cfg.HungLimit != tc.wantHung {
				t.Errorf("lease %v, step limit %v and hung limit %v, want %v, %v and %v", m.cfg.LeaseDuration, m.cfg.StepLimit, m.cfg.HungLimit, tc.wantLease, tc.wantStep, tc.wantHung)
			}
			if m.cfg.Metrics != (noMetrics{}) || m.cfg.Events != (printableEvents{noEvents{}}) || m.cfg.Clock != (clock.RealClock{}) {
				t.Errorf("got metrics %T, events %T and clock %T", m.cfg.Metrics, m.cfg.Events, m.cfg.Clock)
			}
		})
	}
}

func TestNewHasTheGateCountRefusedWrites(t *testing.T) {
	i := newInstance(t, newRegistry(t))
	i.gate.refuse(RefusedByServer)
	i.told.expect(t, "refused by server")
}

// Pauses double from 100 ms to 3 s, and each is longer by up to a half, so that instances
// that failed together do not try again together.
func TestRunPausesLongerAfterEachRegistrationThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		failures := 8
		r.intercept(func(_ context.Context, q request) error {
			if q.verb == "create" && failures > 0 {
				failures--
				return errors.New("injected")
			}
			return nil
		})
		i := newInstance(t, r)
		i.start()
		expectPauses := func(creates []time.Duration, want ...time.Duration) {
			t.Helper()
			if len(creates) != len(want)+1 {
				t.Fatalf("registrations were tried at %v, want %d", creates, len(want)+1)
			}
			for n, w := range want {
				w *= time.Millisecond
				if got := creates[n+1] - creates[n]; got < w || got > w*3/2 {
					t.Errorf("pause %d took %v, want %v to %v", n+1, got, w, w*3/2)
				}
			}
		}
		eventually(t, "registered", func() bool { return i.told.has("registered") })
		expectPauses(times(r.got(ofVerb("create"))), 100, 200, 400, 800, 1600, 3000, 3000, 3000)

		// A registration that succeeds lets the pauses begin anew.
		failures = 1
		r.remove(i.record().Name)
		i.told.take()
		eventually(t, "registered again", func() bool { return i.told.has("registered") })
		expectPauses(times(r.got(ofVerb("create")))[9:], 100)
	})
}

func TestRunEndsWhileItCannotRegister(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		r.intercept(func(context.Context, request) error {
			return apierrors.NewServiceUnavailable("injected")
		})
		stop, done := newInstance(t, r).start()
		time.Sleep(time.Minute)
		began := time.Now()
		stop()
		<-done
		if took := time.Since(began); took != 0 {
			t.Errorf("Run returned after %v, want at once", took)
		}
	})
}

func TestEventsArePrintable(t *testing.T) {
	var got told
	printableEvents{&got}.Eventf(&v1.ObjectReference{Name: "a"}, v1.EventTypeNormal, "Joined", "from %s", "x\x1b[2J\n\u202e%d\xff")
	if want := []string{`Normal event Joined on a: from x\u001b[2J\n\u202e%d\xff`}; !slices.Equal(got.lines, want) {
		t.Errorf("got %q, want %q", got.lines, want)
	}
}
