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
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/ring"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"
)

// Most tests run in a bubble of testing/synctest, whose time passes only while all
// goroutines wait. A sleep there takes no time, and times are exact.

// controllerName is that of every instance's controller.
const controllerName = "replicaset-controller"

// listed is what the records of instances have in common that run the same controllers.
var listed = []string{controllerName}

// lease is that of every instance that sets no other. A third of it is two seconds, and
// confidence in it lasts for five.
const lease = 6 * time.Second

var (
	low  = hashkey.Between(hashkey.Max, 99)
	high = hashkey.Between(99, 199)
	both = low.Union(high)
)

// journal holds what happened, in order. It is safe for concurrent use.
type journal struct {
	lock  sync.Mutex
	lines []string
}

func (j *journal) note(format string, args ...any) {
	j.lock.Lock()
	defer j.lock.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

// take returns the lines since it was last called.
func (j *journal) take() []string {
	j.lock.Lock()
	defer j.lock.Unlock()
	lines := j.lines
	j.lines = nil
	return lines
}

// expect compares the lines since the last call with want.
func (j *journal) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := j.take(); !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// instance is a member with all that it works with. calls holds what its controller and
// its sources are told, told what its metrics and events are.
type instance struct {
	*Member
	t           *testing.T
	registry    *registry
	gate        *Gate
	controller  *fakeController
	sources     []*fakeSource
	calls, told *journal
	// heap is what its process is said to hold after that many collections.
	heap, collections uint64
}

// newInstance returns an instance with two sources that hold all that they follow.
func newInstance(t *testing.T, r *registry, change ...func(*Config)) *instance {
	t.Helper()
	i := &instance{t: t, registry: r, gate: NewGate(clock.RealClock{}), calls: &journal{}, told: &journal{}}
	i.controller = &fakeController{instance: i}
	for _, name := range []string{"pods", "sets"} {
		i.sources = append(i.sources, &fakeSource{instance: i, name: name, changed: make(chan struct{}, 1)})
	}
	reports := &reports{journal: i.told}
	cfg := Config{
		Client:         &client{registry: r, gate: i.gate},
		Ring:           "workloads",
		Controllers:    map[string]Controller{controllerName: i.controller},
		Governs:        []shardingv1alpha1.Governs{{Controller: "*", Resource: "pods", By: shardingv1alpha1.GoverningKeyController}},
		HolderIdentity: "host_1",
		LeaseDuration:  lease,
		Gate:           i.gate,
		Sources:        []Source{i.sources[0], i.sources[1]},
		Heap:           newHeap(func() (uint64, uint64) { return i.heap, i.collections }),
		Metrics:        reports,
		Events:         reports,
	}
	for _, f := range change {
		f(&cfg)
	}
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	i.Member = m
	r.lock.Lock()
	r.instances = append(r.instances, i)
	r.lock.Unlock()
	return i
}

// door returns that of the instance's controller.
func (i *instance) door() *Door { return i.gate.For(controllerName) }

// slow makes the sources hold nothing and leave their questions to the test.
func (i *instance) slow() *instance {
	for _, s := range i.sources {
		s.slow = true
	}
	return i
}

func testContext(t *testing.T) context.Context {
	return klog.NewContext(t.Context(), ktesting.NewLogger(t, ktesting.NewConfig()))
}

// start runs the member until stop is called or the test ends. done is closed when Run
// has returned.
func (i *instance) start() (stop context.CancelFunc, done <-chan struct{}) {
	ctx, stop := context.WithCancel(testContext(i.t))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		i.Run(ctx)
	}()
	i.t.Cleanup(func() {
		stop()
		<-ended
	})
	return stop, ended
}

// registered returns a term that nothing drives but the test. Its controller's door is open.
func (i *instance) registered(ctx context.Context) *term {
	i.t.Helper()
	term, err := i.register(ctx)
	if err != nil {
		i.t.Fatal(err)
	}
	in := term.rosterInput()
	in.Reported = term.controllers
	for !term.duties.roster.Decide(in).Read {
	}
	term.duties.roster.Answer(ring.Leader{}, true)
	i.door().set(true)
	return term
}

// record returns a record of the ring in its newest state.
func (i *instance) record() shardingv1alpha1.ControllerInstance {
	i.t.Helper()
	self, _ := i.gate.identity()
	record, ok := i.registry.get(self.Name)
	if !ok {
		i.t.Fatalf("there is no record %q", self.Name)
	}
	return record
}

// settle waits until every goroutine waits, then carries out what was posted to the
// deciding one. It returns how much that was.
func (t *term) settle() (posted int) {
	for synctest.Wait(); len(t.events) > 0; synctest.Wait() {
		for ; len(t.events) > 0; posted++ {
			(<-t.events)()
		}
	}
	return posted
}

// hold says whether all of these keys are ready.
func (t *term) hold(ctx context.Context, ranges hashkey.Ranges, revision int64) bool {
	return t.ready(ctx, ranges, revision).Covers(ranges)
}

// eventually waits for a condition in the time of the bubble.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for range 60_000 {
		synctest.Wait()
		if condition() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("not within a minute: %s", what)
}

// fakeController checks what Controller's comments promise.
type fakeController struct {
	*instance
	lock sync.Mutex
	// prepared are the ranges that the controller was prepared for and that were not released.
	prepared hashkey.Ranges
	// acquired are all ranges that it was ever told of.
	acquired hashkey.Ranges
	// abandoned says that the member may give up work that does not end.
	abandoned bool
	// inPrepare, inAcquired and inReleased, if set, are called by Prepare, Acquired and Released.
	inPrepare, inAcquired, inReleased func()
}

// Prepare implements Controller.
func (c *fakeController) Prepare(r hashkey.Ranges) {
	if open := c.door().serving().Intersect(r); !open.Empty() {
		c.t.Errorf("Prepare was called for %v when the gate was open for %v", r, open)
	}
	c.lock.Lock()
	c.prepared = c.prepared.Union(r)
	c.lock.Unlock()
	if c.inPrepare != nil {
		c.inPrepare()
	}
}

// Acquired implements Controller.
func (c *fakeController) Acquired(_ context.Context, r hashkey.Ranges) {
	c.lock.Lock()
	prepared := c.prepared
	c.acquired = c.acquired.Union(r)
	c.lock.Unlock()
	if open := c.door().serving().Intersect(r); !prepared.Covers(open) {
		c.t.Errorf("the door is open for %v, and Prepare was called for %v", open, prepared)
	}
	c.registry.lock.Lock()
	all := slices.Clone(c.registry.instances)
	c.registry.lock.Unlock()
	lets := func(g *Gate) bool { return time.Now().Before(g.Deadline()) }
	for _, other := range all {
		if other.gate == c.gate || !lets(other.gate) || !lets(c.gate) {
			continue
		}
		if twice := other.door().serving().Intersect(c.door().serving()).Intersect(r); !twice.Empty() {
			c.t.Errorf("two gates are open for %v", twice)
		}
	}
	c.calls.note("acquired %v", r)
	if c.inAcquired != nil {
		c.inAcquired()
	}
}

// Released implements Controller.
func (c *fakeController) Released(r hashkey.Ranges) {
	c.lock.Lock()
	c.prepared = c.prepared.Minus(r)
	c.lock.Unlock()
	if !c.door().serving().Intersect(r).Empty() {
		c.t.Errorf("Released was called for %v while the gate is open for %v", r, c.door().serving())
	}
	if n := c.gate.Busy(r); n > 0 && !c.abandoned {
		c.t.Errorf("Released was called for %v while %d pieces of work are under way there", r, n)
	}
	c.calls.note("released %v", r)
	if c.inReleased != nil {
		c.inReleased()
	}
}

// fakeSource holds what it follows at once, unless it is slow: then it holds nothing,
// and the test answers each question. It checks that the gate is shut for all that it
// is told to let go.
type fakeSource struct {
	*instance
	name    string
	slow    bool
	changed chan struct{}

	// keys are those of its objects.
	keys []int64

	lock      sync.Mutex
	follow    hashkey.Ranges
	held      hashkey.Ranges
	diverged  string
	waits     string
	questions []*question
}

// question is one call of WaitFor.
type question struct {
	ctx    context.Context
	ranges hashkey.Ranges
	answer chan struct{}
}

// SetRanges implements Source.
// Keys implements Source.
func (s *fakeSource) Keys(r hashkey.Ranges) []int64 {
	var out []int64
	for _, k := range s.keys {
		if r.Contains(k) {
			out = append(out, k)
		}
	}
	return out
}

func (s *fakeSource) SetRanges(r hashkey.Ranges) {
	if !r.Covers(s.gate.serving()) {
		s.t.Errorf("source %s was told to follow %v while the gate is open for %v", s.name, r, s.gate.serving())
	}
	s.calls.note("%s follow %v", s.name, r)
	s.lock.Lock()
	defer s.lock.Unlock()
	s.follow = r
	if !s.slow {
		s.held = r
		s.signal()
	}
}

func (s *fakeSource) signal() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Held implements Source.
func (s *fakeSource) Held() hashkey.Ranges {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.held
}

// hold sets what the source holds.
func (s *fakeSource) hold(r hashkey.Ranges) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.held = r
	s.signal()
}

// HeldChanged implements Source.
func (s *fakeSource) HeldChanged() <-chan struct{} { return s.changed }

// Diverged implements Source.
func (s *fakeSource) Diverged() string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.diverged
}

// Waits implements Source.
func (s *fakeSource) Waits() string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.waits
}

func (s *fakeSource) wait(what string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.waits = what
}

func (s *fakeSource) diverge(reason string) {
	s.lock.Lock()
	s.diverged = reason
	s.lock.Unlock()
	s.signal()
}

// WaitFor implements Source.
func (s *fakeSource) WaitFor(ctx context.Context, r hashkey.Ranges) error {
	q := &question{ctx: ctx, ranges: r, answer: make(chan struct{})}
	s.lock.Lock()
	s.questions = append(s.questions, q)
	if !s.slow {
		close(q.answer)
	}
	s.lock.Unlock()
	select {
	case <-q.answer:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// asked returns the questions so far.
func (s *fakeSource) asked() []*question {
	s.lock.Lock()
	defer s.lock.Unlock()
	return slices.Clone(s.questions)
}

// reports writes down what metrics and events are told, but for measured times.
type reports struct {
	noMetrics
	journal *journal
}

func (r *reports) Registered()            { r.journal.note("registered") }
func (r *reports) Renewed(result string)  { r.journal.note("renewal %s", result) }
func (r *reports) News(result string)     { r.journal.note("news %s", result) }
func (r *reports) Refused(by string)      { r.journal.note("refused by %s", by) }
func (r *reports) Balanced(result string) { r.journal.note("balance %s", result) }
func (r *reports) Stuck(_ string, objects int) {
	if objects > 0 {
		r.journal.note("%d stuck", objects)
	}
}
func (r *reports) Load(weight, busy int64) {
	r.journal.note("weight %d, busy %d", weight, busy)
}
func (r *reports) HandedOver(kind ring.Kind, result string) { r.journal.note("%s %s", kind, result) }
func (r *reports) Eventf(_ runtime.Object, _, reason, _ string, _ ...any) {
	r.journal.note("event %s", reason)
}

// has says whether a line was noted since take was last called.
func (j *journal) has(line string) bool {
	j.lock.Lock()
	defer j.lock.Unlock()
	return slices.Contains(j.lines, line)
}
