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
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/ring/balance"
	"k8s.io/client-go/tools/ring/member"
	"k8s.io/klog/v2"
)

// retryPeriod is how long to wait after a ring could not be joined.
const retryPeriod = 5 * time.Second

// ProcessConfig configures a Process.
type ProcessConfig struct {
	// HolderIdentity names host and process, for people. Required.
	HolderIdentity string
	// Settings say which controllers the process runs. Required.
	Settings *SettingsFile
	// EventSource names who tells of the rings in events. Required.
	EventSource string
	// Leadership says who leads. The rings leave to the leader what it runs itself. Default: nobody
	// leads, ever.
	Leadership member.Leadership
	// Exit is told why the process should end, with its part in that ring: work never ends, and only
	// that lets go of what it holds; or etcd was restored, and what the process has seen is of another
	// history. The ring is "" where the process is on none. Required.
	Exit func(ring, reason string)
}

// Process keeps a process on rings, with those of their controllers that the settings list. Its
// methods may be called from any goroutine.
type Process struct {
	ProcessConfig
	// Made is when NewProcess was called.
	Made time.Time

	histories *member.Histories
	heap      *member.Heap
	client    *rest.Config
	core      corev1.CoreV1Interface
	presences *Presences

	lock sync.Mutex
	// members has the process's last part in each ring, and joined says where that goes on.
	members   map[string]*member.Member
	joined    map[string]bool
	abandoned bool
}

// Ring is a ring that a Process may be on.
type Ring struct {
	Name string
	// Controllers are the names of those that the process may run on it.
	Controllers []string
	// Begin makes what works on the ring with these of its controllers, whenever the process is to
	// take part in it. What works lives as long as ctx.
	Begin func(ctx context.Context, controllers []string) (*Part, error)
}

// Part is what works on a ring while the process takes part in it.
type Part struct {
	// Config has what the controllers bring: Controllers, Governs, Gate, Sources, Describe and
	// Metrics, and Workers where the program fixes them. The Process fills in the rest.
	Config member.Config
	// SetWorkers, if set, is called with the number of workers that the settings give a controller,
	// and again when that changes.
	SetWorkers func(controller string, workers int)
	// Run works until ctx ends, which is when the process has left the ring, and returns when all has
	// ended. Where the process cannot take part, ctx has ended when Run is called.
	Run func(ctx context.Context)
}

// NewProcess returns a Process. Connect has to be called before it takes part in a ring.
func NewProcess(cfg ProcessConfig) *Process {
	p := &Process{ProcessConfig: cfg, Made: time.Now(), heap: member.NewHeap(), members: map[string]*member.Member{}, joined: map[string]bool{}}
	p.histories = member.NewHistories(p.diverge)
	return p
}

// WrapTransport has the process notice that etcd was restored, by the answers that a client gets.
// Every client of it should be wrapped.
func (p *Process) WrapTransport(rt http.RoundTripper) http.RoundTripper {
	return p.histories.WrapTransport(rt)
}

// Connect says how the API server is reached for the registry, for presences and for events. It
// fails where that cannot be.
func (p *Process) Connect(client *rest.Config) (err error) {
	p.client = rest.CopyConfig(client)
	if p.core, err = corev1.NewForConfig(p.client); err != nil {
		return fmt.Errorf("making a client for events: %w", err)
	}
	p.presences, err = NewPresences(rest.CopyConfig(client))
	return err
}

// Listed returns those of these controllers that the settings list now.
func (p *Process) Listed(controllers []string) []string {
	settings, _ := p.Settings.Get()
	return listed(settings, controllers)
}

func listed(settings *Settings, controllers []string) []string {
	return slices.DeleteFunc(slices.Clone(controllers), func(name string) bool {
		_, ok := settings.Controller(name)
		return !ok
	})
}

// Run keeps the process on the ring, for as long as the settings list any of its controllers, until
// ctx ends, and then leaves it in good order: it returns when another instance has the range, after
// two leases at the latest. What fails is logged, and tried again.
func (p *Process) Run(ctx context.Context, r Ring) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "ring", r.Name)
	ctx = klog.NewContext(ctx, logger)
	events := NewEventBroadcaster(context.WithoutCancel(ctx))
	defer events.Shutdown()
	events.StartRecordingToSink(&corev1.EventSinkImpl{Interface: p.core.Events("")})
	recorder := events.NewRecorder(scheme.Scheme, v1.EventSource{Component: p.EventSource})
	for ctx.Err() == nil && !p.Abandoned() {
		settings, changed := p.Settings.Get()
		controllers := listed(settings, r.Controllers)
		var retry <-chan time.Time
		if len(controllers) == 0 {
			logger.Info("Not on the ring: the settings list none of its controllers")
		} else if err := p.takePart(ctx, r, controllers, settings, recorder); err != nil {
			logger.Error(err, "Could not take part in the ring; will try again", "controllers", controllers)
			retry = time.After(retryPeriod)
		} else {
			continue
		}
		select {
		case <-changed:
		case <-retry:
		case <-ctx.Done():
		}
	}
}

// takePart works on the ring until ctx ends or the settings list other controllers. They work on
// until the process has left the ring.
func (p *Process) takePart(ctx context.Context, r Ring, controllers []string, settings *Settings, events member.Events) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	part, err := r.Begin(work, controllers)
	if err != nil {
		return err
	}
	instance, err := p.newMember(r, part, settings, events)
	if err != nil || !p.joins(r.Name, instance) {
		stop()
		part.Run(work)
		return err
	}
	defer p.left(r.Name)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { part.Run(work) })
	onRing, leave := context.WithCancel(ctx)
	defer leave()
	wg.Go(func() { p.follow(onRing, r, controllers, leave, part.SetWorkers) })
	instance.Run(onRing)
	return nil
}

// newMember returns the process's part in the ring, as an instance of it.
func (p *Process) newMember(r Ring, part *Part, settings *Settings, events member.Events) (*member.Member, error) {
	cfg := part.Config
	var err error
	if cfg.Client, err = NewRegistry(rest.CopyConfig(p.client), cfg.Gate); err != nil {
		return nil, err
	}
	cfg.Events = events
	if settings.Presence == PresenceEnabled {
		cfg.Presences = p.presences
	}
	cfg.Ring, cfg.HolderIdentity, cfg.Leadership = r.Name, p.HolderIdentity, p.Leadership
	cfg.LeaseDuration, cfg.Heap = time.Duration(settings.LeaseDuration), p.heap
	cfg.Exit = func(reason string) { p.Exit(r.Name, reason) }
	cfg.Capacity = func() int64 {
		settings, _ := p.Settings.Get()
		return settings.Limit()
	}
	cfg.Balance = func() *balance.Config {
		settings, _ := p.Settings.Get()
		return settings.Balance.Policy()
	}
	if cfg.Workers == nil {
		cfg.Workers = func(name string) int {
			settings, _ := p.Settings.Get()
			controller, _ := settings.Controller(name)
			return controller.Workers
		}
	}
	return member.New(cfg)
}

// follow applies the settings as they change: the numbers of workers, and which controllers the
// process runs on the ring, for which it leaves.
func (p *Process) follow(ctx context.Context, r Ring, controllers []string, leave func(), setWorkers func(controller string, workers int)) {
	for {
		settings, changed := p.Settings.Get()
		if now := listed(settings, r.Controllers); !slices.Equal(now, controllers) {
			klog.FromContext(ctx).Info("Leaving the ring: the settings list other controllers", "before", controllers, "now", now)
			leave()
			return
		}
		if setWorkers != nil {
			for _, name := range controllers {
				controller, _ := settings.Controller(name)
				setWorkers(name, controller.Workers)
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// joins notes that instance is about to run. It says whether it may.
func (p *Process) joins(ring string, instance *member.Member) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.abandoned {
		return false
	}
	p.members[ring], p.joined[ring] = instance, true
	return true
}

func (p *Process) left(ring string) {
	p.lock.Lock()
	defer p.lock.Unlock()
	delete(p.joined, ring)
}

// part returns the process's last part in the ring, nil if it has taken none.
func (p *Process) part(ring string) *member.Member {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.members[ring]
}

// parts returns the process's last parts in its rings, in order of the rings' names; those alone
// that go on, if only they are asked for.
func (p *Process) parts(joined bool) []*member.Member {
	p.lock.Lock()
	defer p.lock.Unlock()
	var parts []*member.Member
	for _, name := range slices.Sorted(maps.Keys(p.members)) {
		if !joined || p.joined[name] {
			parts = append(parts, p.members[name])
		}
	}
	return parts
}

// Snapshots returns what the process knows of its part in each ring that it takes part in, in order
// of the rings' names.
func (p *Process) Snapshots() []member.Snapshot {
	snapshots := []member.Snapshot{}
	for _, m := range p.parts(true) {
		snapshots = append(snapshots, m.Snapshot())
	}
	return snapshots
}

// Abandoned says whether Abandon was called.
func (p *Process) Abandoned() bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.abandoned
}

// Abandon takes the process off its rings at once, whatever is in work, for a process that is about
// to end. Its ranges wait for no lease then, and it joins no ring any more.
func (p *Process) Abandon(ctx context.Context) error {
	p.lock.Lock()
	p.abandoned = true
	p.lock.Unlock()
	// One that could not leave in time has its record still.
	parts := p.parts(false)
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i, m := range parts {
		wg.Go(func() { errs[i] = m.Abandon(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// diverge ends the process's parts in its rings, as etcd has another history than what it has seen.
func (p *Process) diverge(reason string) {
	for _, m := range p.parts(false) {
		m.Diverge(context.Background(), reason)
	}
	p.Exit("", reason)
}
