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

package rangewatch

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/tools/rangewatch/follower"
)

const (
	// overdue is more than an API server takes for anything but a long list.
	overdue = 10 * time.Second
	// remindEvery is how often the log has what is still lacking.
	remindEvery = time.Minute
)

// lacking says since when things are lacking; the zero time: they are not.
type lacking struct {
	// list is that ranges have to be listed, watch that there is no watch, progress that the watch
	// does not say how far it is, store that the store has not taken what it was given.
	list, watch, progress, store time.Time
	// of is what the Follower lacked when that was noted.
	of follower.Lacks
	// err is the last failure since something began to be lacking.
	err error
	// said is when the log was last told.
	said time.Time
}

// any returns since when something is lacking; the zero time: nothing is.
func (l *lacking) any() time.Time {
	var first time.Time
	for _, since := range []time.Time{l.list, l.watch, l.progress, l.store} {
		if first.IsZero() || !since.IsZero() && since.Before(first) {
			first = since
		}
	}
	return first
}

// String says for people what is lacking.
func (l *lacking) String() string {
	var all []string
	for _, lack := range []struct {
		since time.Time
		what  string
	}{
		{l.list, "a list"},
		{l.watch, "a watch"},
		{l.progress, "its watch to say how far it is"},
		{l.store, "its store to take what it was given"},
	} {
		if !lack.since.IsZero() {
			all = append(all, fmt.Sprintf("%s, since %s", lack.what, lack.since.UTC().Format(time.RFC3339)))
		}
	}
	text := strings.Join(all, "; ")
	if l.err != nil {
		text += fmt.Sprintf("; the last failure: %v", l.err)
	}
	return text
}

// Waits says for people what the Source has waited for, for longer than ten seconds; "" if there is
// no such thing.
func (s *Source) Waits() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if since := s.lacking.any(); since.IsZero() || time.Since(since) < s.overdue {
		return ""
	}
	return s.lacking.String()
}

// began returns since when something is lacking that was before since that time.
func began(before time.Time, lacks bool, now time.Time) time.Time {
	if !lacks {
		return time.Time{}
	}
	if before.IsZero() {
		return now
	}
	return before
}

// note notes what is lacking, and has the driver reminded of it.
func (d *driver) note() {
	of := d.follower.Lacks()
	d.mu.Lock()
	defer d.mu.Unlock()
	l := &d.lacking
	if of == l.of {
		return
	}
	now := time.Now()
	l.list, l.watch = began(l.list, of.List, now), began(l.watch, of.Watch, now)
	if of.Listed != l.of.Listed || of.Waiter != l.of.Waiter {
		l.progress = began(time.Time{}, of.Listed > 0 || of.Waiter > 0, now)
	}
	l.of = of
	if of == (follower.Lacks{}) {
		*l, d.remind = lacking{}, nil
	} else if d.remind == nil {
		d.remind = time.After(d.overdue)
	}
}

// noteStore notes whether the store has yet to take what it was given.
func (s *Source) noteStore(lacks bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lacking.store = began(s.lacking.store, lacks, time.Now())
}

// failed notes why something is lacking.
func (d *driver) failed(err error) {
	d.note()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lacking.err = err
}

// sayLacking tells people what has been lacking for long, and the Follower if it is something that
// a watch may never bring.
func (d *driver) sayLacking() {
	d.mu.Lock()
	defer d.mu.Unlock()
	l, now := &d.lacking, time.Now()
	d.remind = time.After(d.overdue)
	if now.Sub(l.any()) < d.overdue {
		return
	}
	if now.Sub(l.said) >= remindEvery {
		l.said = now
		d.logger.Info("Still waits", "for", l.String())
	}
	if !l.progress.IsZero() && now.Sub(l.progress) >= d.overdue {
		d.follower.Silent()
	}
}
