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
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/ring"
)

const (
	// judgeInterval is how often the judge looks.
	judgeInterval = 100 * time.Millisecond
	// maxUnexplained bounds how long tasks may be without a worker in a history, all together, if
	// nothing explains it: some seconds for each of the 48. What explains a moment is often a moment
	// before. Where a rule is left out it is minutes.
	maxUnexplained = 2 * time.Minute
)

// judge looks which tasks have no worker, and whether something that has gone wrong explains it.
//
// A spell is a time in which a task has no worker. At each moment of it the judge looks for an
// explanation; what has none counts. Of that, as much is taken off as a handover takes. What a
// cache takes to fill explains a moment only if the task was lost, by a death for example: where
// its owner could have gone on, it has to wait until its successor's caches are full.
type judge struct {
	world *world
	stop  context.CancelFunc
	ended chan struct{}

	// view is the ring as the judge has seen it last, served what each process served.
	view   *ring.View
	served map[*process]map[string]hashkey.Ranges
	// spells are those that last, lost says why a task's owner was lost, and last who worked on
	// each task last.
	spells map[task]*spell
	lost   map[task]string
	last   map[task]*process
	// losses are the last ones of records. held are the registrations that processes had.
	losses map[*process]loss
	held   map[types.UID]bool
	// unserved is how long tasks had no worker altogether, explained how much of it by what.
	unserved    time.Duration
	explained   map[string]time.Duration
	unexplained time.Duration
	worst       *spell
	// recordsLost tell of records that expired and had to be kept.
	recordsLost []string
}

// loss is that of a record by what has gone wrong.
type loss struct {
	why string
	at  time.Time
}

// spell is a time in which a task had no worker.
type spell struct {
	task        task
	from, until time.Time
	processes   []*process
	// unexplained is how much of it nothing explains, allowed how much nothing has to.
	unexplained, allowed time.Duration
	explained            map[string]time.Duration
	// snapshots are those of all concerned once more than what is allowed was not explained.
	snapshots string
}

// excess is how much of the spell counts.
func (s *spell) excess() time.Duration { return max(0, s.unexplained-s.allowed) }

func newJudge(w *world) *judge {
	return &judge{
		world: w, served: map[*process]map[string]hashkey.Ranges{}, spells: map[task]*spell{}, lost: map[task]string{},
		last: map[task]*process{}, losses: map[*process]loss{}, held: map[types.UID]bool{}, explained: map[string]time.Duration{},
	}
}

// start has the judge look from now on, or go on after a pause.
func (j *judge) start() {
	if j.view == nil {
		j.view = j.world.view()
	}
	ctx, stop := context.WithCancel(context.Background())
	j.stop, j.ended = stop, make(chan struct{})
	go func() {
		defer close(j.ended)
		for {
			select {
			case <-time.After(judgeInterval):
				j.look()
			case <-ctx.Done():
				return
			}
		}
	}()
}

// pause has it look no more, so that what it knows can be read. It may be called before start,
// and again.
func (j *judge) pause() {
	if j.stop != nil {
		j.stop()
		<-j.ended
	}
}

// end has it look no more for good.
func (j *judge) end() {
	j.pause()
	for _, s := range j.spells {
		j.close(s)
	}
	clear(j.spells)
}

// look takes in what has happened since it last looked.
func (j *judge) look() {
	for view := range j.news() {
		j.compare(j.view, view)
		j.view = view
	}
	now := time.Now()
	var running []*process
	for _, p := range j.world.all() {
		p.noteStanding()
		j.noteServed(p)
		if p.lives() {
			running = append(running, p)
		}
		if self, ok := p.gate.identity(); ok {
			j.held[self.UID] = true
		}
	}
	for _, key := range j.world.keys {
		for _, c := range worldControllers {
			what := task{c, key}
			if by := serving(running, what); len(by) > 0 {
				j.last[what] = by[0]
				j.isServed(what)
			} else {
				j.isUnserved(what, now)
			}
		}
	}
}

// news yields the views that the ring has gone through since the judge last looked.
func (j *judge) news() func(yield func(*ring.View) bool) {
	return func(yield func(*ring.View) bool) {
		for newest := j.world.registry.revision(); j.view.Revision < newest; {
			j.world.registry.lock.Lock()
			view := j.world.viewLocked(int(j.view.Revision) + 1)
			j.world.registry.lock.Unlock()
			if !yield(view) {
				return
			}
		}
	}
}

// compare notes who has come to own what, and whose record has gone.
func (j *judge) compare(before, after *ring.View) {
	for _, r := range after.Records() {
		if owned := after.Owned(r.Name); !owned.Equal(before.Owned(r.Name)) {
			j.world.chronicle.note(owned.Union(before.Owned(r.Name)), "%s of %v owns %v", r.Name, j.world.of(*r), owned)
		}
		if old, ok := before.Get(r.Name); ok && old.Phase != r.Phase {
			j.world.chronicle.of(j.world.of(*r), "reports %s", r.Phase)
		}
	}
	for _, r := range before.Records() {
		if _, stays := after.Get(r.Name); !stays {
			j.gone(before, *r)
		}
	}
}

// gone judges that a record has gone.
func (j *judge) gone(view *ring.View, r ring.Record) {
	w, p, owned := j.world, j.world.of(r), view.Owned(r.Name)
	w.lock.Lock()
	left, removed := w.left[r.UID], w.removed[r.UID]
	w.lock.Unlock()
	now := time.Now()
	stopped := p.stoppedAt()
	switch {
	case !p.diedAt().IsZero():
		w.chronicle.note(owned, "%s of %v, which is dead, has gone", r.Name, p)
		j.lose(p, owned, "its owner was killed")
	case !stopped.IsZero() && now.Sub(stopped) > worldLease/2:
		w.chronicle.note(owned, "%s of %v has gone", r.Name, p)
		j.lose(p, owned, leftLate)
	case removed:
		w.chronicle.note(owned, "%s of %v was deleted", r.Name, p)
		j.lose(p, owned, "its owner's record was deleted")
	case left, !stopped.IsZero(), r.Phase == shardingv1alpha1.InstanceLeaving, r.Deleting:
		w.chronicle.note(owned, "%s of %v has gone", r.Name, p)
	case !j.held[r.UID]:
		w.chronicle.note(owned, "%s, which %v has never had, has gone", r.Name, p)
	case p.mustBeKept(now):
		w.chronicle.of(p, "has lost %s, WHICH WAS TO BE KEPT", r.Name)
		j.recordsLost = append(j.recordsLost, fmt.Sprintf("%s of %v expired at %v\n%s\n%s", r.Name, p, sinceEpoch(),
			w.chronicle.about(owned, []*process{p}, now.Add(-2*worldLease), now), snapshots([]*process{p})))
	default:
		w.chronicle.note(owned, "%s of %v has expired", r.Name, p)
		j.lose(p, owned, "its owner's record has expired")
	}
}

// lose notes that the keys' owner was lost by what has gone wrong.
func (j *judge) lose(p *process, keys hashkey.Ranges, why string) {
	j.losses[p] = loss{why, time.Now()}
	for _, key := range j.world.keys {
		for _, c := range worldControllers {
			if what := (task{c, key}); keys.Contains(key) {
				j.lost[what] = why
			}
		}
	}
}

// noteServed notes what a process has come to serve.
func (j *judge) noteServed(p *process) {
	before := j.served[p]
	if before == nil {
		before = map[string]hashkey.Ranges{}
		j.served[p] = before
	}
	for _, c := range worldControllers {
		var now hashkey.Ranges
		if p.believes() {
			now = p.gate.For(c).serving()
		}
		if then := before[c]; !then.Equal(now) {
			j.world.chronicle.note(then.Union(now), "%v serves %v of the %s", p, now, c)
			before[c] = now
		}
	}
}

func (j *judge) isServed(what task) {
	delete(j.lost, what)
	if s := j.spells[what]; s != nil {
		j.close(s)
		delete(j.spells, what)
	}
}

func (j *judge) isUnserved(what task, now time.Time) {
	s := j.spells[what]
	if s == nil {
		s = &spell{task: what, from: now, explained: map[string]time.Duration{}}
		j.spells[what] = s
		j.begins(what)
	}
	s.until = now
	parties := j.parties(what)
	for _, p := range parties {
		if !slices.Contains(s.processes, p) {
			s.processes = append(s.processes, p)
		}
	}
	j.unserved += judgeInterval
	if why := j.explanation(what, parties, now); why != "" {
		s.explained[why] += judgeInterval
		return
	}
	s.unexplained += judgeInterval
	if _, shut := j.shutByItself(what); !shut {
		s.allowed = max(s.allowed, j.allowed(what, now))
	}
	if s.excess() > 0 && s.snapshots == "" {
		s.snapshots = snapshots(s.processes)
	}
}

// close counts a spell that has ended.
func (j *judge) close(s *spell) {
	for why, took := range s.explained {
		j.explained[why] += took
	}
	j.unexplained += s.excess()
	if j.worst == nil || s.excess() > j.worst.excess() {
		j.worst = s
	}
}

// verdict fails the test if too much is not explained.
func (j *judge) verdict() {
	w := j.world
	if len(j.recordsLost) > 0 {
		w.t.Errorf("seed %d: %d records expired that were to be kept. The first: %s", w.seed, len(j.recordsLost), j.recordsLost[0])
	}
	if j.unexplained > maxUnexplained {
		w.t.Errorf("seed %d: nothing explains why tasks had no worker for %v altogether. The worst of it:\n%s", w.seed, j.unexplained, j.tell(j.worst))
	}
}

// tell tells all of a spell.
func (j *judge) tell(s *spell) string {
	return fmt.Sprintf("%v had no worker from %.3f to %.3f, nothing explains %v of it beside %v that are allowed. Explained: %s\n%s\n%s",
		s.task, s.from.Sub(epoch).Seconds(), s.until.Sub(epoch).Seconds(), s.unexplained, s.allowed, reasons(s.explained),
		j.world.chronicle.about(hashkey.Between(s.task.key-1, s.task.key), s.processes, s.from.Add(-20*time.Second), s.until.Add(time.Second)), s.snapshots)
}

// reasons lists explanations, that of most first.
func reasons(explained map[string]time.Duration) string {
	var out []string
	for _, why := range slices.SortedFunc(maps.Keys(explained), func(a, b string) int { return cmp.Compare(explained[b], explained[a]) }) {
		out = append(out, fmt.Sprintf("%v: %s", explained[why], why))
	}
	return strings.Join(out, "; ")
}
