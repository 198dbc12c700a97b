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
	"slices"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/client-go/tools/ring"
	"k8s.io/klog/v2"
)

// duties is a term's part in each of its controllers. It belongs to the deciding goroutine.
type duties struct {
	roster *ring.Roster
	// releasing are the controllers whose door was shut and that have not been told yet that
	// their last work has ended; true: they are being told.
	releasing map[string]bool
	// states is what the record is to say.
	states []ring.ControllerState
	// asked are the controllers whose doors open once all sources hold ranges as of a moment
	// after the question, which forget ends; fresh says that they do.
	asked  []string
	ranges hashkey.Ranges
	forget context.CancelFunc
	fresh  bool
}

// assign asks the roster, shuts the doors of the controllers that it does not want worked on,
// and returns the others.
func (t *term) assign(ctx context.Context) []string {
	logger := klog.FromContext(ctx)
	d := t.duties.roster.Decide(t.rosterInput())
	for _, c := range t.controllers {
		if door := t.cfg.Gate.For(c); door.isOpen() && !slices.Contains(d.Open, c) {
			door.set(false)
			t.duties.releasing[c] = false
			t.cfg.Metrics.Working(c, false)
			logger.Info("Shut the controller's door", "controller", c)
		}
	}
	if d.Raise {
		t.machine.Raise()
	}
	if d.Again {
		t.again()
	}
	for i, s := range d.States {
		if s.Reason != "" && (t.duties.states == nil || t.duties.states[i].Reason != s.Reason) {
			logger.Info("The controller waits", "controller", s.Name, "reason", s.Reason)
		}
	}
	t.duties.states = d.States
	t.news.status.Controllers = controllerStates(d.States)
	if d.Read {
		t.readLeader(ctx)
	}
	return d.Open
}

func (t *term) rosterInput() ring.RosterInput {
	in := ring.RosterInput{Barred: t.cfg.Gate.whyBarred(), View: t.machine.View(), Leader: &ring.Leader{}}
	if stored := t.news.stored; stored.Epoch == t.machine.Epoch() {
		in.Reported = stored.Working
	}
	for _, c := range t.controllers {
		door := t.cfg.Gate.For(c)
		if _, releasing := t.duties.releasing[c]; releasing || door.isOpen() || door.busy() > 0 {
			in.Busy = append(in.Busy, c)
		}
	}
	if t.cfg.Leadership != nil {
		in.Leader = nil
		if leader, known := t.cfg.Leadership.Leader(); known {
			in.Leader = &leader
		}
	}
	return in
}

// readLeader reads who leads beside the deciding goroutine, which gets the answer.
func (t *term) readLeader(ctx context.Context) {
	if t.cfg.Leadership == nil {
		t.duties.roster.Answer(ring.Leader{}, true)
		t.again()
		return
	}
	go func() {
		limited, cancel := context.WithTimeout(ctx, t.cfg.LeaseDuration)
		defer cancel()
		leader, err := t.cfg.Leadership.Read(limited)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Could not read who leads; will try again")
			select {
			case <-t.cfg.Clock.After(maxPause):
			case <-ctx.Done():
			}
		}
		t.post(ctx, func() { t.duties.roster.Answer(leader, err == nil) })
	}()
}

// employ opens the doors of these controllers once all sources hold what the gate is open for as
// of a moment after now: the leader, or whoever led before, has worked on it.
func (t *term) employ(ctx context.Context, controllers []string) {
	waiting := slices.DeleteFunc(slices.Clone(controllers), func(c string) bool { return t.cfg.Gate.For(c).isOpen() })
	if len(waiting) == 0 {
		t.forgetFresh()
		return
	}
	if !t.freshFor(ctx, waiting) {
		return
	}
	for _, c := range waiting {
		door := t.cfg.Gate.For(c)
		if serving := t.cfg.Gate.serving(); !serving.Empty() {
			t.cfg.Controllers[c].Prepare(serving)
		}
		door.set(true)
		t.cfg.Metrics.Working(c, true)
		klog.FromContext(ctx).Info("Opened the controller's door", "controller", c)
		if serving := door.serving(); !serving.Empty() {
			t.queue(ctx, c, serving)
		}
	}
	t.again()
}

// freshFor says whether all sources hold what the gate is open for as of a moment after these
// controllers were first asked for, without a break. If it is not known yet, a decision is asked
// for when it is. What the gate is opened for from now on is asked for after that moment, too.
func (t *term) freshFor(ctx context.Context, controllers []string) bool {
	d := &t.duties
	if slices.Equal(d.asked, controllers) && t.follow.Covers(d.ranges) {
		return d.fresh
	}
	t.forgetFresh()
	if len(t.readiness.asked) > 0 {
		t.again()
	}
	t.readiness.reset()
	ctx, cancel := context.WithCancel(ctx)
	ranges := t.cfg.Gate.serving()
	d.asked, d.ranges, d.forget = controllers, ranges, cancel
	go func() {
		if !t.allHold(ctx, ranges) {
			return
		}
		t.post(ctx, func() {
			if ctx.Err() == nil {
				d.fresh = true
			}
		})
	}()
	return false
}

// forgetFresh forgets for which controllers the sources were asked, and what they said.
func (t *term) forgetFresh() {
	d := &t.duties
	if d.forget != nil {
		d.forget()
	}
	d.asked, d.ranges, d.forget, d.fresh = nil, nil, nil, false
}

// waitsAtDoor says whether the instance has yet to find out whether it may work on a controller, or
// has yet to begin.
func (t *term) waitsAtDoor() bool {
	if l := t.cfg.Leadership; l != nil {
		if _, known := l.Leader(); !known {
			return true
		}
	}
	return slices.ContainsFunc(t.duties.states, func(s ring.ControllerState) bool {
		return s.Working && !t.cfg.Gate.For(s.Name).isOpen()
	})
}

// saysWhoWorks says whether the registry has the present states of the controllers.
func (t *term) saysWhoWorks() bool {
	for _, s := range t.duties.states {
		if s.Working != slices.Contains(t.news.stored.Working, s.Name) {
			return false
		}
	}
	return slices.Equal(t.news.states, t.news.status.Controllers)
}

func controllerStates(states []ring.ControllerState) []shardingv1alpha1.ControllerState {
	var out []shardingv1alpha1.ControllerState
	for _, s := range states {
		out = append(out, shardingv1alpha1.ControllerState{Name: s.Name, Working: s.Working, Reason: s.Reason})
	}
	return out
}

// prepare tells the controllers whose doors are open of ranges that the gate is about to be opened
// for.
func (t *term) prepare(ranges hashkey.Ranges) {
	for name, c := range t.cfg.Controllers {
		if t.cfg.Gate.For(name).isOpen() {
			c.Prepare(ranges)
		}
	}
}

// keys returns the keys in ranges of all objects that the sources hold, never nil. It may be called
// from any goroutine.
func (t *term) keys(ranges hashkey.Ranges) []int64 {
	keys := []int64{}
	for _, s := range t.cfg.Sources {
		keys = append(keys, s.Keys(ranges)...)
	}
	return keys
}
