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
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/fence"
)

// A world is a ring of real members over a registry that can be slow, away or wrong, with the
// truth about who works on what. The files driver_*_test.go build it up:
//
//	world        the ring, its keys, and what was written to them by whom
//	network      how requests and watches fare
//	client       a process's way to the registry
//	instance     a process: gate, member, controllers, and what befalls it
//	worker       what its workers do
//	source       its caches
//	leader       who runs what the ring does not
//	faults       what goes wrong
//	promise      how much of it an instance has to outlive
//	judge        which keys had no worker, and for how long
//	explanation  what explains it
//	chronicle    what happened, for whoever looks for the cause
//	exploration  random histories
//	scenes       histories that were found, each with the sentence that it disproves

const (
	// worldLease is that of all processes.
	worldLease = 15 * time.Second
	// worldKeys is how many keys have objects.
	worldKeys = 24
	// worldWorkers is how many workers each controller of a process has.
	worldWorkers = 2
	// maxViolations is how many violations of one history are told.
	maxViolations = 5
)

// worldControllers are those of every process.
var worldControllers = []string{"deployment-controller", "replicaset-controller"}

// task is what a worker works on.
type task struct {
	controller string
	key        int64
}

func (t task) String() string { return hashkey.Format(t.key) + " of the " + t.controller }

// dice draws at random from a seed and the name of who draws, so that what one draws does not
// depend on how often another has. It is safe for concurrent use.
type dice struct {
	lock   sync.Mutex
	random *rand.Rand
}

func newDice(seed int64, name string) *dice {
	hash := fnv.New64a()
	hash.Write([]byte(name))
	return &dice{random: rand.New(rand.NewPCG(uint64(seed), hash.Sum64()))}
}

// below draws a number from 0 to n-1.
func (d *dice) below(n int) int {
	d.lock.Lock()
	defer d.lock.Unlock()
	return d.random.IntN(n)
}

// chance is true with that probability.
func (d *dice) chance(p float64) bool {
	d.lock.Lock()
	defer d.lock.Unlock()
	return d.random.Float64() < p
}

// upTo draws a time above zero.
func (d *dice) upTo(longest time.Duration) time.Duration {
	return time.Duration(d.below(int(longest/time.Microsecond))+1) * time.Microsecond
}

func pick[T any](d *dice, from []T) T { return from[d.below(len(from))] }

type world struct {
	t         *testing.T
	seed      int64
	faults    faults
	registry  *registry
	network   *network
	truth     truth
	leaders   *leaders
	chronicle *chronicle
	judge     *judge
	keys      []int64
	// fillTime is how long a cache takes to fill ranges that are new to it.
	fillTime func(*informer, hashkey.Ranges) time.Duration
	// leaseReads is how much longer reads of the Lease take.
	leaseReads time.Duration
	// quiet says that there is no work but what never ends.
	quiet atomic.Bool
	// disturbed says that faults happen. calm is closed when they have stopped for good.
	disturbed atomic.Bool
	calm      chan struct{}
	// stuck is the task whose work never ends while the world is disturbed.
	stuck atomic.Pointer[task]

	lock      sync.Mutex
	processes []*process
	byHolder  map[string]*process
	// left are the registrations that were deleted by their own instances, removed those that a
	// person has deleted at once.
	left, removed map[types.UID]bool
	violations    int
	running       sync.WaitGroup
}

// truth is what was stored by whom, and who works on what.
type truth struct {
	lock     sync.Mutex
	sequence int64
	// stored is the sequence of the last write of each registration.
	stored map[task]map[types.UID]int64
	// working are the processes that work on a task, with their registrations.
	working map[task]map[*process]types.UID
	// led are the controllers that the leader works on.
	led map[string]bool

	entered, written, refused int
}

// inWorld runs a history in a bubble, and has everything in it end.
func inWorld(t *testing.T, seed int64, faults faults, history func(*world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed, faults)
		defer w.end()
		history(w)
	})
}

func newWorld(t *testing.T, seed int64, faults faults) *world {
	w := &world{
		t: t, seed: seed, faults: faults, registry: newRegistry(t), chronicle: &chronicle{}, calm: make(chan struct{}),
		byHolder: map[string]*process{}, left: map[types.UID]bool{}, removed: map[types.UID]bool{},
		truth: truth{stored: map[task]map[types.UID]int64{}, working: map[task]map[*process]types.UID{}, led: map[string]bool{}},
	}
	for n := range int64(worldKeys) {
		key := hashkey.Max/worldKeys*n + 12345
		w.keys = append(w.keys, key)
		for _, c := range worldControllers {
			what := task{c, key}
			w.truth.stored[what], w.truth.working[what] = map[types.UID]int64{}, map[*process]types.UID{}
		}
	}
	w.fillTime = w.drawFillTime
	w.network = newNetwork(w)
	w.leaders = newLeaders(w)
	w.judge = newJudge(w)
	return w
}

// form has that many processes share the ring, and waits until each of them has a part.
func (w *world) form(n int, change ...func(*Config)) {
	for i := range n {
		w.start("host"+strconv.Itoa(i), change...)
		time.Sleep(5 * time.Second)
	}
	eventually(w.t, "all processes have a part of the ring", func() bool { return w.unrest() == "" })
	w.judge.start()
}

// end ends all processes, whatever they do.
func (w *world) end() {
	w.settleDown()
	w.judge.end()
	for _, p := range w.all() {
		p.kill()
	}
	w.running.Wait()
	// What is on its way arrives.
	time.Sleep(time.Minute)
}

// settleDown ends all faults.
func (w *world) settleDown() {
	select {
	case <-w.calm:
		return
	default:
	}
	w.disturbed.Store(false)
	w.stuck.Store(nil)
	close(w.calm)
	w.network.settleDown()
	w.chronicle.note(nil, "all faults stop")
}

// violation tells of something that must not happen.
func (w *world) violation(format string, args ...any) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.violations++
	text := fmt.Sprintf(format, args...)
	w.chronicle.note(nil, "VIOLATION: %s", text)
	if w.violations <= maxViolations {
		w.t.Errorf("seed %d, %v: %s", w.seed, sinceEpoch(), text)
	}
}

func sinceEpoch() time.Duration { return time.Since(epoch).Round(time.Millisecond) }

// all returns every process that was ever started.
func (w *world) all() []*process {
	w.lock.Lock()
	defer w.lock.Unlock()
	return append([]*process{}, w.processes...)
}

// living returns the processes that run and were not asked to stop.
func (w *world) living() []*process {
	var out []*process
	for _, p := range w.all() {
		if p.lives() && p.stoppedAt().IsZero() {
			out = append(out, p)
		}
	}
	return out
}

// of returns the process whose registration that record is.
func (w *world) of(r ring.Record) *process {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.byHolder[r.Holder]
}

// view returns the ring as it is now.
func (w *world) view() *ring.View {
	w.registry.lock.Lock()
	defer w.registry.lock.Unlock()
	return w.viewLocked(len(w.registry.states) - 1)
}

// viewLocked returns the ring as of a revision. The registry must be locked.
func (w *world) viewLocked(revision int) *ring.View {
	var records []ring.Record
	for _, instance := range w.registry.states[revision] {
		if instance.Spec.Ring != "workloads" {
			continue
		}
		r, err := ring.NewRecord(&instance)
		if err != nil {
			w.t.Error(err)
		}
		records = append(records, r)
	}
	return ring.NewView(int64(revision), records...)
}

// edit changes a record's spec as a person does, if it is still there.
func (w *world) edit(name string, change func(*shardingv1alpha1.ControllerInstance)) {
	w.registry.lock.Lock()
	defer w.registry.lock.Unlock()
	instance, ok := w.registry.newest()[name]
	if !ok {
		return
	}
	changed := instance.DeepCopy()
	change(changed)
	changed.Generation++
	w.registry.putLocked(changed)
}

// registeredLocked says whether the registry has that registration. It must be locked.
func (w *world) registeredLocked(uid types.UID) bool {
	for _, r := range w.registry.newest() {
		if r.UID == uid {
			return true
		}
	}
	return false
}

// workPause is how long a worker has nothing to do.
func (w *world) workPause(d *dice) time.Duration {
	if w.quiet.Load() {
		return time.Second
	}
	return 40*time.Millisecond + d.upTo(80*time.Millisecond)
}

// nextTask draws what a worker of that controller is to work on; false: nothing.
func (w *world) nextTask(controller string, d *dice) (task, bool) {
	if !w.quiet.Load() {
		return task{controller, pick(d, w.keys)}, true
	}
	if stuck := w.stuck.Load(); stuck != nil {
		return *stuck, stuck.controller == controller
	}
	return task{}, false
}

// ends notes that a registration ends, by its own instance or not.
func (w *world) ends(uid types.UID, itself bool) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if itself {
		w.left[uid] = true
	} else {
		w.removed[uid] = true
	}
}

// begin notes that a process begins to work on a task, and checks that it may.
func (w *world) begin(p *process, self fence.Identity, what task) {
	w.registry.lock.Lock()
	defer w.registry.lock.Unlock()
	alive := w.registeredLocked(self.UID)
	t := &w.truth
	t.lock.Lock()
	defer t.lock.Unlock()
	t.entered++
	for other, uid := range t.working[what] {
		if alive && other != p && other.believes() && w.registeredLocked(uid) {
			w.violation("%v and %v work on %v at once", p, other, what)
		}
	}
	t.working[what][p] = self.UID
	if !alive {
		return
	}
	if t.led[what.controller] {
		w.violation("%v works on %v, which the leader does", p, what)
	}
	for _, s := range p.sources {
		asOf, held := s.asOfKey(what.key)
		if !held {
			w.violation("%v works on %v, which its %s lack", p, what, s.name)
		}
		for uid, at := range t.stored[what] {
			if uid != self.UID && at > asOf {
				w.violation("%v works on %v with %s as of %d, but %s stored something at %d", p, what, s.name, asOf, uid, at)
			}
		}
	}
}

// finish notes that it has ended.
func (w *world) finish(p *process, what task) {
	w.truth.lock.Lock()
	defer w.truth.lock.Unlock()
	delete(w.truth.working[what], p)
}

// arrive stores a write of a worker, unless the fence refuses it.
func (w *world) arrive(self fence.Identity, what task) {
	w.registry.lock.Lock()
	defer w.registry.lock.Unlock()
	t := &w.truth
	t.lock.Lock()
	defer t.lock.Unlock()
	record, ok := w.registry.newest()[self.Name]
	if !ok || record.UID != self.UID || record.Status.Epoch > self.Epoch {
		t.refused++
		return
	}
	if owner, ok := w.viewLocked(len(w.registry.states) - 1).Owner(what.key); !ok || owner.Name != self.Name {
		w.violation("a write of %s at epoch %d to %v is stored, which %q owns", self.Name, self.Epoch, what, owner.Name)
	}
	if t.led[what.controller] {
		w.violation("a write of %s to %v is stored, which the leader works on", self.Name, what)
	}
	t.sequence++
	t.written++
	t.stored[what][self.UID] = t.sequence
}

// now returns the sequence of the last write of anybody.
func (t *truth) now() int64 {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.sequence
}

// unrest says what is not as it is to be at the end; "" if the world is at rest.
func (w *world) unrest() string {
	view := w.view()
	for _, r := range view.Records() {
		if r.Key == nil || r.Next != nil || r.Gives != nil {
			return fmt.Sprintf("%s has key %s, next key %s, and gives %v", r.Name, hashkey.FormatOptional(r.Key), hashkey.FormatOptional(r.Next), r.Gives)
		}
	}
	living := w.living()
	if len(living) != len(view.Records()) {
		return fmt.Sprintf("%d processes have %d records", len(living), len(view.Records()))
	}
	for _, c := range worldControllers {
		for _, key := range w.keys {
			if n := len(serving(living, task{c, key})); n != 1 {
				return fmt.Sprintf("%v has %d workers", task{c, key}, n)
			}
		}
	}
	return ""
}

// serving returns the processes that would work on a task now.
func serving(among []*process, what task) []*process {
	var out []*process
	for _, p := range among {
		if p.believes() && p.gate.For(what.controller).Serves(what.key) {
			out = append(out, p)
		}
	}
	return out
}
