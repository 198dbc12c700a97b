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
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/hashkey"
)

// chronicle is what happened, in order.
type chronicle struct {
	lock    sync.Mutex
	entries []entry
}

// entry is one thing that happened.
type entry struct {
	at time.Time
	// process is whom it concerns, keys what; nil: all.
	process *process
	keys    hashkey.Ranges
	// text is only made where somebody reads it.
	text func() string
}

func (c *chronicle) add(e entry) {
	e.at = time.Now()
	c.lock.Lock()
	defer c.lock.Unlock()
	c.entries = append(c.entries, e)
}

// note adds what concerns these keys; nil: all.
func (c *chronicle) note(keys hashkey.Ranges, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	c.add(entry{keys: keys, text: func() string { return text }})
}

// of adds what concerns a process.
func (c *chronicle) of(p *process, format string, args ...any) {
	text := fmt.Sprintf("%v %s", p, fmt.Sprintf(format, args...))
	c.add(entry{process: p, text: func() string { return text }})
}

// about returns what concerns a key of these, and one of these processes or none, from then to
// then.
func (c *chronicle) about(keys hashkey.Ranges, processes []*process, from, until time.Time) string {
	c.lock.Lock()
	defer c.lock.Unlock()
	var lines []string
	for _, e := range c.entries {
		concerns := e.keys == nil || !e.keys.Intersect(keys).Empty()
		if e.at.Before(from) || e.at.After(until) || !concerns || e.process != nil && !slices.Contains(processes, e.process) {
			continue
		}
		lines = append(lines, fmt.Sprintf("%10.3f  %s", e.at.Sub(epoch).Seconds(), e.text()))
	}
	return strings.Join(lines, "\n")
}

// maxDecisions is how many decisions of a process are told.
const maxDecisions = 8

// snapshots tells what these processes show of themselves now.
func snapshots(processes []*process) string {
	var out strings.Builder
	for _, p := range processes {
		if !p.lives() {
			continue
		}
		s := p.Snapshot()
		fmt.Fprintf(&out, "at %.3f %v shows: %s %s, round %.1f s ago, revision %d, believes for %.1f s; owns %s, open %s, follows %s, draining %s, epoch %d, gives %q, write %q, busy %d\n",
			time.Since(epoch).Seconds(), p, s.Name, s.Phase, s.RoundAgeSeconds, s.Revision, s.BelievesForSeconds, s.Owned, s.Open, s.Follow, s.Draining, s.Epoch, s.Gives, s.Write, s.Busy)
		for _, d := range s.Doors {
			fmt.Fprintf(&out, "    door of %s: open %s, working %v %s\n", d.Controller, d.Open, d.Working, d.Reason)
		}
		for _, source := range s.Sources {
			fmt.Fprintf(&out, "    %s lack %s\n", source.Name, source.Lacks)
		}
		for _, d := range s.Decided[max(0, len(s.Decided)-maxDecisions):] {
			fmt.Fprintf(&out, "    %.3f %s %s\n", d.Time.Sub(epoch).Seconds(), d.What, d.Text)
		}
	}
	return out.String()
}

// logger returns one that writes what a process says into the chronicle.
func (c *chronicle) logger(p *process) logr.Logger {
	return logr.New(&sink{chronicle: c, process: p})
}

// sink is the end of a process's log.
type sink struct {
	chronicle *chronicle
	process   *process
}

// Init implements logr.LogSink.
func (s *sink) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink.
func (s *sink) Enabled(level int) bool { return level == 0 }

// Info implements logr.LogSink.
func (s *sink) Info(_ int, message string, values ...any) { s.say(message, values) }

// Error implements logr.LogSink.
func (s *sink) Error(err error, message string, values ...any) {
	s.say(message, append([]any{"err", err}, values...))
}

func (s *sink) say(message string, values []any) {
	e := entry{process: s.process, text: func() string {
		var text strings.Builder
		fmt.Fprintf(&text, "%v says: %s", s.process, message)
		for i := 0; i+1 < len(values); i += 2 {
			fmt.Fprintf(&text, " %v=%v", values[i], values[i+1])
		}
		return text.String()
	}}
	for i := 0; i+1 < len(values); i += 2 {
		if ranges, ok := values[i+1].(hashkey.Ranges); ok && values[i] == "ranges" {
			e.keys = ranges
		}
	}
	s.chronicle.add(e)
}

// WithValues implements logr.LogSink. All that is said is of one process in one ring anyway.
func (s *sink) WithValues(...any) logr.LogSink { return s }

// WithName implements logr.LogSink.
func (s *sink) WithName(string) logr.LogSink { return s }
