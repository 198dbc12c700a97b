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
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/ring/balance"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/client-go/tools/ring/member"
	"k8s.io/klog/v2"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const (
	// settingsPollInterval is how soon a change of the file is noticed.
	settingsPollInterval = time.Second
	// maxSettings is how many bytes the file may have. No more is read of it.
	maxSettings = 1 << 20
)

// Settings are those of the local file that says how this process takes part in the rings of its
// controllers. An example with all fields:
//
//	leaseDuration: 15s
//	presence: Disabled
//	capacity: 500000
//	controllers:
//	- name: replicaset-controller
//	  workers: 20
//	balance:
//	  mode: DryRun
//	  tolerancePercent: 10
//	  keysPercentPerMinute: 5
type Settings struct {
	// LeaseDuration is how long a silent instance keeps its range, in whole seconds
	// from 2s to 1h. A change takes effect when the process next joins its rings: when it
	// starts, or other controllers are listed. Default: 15s.
	LeaseDuration Duration `json:"leaseDuration,omitempty"`
	// Presence is Enabled, which has API servers notice the death of this process at once, or
	// Disabled. A change takes effect as one of LeaseDuration does. Default: Enabled.
	Presence string `json:"presence,omitempty"`
	// Capacity is how many objects the caches of this process can hold, on all its rings, at least
	// 1. What it comes to own beyond that nobody works on until another takes it. Default: any
	// number.
	Capacity *int64 `json:"capacity,omitempty"`
	// Controllers lists the controllers that this process takes part
	// with; it leaves the ring of one that is not listed. Default: all that can.
	Controllers []ControllerSettings `json:"controllers,omitempty"`
	// Balance says how this process evens out the load of its rings.
	Balance BalanceSettings `json:"balance,omitempty"`
}

// What Settings.Presence may be.
const (
	PresenceEnabled  = "Enabled"
	PresenceDisabled = "Disabled"
)

// BalanceSettings should be the same in all processes: each decides by its own on the moves in
// which it gives something away.
type BalanceSettings struct {
	// Mode is Enabled, DryRun, which only says what it would move, or Disabled. Default: Enabled.
	Mode string `json:"mode,omitempty"`
	// TolerancePercent is how much more load than it should have an instance may have, in percent
	// of what one has on average, from 1 to 100. Default: 10.
	TolerancePercent *int `json:"tolerancePercent,omitempty"`
	// KeysPercentPerMinute is how many of all keys are moved in a minute at most, in percent from 1
	// to 100. What moves in the two minutes after an instance has come or gone is not counted.
	// Default: 5.
	KeysPercentPerMinute *int `json:"keysPercentPerMinute,omitempty"`
}

// complete fills in the default mode, and says what is wrong.
func (b *BalanceSettings) complete() error {
	var errs []error
	if b.Mode == "" {
		b.Mode = member.BalanceEnabled
	}
	if modes := []string{member.BalanceEnabled, member.BalanceDryRun, member.BalanceDisabled}; !slices.Contains(modes, b.Mode) {
		errs = append(errs, fmt.Errorf("balance.mode is %q, want one of %q", b.Mode, modes))
	}
	percent := func(name string, value *int) {
		switch {
		case value == nil:
		case *value == 0:
			errs = append(errs, fmt.Errorf("balance.%s is 0, want 1 to 100, or none for the default; to move nothing, set balance.mode to %s", name, member.BalanceDisabled))
		case *value < 1 || *value > 100:
			errs = append(errs, fmt.Errorf("balance.%s is %d, want 1 to 100, or none for the default", name, *value))
		}
	}
	percent("tolerancePercent", b.TolerancePercent)
	percent("keysPercentPerMinute", b.KeysPercentPerMinute)
	return errors.Join(errs...)
}

// Policy returns how an instance evens out the load of its ring, by default where nothing is set;
// nil: it does not.
func (b *BalanceSettings) Policy() *balance.Config {
	if b.Mode == member.BalanceDisabled {
		return nil
	}
	settings := balance.Default
	if b.TolerancePercent != nil {
		settings.Tolerance = float64(*b.TolerancePercent) / 100
	}
	if b.KeysPercentPerMinute != nil {
		settings.Rate = float64(*b.KeysPercentPerMinute) / 100
	}
	return &balance.Config{Settings: settings, DryRun: b.Mode == member.BalanceDryRun}
}

// Limit returns the capacity; 0: any number.
func (s *Settings) Limit() int64 {
	if s.Capacity == nil {
		return 0
	}
	return *s.Capacity
}

// ControllerSettings are those of a controller that the process takes part with.
type ControllerSettings struct {
	Name string `json:"name"`
	// Workers is how many objects are worked on at the same time, at least 1. Where the program
	// itself fixes that, none may be given. Default: what the controller's flag says.
	Workers int `json:"workers,omitempty"`
}

// Duration is a time.Duration that is written as in Go, such as 15s.
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// ParseSettings reads the settings from YAML or JSON, checks them and fills in
// the defaults: defaultWorkers has every controller that can be on a ring, with 0 if the program
// fixes its workers.
func ParseSettings(data []byte, defaultWorkers map[string]int) (*Settings, error) {
	settings := &Settings{}
	if err := decode(data, settings); err != nil {
		return nil, err
	}
	lease := time.Duration(settings.LeaseDuration)
	if lease == 0 {
		lease = member.DefaultLeaseDuration
		settings.LeaseDuration = Duration(lease)
	}
	var errs []error
	if err := fence.CheckLease(lease); err != nil {
		errs = append(errs, fmt.Errorf("leaseDuration %w", err))
	}
	if c := settings.Capacity; c != nil && *c < 1 {
		errs = append(errs, fmt.Errorf("capacity is %d, want the number of objects that the process can hold, or none for any number", *c))
	}
	if settings.Presence == "" {
		settings.Presence = PresenceEnabled
	}
	if modes := []string{PresenceEnabled, PresenceDisabled}; !slices.Contains(modes, settings.Presence) {
		errs = append(errs, fmt.Errorf("presence is %q, want one of %q", settings.Presence, modes))
	}
	if err := settings.Balance.complete(); err != nil {
		errs = append(errs, err)
	}
	known := sets.List(sets.KeySet(defaultWorkers))
	if settings.Controllers == nil {
		for _, name := range known {
			settings.Controllers = append(settings.Controllers, ControllerSettings{Name: name})
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
		case c.Workers > 0 && fallback == 0:
			errs = append(errs, fmt.Errorf("controllers[%d].workers is %d, but this program fixes the workers of %s: leave them out", i, c.Workers, c.Name))
		case c.Workers == 0:
			c.Workers = fallback
		}
		seen.Insert(c.Name)
	}
	return settings, errors.Join(errs...)
}

// decode reads one document of YAML or JSON. Fields that are not known, by their case even, or are
// there twice are refused: what is written in vain would be missed late.
func decode(data []byte, settings *Settings) error {
	documents := 0
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		converted, err := yaml.YAMLToJSONStrict(document)
		if err != nil {
			return err
		}
		if string(converted) == "null" {
			continue
		}
		if documents++; documents > 1 {
			return errors.New("there are several YAML documents, want one")
		}
		strict, err := json.UnmarshalStrict(converted, settings)
		if err != nil {
			return explain(err)
		}
		if err := errors.Join(strict...); err != nil {
			return fmt.Errorf("%w: names of fields are case-sensitive, and each is given once at most", err)
		}
	}
}

// explain says what else a value of the wrong type may be.
func explain(err error) error {
	if strings.Contains(err.Error(), "cannot unmarshal bool into") {
		err = fmt.Errorf("%w: YAML takes On, Off, Yes and No for true and false; put a text in quotes", err)
	}
	return err
}

// Controller returns the settings for that controller, and whether it is listed.
func (s *Settings) Controller(name string) (ControllerSettings, bool) {
	for _, c := range s.Controllers {
		if c.Name == name {
			return c, true
		}
	}
	return ControllerSettings{}, false
}

// SettingsFile is a settings file that is read again when it changes.
type SettingsFile struct {
	path           string
	defaultWorkers map[string]int

	lock sync.Mutex
	// data is what was last in the file, or why it could not be read.
	data    string
	current *Settings
	// changed is closed when current is replaced.
	changed chan struct{}
}

// NewSettingsFile reads the file at path, which must be valid; without a path the defaults apply.
// ParseSettings says what defaultWorkers are.
func NewSettingsFile(path string, defaultWorkers map[string]int) (*SettingsFile, error) {
	f := &SettingsFile{path: path, defaultWorkers: defaultWorkers, changed: make(chan struct{})}
	var err error
	if path == "" {
		f.current, err = ParseSettings(nil, defaultWorkers)
	} else if f.data, err = f.read(); err == nil {
		f.current, err = ParseSettings([]byte(f.data), defaultWorkers)
	}
	if err != nil {
		return nil, fmt.Errorf("ring settings %s: %w", path, err)
	}
	return f, nil
}

// read returns what is in the file. An empty one is refused: it is most likely
// being written. So is one of more than maxSettings.
func (f *SettingsFile) read() (string, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxSettings+1))
	switch {
	case err != nil:
	case len(data) > maxSettings:
		return "", fmt.Errorf("the file has more than %d bytes, which no settings have", maxSettings)
	case len(bytes.TrimSpace(data)) == 0:
		err = errors.New("the file is empty; for the defaults write {}")
	}
	return string(data), err
}

// Get returns the settings in force, and a channel that is closed when they change.
func (f *SettingsFile) Get() (*Settings, <-chan struct{}) {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.current, f.changed
}

// Watch reads the file again whenever it changes, until ctx ends. A file that is
// unreadable or invalid changes nothing.
func (f *SettingsFile) Watch(ctx context.Context) {
	if f.path == "" {
		return
	}
	wait.UntilWithContext(ctx, f.readAgain, settingsPollInterval)
}

func (f *SettingsFile) readAgain(ctx context.Context) {
	logger := klog.FromContext(ctx)
	data, err := f.read()
	if err != nil {
		data = err.Error()
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	if data == f.data {
		return
	}
	f.data = data
	if err != nil {
		logger.Error(err, "Could not read the ring's settings; the last valid ones stay in force", "path", f.path)
		return
	}
	settings, err := ParseSettings([]byte(data), f.defaultWorkers)
	if err != nil {
		logger.Error(err, "The ring's settings are invalid; the last valid ones stay in force", "path", f.path)
		return
	}
	logger.Info("Read the ring's settings again", "path", f.path)
	f.current = settings
	close(f.changed)
	f.changed = make(chan struct{})
}
