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

package host

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/ring"
)

var testWorkers = map[string]int{"replicaset-controller": 5, "job-controller": 3, "fixed-controller": 0}

func TestParseSettings(t *testing.T) {
	for name, tc := range map[string]struct {
		in      string
		lease   time.Duration
		workers map[string]int
		err     string
	}{
		"nothing: all controllers with their defaults": {
			lease: 15 * time.Second, workers: testWorkers,
		},
		"one controller, its own number of workers": {
			in:    "leaseDuration: 10s\ncontrollers:\n- name: job-controller\n  workers: 20\n",
			lease: 10 * time.Second, workers: map[string]int{"job-controller": 20},
		},
		"default workers of a listed controller": {
			in:    "controllers: [{name: job-controller}]",
			lease: 15 * time.Second, workers: map[string]int{"job-controller": 3},
		},
		"an empty list: none": {
			in: "controllers: []", lease: 15 * time.Second,
		},
		"unknown field":              {in: "workers: 3", err: "unknown field"},
		"unknown controller":         {in: "controllers: [{name: x}]", err: `controllers[0].name is "x", want one of ["fixed-controller" "job-controller" "replicaset-controller"]`},
		"twice":                      {in: "controllers: [{name: job-controller},{name: job-controller}]", err: "listed twice"},
		"negative workers":           {in: "controllers: [{name: job-controller, workers: -1}]", err: "want 1 or more"},
		"workers that are fixed":     {in: "controllers: [{name: fixed-controller, workers: 2}]", err: "this program fixes the workers of fixed-controller"},
		"lease too short":            {in: "leaseDuration: 1s", err: "leaseDuration is 1s, want whole seconds from 2s to 1h"},
		"lease in parts":             {in: "leaseDuration: 2500ms", err: "whole seconds"},
		"balance in an unknown mode": {in: "balance: {mode: on}", err: `balance.mode is "true", want one of ["Enabled" "DryRun" "Disabled"]`},
		"balance without tolerance":  {in: "balance: {tolerancePercent: -1}", err: "balance.tolerancePercent is -1, want 1 to 100"},
		"a tolerance of nothing":     {in: "balance: {tolerancePercent: 0}", err: "balance.tolerancePercent is 0, want 1 to 100"},
		"no keys at all":             {in: "balance: {keysPercentPerMinute: 0}", err: "to move nothing, set balance.mode to Disabled"},
		"more than all keys":         {in: "balance: {keysPercentPerMinute: 101}", err: "balance.keysPercentPerMinute is 101, want 1 to 100"},
		"no duration":                {in: "leaseDuration: soon", err: "invalid duration"},
	} {
		t.Run(name, func(t *testing.T) {
			settings, err := ParseSettings([]byte(tc.in), testWorkers)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("got error %v, want one with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := time.Duration(settings.LeaseDuration); got != tc.lease {
				t.Errorf("lease %v, want %v", got, tc.lease)
			}
			for controller := range testWorkers {
				got, listed := settings.Controller(controller)
				want, wanted := tc.workers[controller]
				if listed != wanted || got.Workers != want {
					t.Errorf("%s: %d workers, listed %v; want %d, %v", controller, got.Workers, listed, want, wanted)
				}
			}
		})
	}
}

func TestTheSettingsSayHowTheLoadIsEvenedOut(t *testing.T) {
	changed := ring.DefaultPolicy
	changed.Tolerance, changed.Rate = 0.2, 1
	for in, want := range map[string]*ring.Balance{
		"{}":                        {Policy: ring.DefaultPolicy},
		"balance: {mode: Enabled}":  {Policy: ring.DefaultPolicy},
		"balance: {mode: DryRun}":   {Policy: ring.DefaultPolicy, DryRun: true},
		"balance: {mode: Disabled}": nil,
		"balance: {tolerancePercent: 20, keysPercentPerMinute: 100}": {Policy: changed},
	} {
		settings, err := ParseSettings([]byte(in), testWorkers)
		if err != nil {
			t.Fatal(err)
		}
		if got := settings.Balance.Policy(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s gives %+v, want %+v", in, got, want)
		}
	}
}

func TestTheSettingsFileIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ring.yaml")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := NewSettingsFile(path, testWorkers); err == nil {
		t.Error("a missing file was taken")
	}
	write("\n")
	if _, err := NewSettingsFile(path, testWorkers); err == nil {
		t.Error("an empty file was taken")
	}
	write("nonsense: 1\n")
	if _, err := NewSettingsFile(path, testWorkers); err == nil {
		t.Error("a file that is not good was taken")
	}
	write("controllers: [{name: job-controller, workers: 1}]\n")
	file, err := NewSettingsFile(path, testWorkers)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); file.Watch(ctx) }()
	defer func() { cancel(); <-done }()
	for _, workers := range []int{2, 3} {
		_, changed := file.Get()
		write("controllers: [{name: job-controller, workers: not a number}]\n")
		write("controllers: [{name: job-controller, workers: " + string(rune('0'+workers)) + "}]\n")
		<-changed
		settings, _ := file.Get()
		if c, _ := settings.Controller("job-controller"); c.Workers != workers {
			t.Errorf("%d workers after the change, want %d", c.Workers, workers)
		}
	}
}
