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
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/ring/member"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// missingPeriod is how often a Host says that it waits for the program, missingFirst how long it
	// waits before it does.
	missingPeriod = 30 * time.Second
	missingFirst  = 5 * time.Second
)

// Config configures a Host.
type Config struct {
	// REST is how the API server is reached. Required.
	REST *rest.Config
	// Ring is the name of the ring, a DNS label. All processes that share the objects name the same,
	// and each of them runs the same Controllers. Required.
	Ring string
	// Controllers are those that the process runs on the ring. Required.
	Controllers []Controller
	// Reads says by which hash key the objects of the program's informers are divided among the
	// instances, beside and before what Controllers says. An informer of anything else holds all
	// objects, and no work waits for it. New refuses a key by which an instance would lack what
	// belongs to its own objects.
	Reads []Read
	// HolderIdentity names host and process, for people. It begins with HOST:PORT_ where Ringz is
	// served there. Default: HOST_PID_RANDOM.
	HolderIdentity string
	// SettingsFile is the path of the settings, which are read again when they change. Default:
	// there is no file, and the defaults of Settings apply.
	SettingsFile string
	// Metrics takes what is counted and measured, such as that of the package
	// k8s.io/component-base/metrics/prometheus/controllerring. Default: nobody.
	Metrics member.Metrics
}

// Controller is a controller on a ring.
type Controller struct {
	// Name is the controller's name, as in spec.controllers: a DNS label. Required.
	Name string
	// Works is an example of the objects that the controller works on. No other controller of the
	// Host works on such. They are divided by their own hash keys or, if Reads says so, by those of
	// their namespaces. Required.
	Works runtime.Object
	// Owns has an example of each kind of object that the controller keeps for those that it works
	// on: they have them as their controller, and are divided by its key, or by namespace as those
	// are, if Reads says nothing else.
	Owns []runtime.Object
	// Writes says whose hash key the instance has to own for each of the controller's writes. The
	// first line that covers a resource counts; the API server refuses a write that no line covers.
	// Default: for every resource the key of the object's controller, and the object's own where it
	// has none; or, where the objects are divided by namespace, that of the namespace. Where those
	// that the controller works on may have a controller themselves, that will not do.
	Writes []Write
	// Workers is how many objects the controller works on at the same time. It tells how busy the
	// instance is. Default: 1.
	Workers int
}

// Write is a resource that the owner of a hash key writes.
type Write struct {
	// Group and Resource name the resource; * stands for all.
	Group, Resource string
	// By says whose hash key the owner has to own.
	By shardingv1alpha1.GoverningKey
}

// Whole divides nothing: each instance that has a range, or fills its caches for one, holds all
// objects. An instance without a range holds none, so what is asked before that, such as a webhook,
// must not read them; an informer that the configuration does not list holds all at any time, and
// no work waits for it.
const Whole = "*"

// Read is what an informer of the program holds. A controller begins to work on a range only when
// all of these informers hold it. The program must ask for each of them.
type Read struct {
	// Object is an example of the objects, as the program asks for the informer: of their type and,
	// if that is PartialObjectMetadata or Unstructured, of their kind.
	Object runtime.Object
	// By is the field path of the hash key that has to lie in the instance's range, such as
	// sharding.ControllerHashKeyPath, or Whole.
	By string
}

// Host runs a process's controllers on a ring. Its methods may be called from any goroutine.
type Host struct {
	cfg     Config
	process *Process
	gate    *member.Gate
	// reads and controllers are in the order of the configuration.
	reads       []*informed
	controllers []*controller

	// exit has why the process should end.
	exit chan error

	// filtering is held while filters are opened and shut: controllers share them.
	filtering sync.Mutex

	lock sync.Mutex
	// missing is what the program has not asked for yet: Start waits for it.
	missing map[string]struct{}
	// complete is closed when nothing is missing.
	complete chan struct{}
	// started says that Start was called.
	started bool
}

// New checks cfg, fills in its defaults and returns a Host. It reads the settings, and asks nothing
// of the API server. It fails, too, where no client can be made of cfg.REST.
func New(cfg Config) (*Host, error) {
	if cfg.REST == nil || cfg.Ring == "" || len(cfg.Controllers) == 0 {
		return nil, errors.New("a ring's host needs REST, Ring and Controllers")
	}
	h := &Host{cfg: cfg, gate: member.NewGate(clock.RealClock{}), exit: make(chan error, 1), missing: map[string]struct{}{}, complete: make(chan struct{})}
	for _, read := range cfg.Reads {
		if err := h.addRead(read, false); err != nil {
			return nil, err
		}
	}
	workers := map[string]int{}
	for _, described := range cfg.Controllers {
		c, err := h.newController(described)
		if err != nil {
			return nil, err
		}
		if _, twice := workers[described.Name]; twice {
			return nil, fmt.Errorf("Controllers lists %q twice", described.Name)
		}
		// The program fixes them.
		workers[described.Name] = 0
		h.controllers = append(h.controllers, c)
		h.missing["the queue of "+described.Name] = struct{}{}
	}
	if err := h.checkReads(); err != nil {
		return nil, err
	}
	settings, err := NewSettingsFile(cfg.SettingsFile, workers)
	if err != nil {
		return nil, err
	}
	if cfg.HolderIdentity == "" {
		name, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("finding a HolderIdentity: %w", err)
		}
		h.cfg.HolderIdentity = fmt.Sprintf("%s_%d_%s", name, os.Getpid(), utilrand.String(5))
	}
	h.process = NewProcess(ProcessConfig{HolderIdentity: h.cfg.HolderIdentity, Settings: settings, EventSource: cfg.Ring, Exit: h.exitFor})
	h.cfg.REST = rest.CopyConfig(cfg.REST)
	h.cfg.REST.Wrap(h.process.WrapTransport)
	if err := h.process.Connect(h.cfg.REST); err != nil {
		return nil, err
	}
	return h, nil
}

// NeedLeaderElection says that the ring needs no leader. Together with Start it makes the Host a
// Runnable of controller-runtime's manager.
func (h *Host) NeedLeaderElection() bool { return false }

// Start takes part in the ring until ctx ends, and then leaves it in good order: it returns when
// another instance has the range, after two leases at the latest. The informers and the controllers
// must go on until then. It begins when the program has asked for all informers of what its
// controllers work on, own and read, and for their queues. It fails where work goes on for a lease
// after the record of the instance has gone, or etcd was restored to an earlier state: then the
// process should end, since it takes no part any more. What else fails is logged, and tried again.
func (h *Host) Start(ctx context.Context) error {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "ring", h.cfg.Ring)
	ctx = klog.NewContext(ctx, logger)
	h.lock.Lock()
	again := h.started
	h.started = true
	h.lock.Unlock()
	if again {
		return errors.New("the ring's host was started before: make another one")
	}
	if !h.waitForProgram(ctx) {
		return nil
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { h.process.Settings.Watch(watching) })
	left := make(chan struct{})
	go func() {
		defer close(left)
		// Where the process should end it takes no part any more.
		h.process.Run(watching, Ring{Name: h.cfg.Ring, Controllers: h.names(), Begin: func(_ context.Context, controllers []string) (*Part, error) {
			return h.begin(watching, controllers), nil
		}})
	}()
	select {
	case <-left:
		return nil
	case err := <-h.exit:
		return err
	}
}

// exitFor has Start fail for that reason.
func (h *Host) exitFor(_, reason string) {
	select {
	case h.exit <- fmt.Errorf("this process has to end: %s", reason):
	default: // it is to fail already
	}
}

// waitForProgram waits until the program has asked for all that it must. It returns false if ctx
// ends.
func (h *Host) waitForProgram(ctx context.Context) bool {
	for pause := missingFirst; ; pause = missingPeriod {
		select {
		case <-h.complete:
			return true
		case <-ctx.Done():
			return false
		case <-time.After(pause):
			klog.FromContext(ctx).Error(nil, "Not on the ring: it waits until the program has asked the Host for all that its configuration lists", "missing", h.lacks())
		}
	}
}

// lacks lists what the program has not asked for yet.
func (h *Host) lacks() []string {
	h.lock.Lock()
	defer h.lock.Unlock()
	var names []string
	for name := range h.missing {
		names = append(names, name)
	}
	return names
}

// asked notes that the program has asked for something that Start waits for.
func (h *Host) asked(name string) {
	h.lock.Lock()
	defer h.lock.Unlock()
	if _, ok := h.missing[name]; !ok {
		return
	}
	if delete(h.missing, name); len(h.missing) == 0 {
		close(h.complete)
	}
}

func (h *Host) names() []string {
	var names []string
	for _, c := range h.controllers {
		names = append(names, c.Name)
	}
	return names
}

// begin returns what works on the ring with these controllers. The program's informers and
// controllers go on when the process has left it, until ctx ends.
func (h *Host) begin(ctx context.Context, controllers []string) *Part {
	part := &Part{Config: member.Config{Controllers: map[string]member.Controller{}, Gate: h.gate, Describe: h.describe, Metrics: h.cfg.Metrics}}
	workers := map[string]int{}
	for _, c := range h.controllers {
		if !slices.Contains(controllers, c.Name) {
			continue
		}
		part.Config.Controllers[c.Name], workers[c.Name] = c, max(c.Workers, 1)
		for _, w := range c.Writes {
			part.Config.Governs = append(part.Config.Governs, shardingv1alpha1.Governs{Controller: c.Name, Group: w.Group, Resource: w.Resource, By: w.By})
		}
	}
	part.Config.Workers = func(name string) int { return workers[name] }
	for _, i := range h.reads {
		part.Config.Sources = append(part.Config.Sources, i.asSource())
	}
	part.Run = func(onRing context.Context) {
		<-onRing.Done()
		// Work that outlives this part must see neither the next one nor an empty store.
		err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(context.Context) (bool, error) {
			return h.gate.Busy(hashkey.All()) == 0, nil
		})
		if err == nil {
			for _, s := range part.Config.Sources {
				s.SetRanges(nil)
			}
		}
	}
	return part
}

// describe says for people what has that hash key.
func (h *Host) describe(key int64) string {
	for _, c := range h.controllers {
		if text, ok := c.subjects.Describe(key); ok {
			return text
		}
	}
	return "hash key " + hashkey.Format(key)
}

// Snapshot returns what the process knows of its part in the ring.
func (h *Host) Snapshot() member.Snapshot {
	if last := h.process.part(h.cfg.Ring); last != nil {
		return last.Snapshot()
	}
	return member.Snapshot{Ring: h.cfg.Ring, Holder: h.cfg.HolderIdentity}
}

// Ready returns nil if the process is on the ring: registered, and sure of it. It does not say that
// it has a range yet. It fits as a check for controller-runtime's readyz.
func (h *Host) Ready(*http.Request) error {
	if lacks := h.lacks(); len(lacks) > 0 {
		return fmt.Errorf("not on ring %s: the program has not asked for %s", h.cfg.Ring, strings.Join(lacks, ", "))
	}
	switch s := h.Snapshot(); {
	case s.Name == "":
		return fmt.Errorf("not registered on ring %s; the log says why", h.cfg.Ring)
	case s.Barred != "":
		return fmt.Errorf("%s on ring %s does not work: %s", s.Name, s.Ring, s.Barred)
	case s.BelievesForSeconds <= 0:
		return fmt.Errorf("%s on ring %s could not renew its record in time", s.Name, s.Ring)
	}
	return nil
}

// Abandon takes the process off the ring at once, whatever is in work, for a process that is about
// to end otherwise than by the end of Start's context. Its range waits for no lease then, and it
// joins no more.
func (h *Host) Abandon(ctx context.Context) error { return h.process.Abandon(ctx) }
