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
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/util/filesystem"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/client-go/tools/ring/member"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"
)

// ringSettingsPollInterval is how soon a change of the file is noticed if the file
// system does not report it.
const ringSettingsPollInterval = 10 * time.Second

// ringSettings is the local file that says how this controller manager takes part
// in the rings of its controllers. An example with all fields:
//
//	leaseDuration: 6s
//	controllers:
//	- name: replicaset-controller
//	  workers: 20
//	balance:
//	  mode: DryRun
//	  tolerancePercent: 10
//	  keysPercentPerMinute: 5
type ringSettings struct {
	// LeaseDuration is how long a silent instance keeps its range, in whole seconds
	// from 2s to 1h. A change takes effect when the process next joins its rings: when it
	// starts, or other controllers are listed. Default: 6s.
	LeaseDuration ringDuration `json:"leaseDuration,omitempty"`
	// Controllers lists the controllers that this controller manager takes part
	// with; it leaves the ring of one that is not listed. Default: all that can.
	Controllers []ringControllerSettings `json:"controllers,omitempty"`
	// Balance says how this controller manager evens out the load of its rings.
	Balance ringBalanceSettings `json:"balance,omitempty"`
}

// ringBalanceSettings should be the same in all controller managers: each decides by its own on the
// moves in which it gives something away.
type ringBalanceSettings struct {
	// Mode is Enabled, DryRun, which only says what it would move, or Disabled. Default: Enabled.
	Mode string `json:"mode,omitempty"`
	// TolerancePercent is how much more load than it should have an instance may have, in percent
	// of what one has on average, from 1 to 100. Default: 10.
	TolerancePercent int `json:"tolerancePercent,omitempty"`
	// KeysPercentPerMinute is how many of all keys are moved in a minute at most, in percent from 1
	// to 100. What moves in the two minutes after an instance has come or gone is not counted.
	// Default: 5.
	KeysPercentPerMinute int `json:"keysPercentPerMinute,omitempty"`
}

const (
	balanceEnabled  = "Enabled"
	balanceDryRun   = "DryRun"
	balanceDisabled = "Disabled"
)

// complete fills in the defaults, and says what is wrong.
func (b *ringBalanceSettings) complete() error {
	var errs []error
	if b.Mode == "" {
		b.Mode = balanceEnabled
	}
	if modes := []string{balanceEnabled, balanceDryRun, balanceDisabled}; !slices.Contains(modes, b.Mode) {
		errs = append(errs, fmt.Errorf("balance.mode is %q, want one of %q", b.Mode, modes))
	}
	percent := func(name string, value *int, fallback float64) {
		switch {
		case *value == 0:
			*value = int(math.Round(100 * fallback))
		case *value < 1 || *value > 100:
			errs = append(errs, fmt.Errorf("balance.%s is %d, want 1 to 100, or none for the default", name, *value))
		}
	}
	percent("tolerancePercent", &b.TolerancePercent, ring.DefaultPolicy.Tolerance)
	percent("keysPercentPerMinute", &b.KeysPercentPerMinute, ring.DefaultPolicy.Rate)
	return errors.Join(errs...)
}

// policy returns how an instance evens out the load of its ring; nil: it does not.
func (b *ringBalanceSettings) policy() *ring.Balance {
	if b.Mode == balanceDisabled {
		return nil
	}
	policy := ring.DefaultPolicy
	policy.Tolerance, policy.Rate = float64(b.TolerancePercent)/100, float64(b.KeysPercentPerMinute)/100
	return &ring.Balance{Policy: policy, DryRun: b.Mode == balanceDryRun}
}

type ringControllerSettings struct {
	Name string `json:"name"`
	// Workers is how many objects are worked on at the same time, at least 1.
	// Default: what the controller's flag says.
	Workers int `json:"workers,omitempty"`
}

// ringDuration is a time.Duration that is written as in Go, such as 6s.
type ringDuration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *ringDuration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = ringDuration(parsed)
	return err
}

// parseRingSettings reads the settings from YAML or JSON, checks them and fills in
// the defaults: defaultWorkers has every controller that can be on a ring.
func parseRingSettings(data []byte, defaultWorkers map[string]int) (*ringSettings, error) {
	settings := &ringSettings{}
	if err := yaml.UnmarshalStrict(data, settings); err != nil {
		return nil, err
	}
	lease := time.Duration(settings.LeaseDuration)
	if lease == 0 {
		lease = member.DefaultLeaseDuration
		settings.LeaseDuration = ringDuration(lease)
	}
	var errs []error
	if err := fence.CheckLease(lease); err != nil {
		errs = append(errs, fmt.Errorf("leaseDuration %w", err))
	}
	if err := settings.Balance.complete(); err != nil {
		errs = append(errs, err)
	}
	known := sets.List(sets.KeySet(defaultWorkers))
	if settings.Controllers == nil {
		for _, name := range known {
			settings.Controllers = append(settings.Controllers, ringControllerSettings{Name: name})
		}
	}
	seen := sets.New[string]()
	for i := range settings.Controllers {
		c := &settings.Controllers[i]
		fallback, ok := defaultWorkers[c.Name]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("controllers[%d].name is %q, want one of %q", i, c.Name, known))
		case seen.Has(c.Name):
			errs = append(errs, fmt.Errorf("controllers[%d].name %q is listed twice", i, c.Name))
		case c.Workers < 0:
			errs = append(errs, fmt.Errorf("controllers[%d].workers is %d, want 1 or more, or none for the default", i, c.Workers))
		case c.Workers == 0:
			c.Workers = fallback
		}
		seen.Insert(c.Name)
	}
	return settings, errors.Join(errs...)
}

// controller returns the settings for that controller, and whether it is listed.
func (s *ringSettings) controller(name string) (ringControllerSettings, bool) {
	for _, c := range s.Controllers {
		if c.Name == name {
			return c, true
		}
	}
	return ringControllerSettings{}, false
}

// ringSettingsFile is a settings file that is read again when it changes.
type ringSettingsFile struct {
	path           string
	defaultWorkers map[string]int

	lock    sync.Mutex
	data    string
	current *ringSettings
	// changed is closed when current is replaced.
	changed chan struct{}
}

// newRingSettingsFile reads the file at path, which must be valid; without a path the
// defaults apply.
func newRingSettingsFile(path string, defaultWorkers map[string]int) (*ringSettingsFile, error) {
	f := &ringSettingsFile{path: path, defaultWorkers: defaultWorkers, changed: make(chan struct{})}
	var err error
	if path == "" {
		f.current, err = parseRingSettings(nil, defaultWorkers)
	} else if f.data, err = f.read(); err == nil {
		f.current, err = parseRingSettings([]byte(f.data), defaultWorkers)
	}
	if err != nil {
		return nil, fmt.Errorf("--controller-ring-config %s: %w", path, err)
	}
	return f, nil
}

// read returns what is in the file. An empty one is refused: it is most likely
// being written.
func (f *ringSettingsFile) read() (string, error) {
	data, err := os.ReadFile(f.path)
	if err == nil && len(bytes.TrimSpace(data)) == 0 {
		err = errors.New("the file is empty; for the defaults write {}")
	}
	return string(data), err
}

// get returns the settings in force, and a channel that is closed when they change.
func (f *ringSettingsFile) get() (*ringSettings, <-chan struct{}) {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.current, f.changed
}

// watch reads the file again whenever it changes, until ctx ends. A file that is
// unreadable or invalid changes nothing.
func (f *ringSettingsFile) watch(ctx context.Context) {
	if f.path == "" {
		return
	}
	logger := klog.FromContext(ctx)
	filesystem.WatchUntil(ctx, ringSettingsPollInterval, f.path, func() {
		data, err := f.read()
		if err != nil {
			logger.Error(err, "Could not read the ring's settings; the last valid ones stay in force", "path", f.path)
			return
		}
		f.lock.Lock()
		defer f.lock.Unlock()
		if data == f.data {
			return
		}
		f.data = data
		settings, err := parseRingSettings([]byte(data), f.defaultWorkers)
		if err != nil {
			logger.Error(err, "The ring's settings are invalid; the last valid ones stay in force", "path", f.path)
			return
		}
		logger.Info("Read the ring's settings again", "path", f.path)
		f.current = settings
		close(f.changed)
		f.changed = make(chan struct{})
	}, func(err error) {
		logger.Error(err, "Could not watch the ring's settings; will read them from time to time", "path", f.path, "every", ringSettingsPollInterval)
	})
}
