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

	"k8s.io/client-go/tools/ring/balance"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
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
		"unknown field":              {in: "workers: 3", err: `unknown field "workers"`},
		"another case":               {in: "leaseduration: 10s", err: `unknown field "leaseduration": names of fields are case-sensitive`},
		"another case, further down": {in: "controllers: [{Name: job-controller}]", err: `unknown field "controllers[0].Name"`},
		"another case, in balance":   {in: "balance: {Mode: DryRun}", err: `unknown field "balance.Mode"`},
		"another case, in JSON":      {in: `{"LeaseDuration": "10s"}`, err: `unknown field "LeaseDuration"`},
		"a field given twice":        {in: "capacity: 5\ncapacity: 6\n", err: `key "capacity" already set in map`},
		"twice, in JSON":             {in: `{"capacity": 5, "capacity": 6}`, err: `key "capacity" already set in map`},
		"twice, in another case":     {in: "capacity: 5\nCapacity: 6\n", err: `unknown field "Capacity"`},
		"two documents":              {in: "capacity: 5\n---\ncapacity: 6\n", err: "several YAML documents"},
		"one after a comment": {
			in: "# ours\n---\nleaseDuration: 10s\n", lease: 10 * time.Second, workers: testWorkers,
		},
		"comments alone":             {in: "# nothing yet\n", lease: 15 * time.Second, workers: testWorkers},
		"a boolean for a mode":       {in: "balance: {mode: Off}", err: "balance.mode of type string: YAML takes On, Off, Yes and No for true and false; put a text in quotes"},
		"a mode that is none":        {in: `balance: {mode: "Off"}`, err: `balance.mode is "Off", want one of ["Enabled" "DryRun" "Disabled"]`},
		"a number for a lease":       {in: "leaseDuration: 15", err: "cannot unmarshal number"},
		"a text for a number":        {in: `capacity: "5"`, err: "cannot unmarshal string into Go struct field Settings.capacity of type int64"},
		"a list of everything":       {in: "[]", err: "cannot unmarshal array"},
		"unknown controller":         {in: "controllers: [{name: x}]", err: `controllers[0].name is "x", want one of ["fixed-controller" "job-controller" "replicaset-controller"]`},
		"twice":                      {in: "controllers: [{name: job-controller},{name: job-controller}]", err: "listed twice"},
		"negative workers":           {in: "controllers: [{name: job-controller, workers: -1}]", err: "want 1 or more"},
		"workers that are fixed":     {in: "controllers: [{name: fixed-controller, workers: 2}]", err: "this program fixes the workers of fixed-controller"},
		"lease too short":            {in: "leaseDuration: 1s", err: "leaseDuration is 1s, want whole seconds from 2s to 1h"},
		"lease in parts":             {in: "leaseDuration: 2500ms", err: "whole seconds"},
		"balance in an unknown mode": {in: "balance: {mode: Sometimes}", err: `balance.mode is "Sometimes", want one of ["Enabled" "DryRun" "Disabled"]`},
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
	changed := balance.Default
	changed.Tolerance, changed.Rate = 0.2, 1
	for in, want := range map[string]*balance.Config{
		"{}":                        {Settings: balance.Default},
		"balance: {mode: Enabled}":  {Settings: balance.Default},
		"balance: {mode: DryRun}":   {Settings: balance.Default, DryRun: true},
		"balance: {mode: Disabled}": nil,
		"balance: {tolerancePercent: 20, keysPercentPerMinute: 100}": {Settings: changed},
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

// A file that a mistake has made huge, or one that never ends, is not read into memory.
func TestASettingsFileHasALimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ring.yaml")
	write := func(size int) {
		t.Helper()
		content := "capacity: 5\n#"
		if err := os.WriteFile(path, []byte(content+strings.Repeat("x", size-len(content))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(maxSettings)
	if _, err := NewSettingsFile(path, testWorkers); err != nil {
		t.Errorf("as large as it may be: %v", err)
	}
	write(maxSettings + 1)
	const want = "the file has more than 1048576 bytes"
	if _, err := NewSettingsFile(path, testWorkers); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a byte more: got %v", err)
	}
	if _, err := NewSettingsFile("/dev/zero", testWorkers); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("without an end: got %v", err)
	}
}

// A refused edit changes nothing, and the log says why.
func TestARefusedEditLeavesTheSettingsInForce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ring.yaml")
	if err := os.WriteFile(path, []byte("leaseDuration: 10s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := NewSettingsFile(path, testWorkers)
	if err != nil {
		t.Fatal(err)
	}
	before, changed := file.Get()
	for content, why := range map[string]string{
		"leaseduration: 20s\n":                   `unknown field \"leaseduration\"`,
		"capacity: 1\ncapacity: 2\n":             "already set in map",
		"balance: {mode: Off}\n":                 "put a text in quotes",
		"#" + strings.Repeat("x", maxSettings):   "more than 1048576 bytes",
		"leaseDuration: 20s\n---\ncapacity: 5\n": "several YAML documents",
		"":                                       "the file is empty",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))
		for range 2 {
			// It is said once.
			file.readAgain(klog.NewContext(t.Context(), logger))
		}
		if text := log.String(); strings.Count(text, why) != 1 || !strings.Contains(text, "the last valid ones stay in force") {
			t.Errorf("%.40q: the log says %s", content, text)
		}
		if now, _ := file.Get(); now != before {
			t.Errorf("%.40q is in force", content)
		}
	}
	select {
	case <-changed:
		t.Error("the settings are said to have changed")
	default:
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
