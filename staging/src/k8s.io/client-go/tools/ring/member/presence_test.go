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
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/ring/fence"
)

// servers open presences as they are told to.
type servers struct {
	// opened has each attempt, as seconds since the epoch and its reason. answers has what comes of
	// the next ones; nil: a presence that lasts until it is ended.
	opened  []attempt
	answers []error
	ends    chan bool
	lock    sync.Mutex
}

// tried returns all attempts until now.
func (s *servers) tried() []attempt {
	s.lock.Lock()
	defer s.lock.Unlock()
	return slices.Clone(s.opened)
}

type attempt struct {
	at  time.Duration
	why string
}

func (s *servers) Open(ctx context.Context, _ fence.Identity, why string) (Presence, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.opened = append(s.opened, attempt{time.Since(epoch), why})
	var err error
	if len(s.answers) > 0 {
		err, s.answers = s.answers[0], s.answers[1:]
	}
	return openPresence{ctx, s.ends}, err
}

type openPresence struct {
	ctx  context.Context
	ends chan bool
}

func (p openPresence) Wait() bool {
	select {
	case inOrder := <-p.ends:
		return inOrder
	case <-p.ctx.Done():
		return false
	}
}

// presentInstance returns the registry of one that renews its record, and has presences at these
// servers, and the instance.
func presentInstance(t *testing.T, s *servers, change ...func(*Config)) (*registry, *term) {
	r := newRegistry(t)
	i := newInstance(t, r, change...)
	i.cfg.Presences = s
	ctx := testContext(t)
	term, _ := i.renewing(ctx)
	ended := make(chan struct{})
	t.Cleanup(func() { <-ended })
	go func() {
		defer close(ended)
		term.bePresent(ctx)
	}()
	synctest.Wait()
	return r, term
}

// expectShown checks what the instance shows of its presence.
func expectShown(t *testing.T, term *term, since time.Duration, lacks string) {
	t.Helper()
	got := term.Snapshot().Presence
	if got == nil || got.Lacks != lacks || (got.Since == nil) != (lacks != "") || got.Since != nil && got.Since.Sub(epoch) != since {
		t.Errorf("after %v the instance shows the presence %+v, want one since %v, or that it lacks it: %q", time.Since(epoch), got, since, lacks)
	}
}

func TestAnInstanceShowsItsPresence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &servers{ends: make(chan bool), answers: []error{nil, errors.New("no"), nil, ErrNoPresence}}
		_, term := presentInstance(t, s)
		expectShown(t, term, 0, "")
		time.Sleep(1500 * time.Millisecond)
		s.ends <- false
		synctest.Wait()
		expectShown(t, term, 0, "no")
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		expectShown(t, term, 1600*time.Millisecond, "")
		time.Sleep(2 * time.Second)
		s.ends <- true
		synctest.Wait()
		expectShown(t, term, 0, ErrNoPresence.Error())
	})
}

func TestAPresenceThatEndsIsOpenedAnewAndTheRecordRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &servers{ends: make(chan bool), answers: []error{nil, errors.New("no"), errors.New("no"), nil}}
		r, _ := presentInstance(t, s)
		time.Sleep(1500 * time.Millisecond)
		s.ends <- false
		time.Sleep(2*time.Second + 400*time.Millisecond)
		s.ends <- true
		synctest.Wait()
		if want := []attempt{
			{0, fence.PresenceFirst},
			{1500 * time.Millisecond, fence.PresenceLost}, {1600 * time.Millisecond, fence.PresenceLost}, {1700 * time.Millisecond, fence.PresenceLost},
			{3900 * time.Millisecond, fence.PresenceNext},
		}; !slices.Equal(s.tried(), want) {
			t.Errorf("presences were opened at %v, want %v", s.tried(), want)
		}
		// In turn it is after each second.
		expectTimes(t, r.got(ofPatch(partRenewal)), time.Second,
			1500*time.Millisecond, 2*time.Second, 2500*time.Millisecond, 3*time.Second, 3900*time.Millisecond)
	})
}

// The server may have opened one, and ask whether the record is renewed.
func TestAnOpeningWithoutAnAnswerCountsAsAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &servers{ends: make(chan bool), answers: []error{fmt.Errorf("cut: %w", ErrUnanswered)}}
		r, _ := presentInstance(t, s)
		time.Sleep(2*time.Second + 400*time.Millisecond)
		synctest.Wait()
		expectTimes(t, r.got(ofPatch(partRenewal)), 0, 500*time.Millisecond, time.Second, 1500*time.Millisecond)
		if got := s.tried(); len(got) != 2 || got[1].why != fence.PresenceFirst {
			t.Errorf("presences were opened at %v, want one more", got)
		}
	})
}

// A server that has stood still sees the end late, and asks then whether the record is renewed.
func TestWhileNoPresenceCanBeOpenedTheRecordIsRenewedEachSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &servers{ends: make(chan bool), answers: append([]error{nil}, slices.Repeat([]error{errors.New("no")}, 1000)...)}
		r, _ := presentInstance(t, s, func(c *Config) { c.LeaseDuration = 30 * time.Second })
		time.Sleep(time.Second)
		s.ends <- false
		time.Sleep(5 * time.Second)
		s.lock.Lock()
		s.answers = nil
		s.lock.Unlock()
		time.Sleep(9 * time.Second)
		synctest.Wait()
		opened := s.tried()[len(s.tried())-1].at
		want := []time.Duration{time.Second, 1500 * time.Millisecond, 2 * time.Second}
		at := 2500 * time.Millisecond
		for ; at <= opened; at += time.Second {
			want = append(want, at)
		}
		// The one that was due already, and those in turn.
		expectTimes(t, r.got(ofPatch(partRenewal)), append(want, at, at+5*time.Second)...)
	})
}

// What ends while the record is renewed after another end counts as well.
func TestEachEndIsFollowedByTwoSecondsOfRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &servers{ends: make(chan bool)}
		r, _ := presentInstance(t, s, func(c *Config) { c.LeaseDuration = 30 * time.Second })
		time.Sleep(1100 * time.Millisecond)
		s.ends <- false
		time.Sleep(1800 * time.Millisecond)
		s.ends <- false
		time.Sleep(3 * time.Second)
		synctest.Wait()
		expectTimes(t, r.got(ofPatch(partRenewal)),
			1100*time.Millisecond, 1600*time.Millisecond, 2100*time.Millisecond, 2600*time.Millisecond,
			2900*time.Millisecond, 3400*time.Millisecond, 3900*time.Millisecond, 4400*time.Millisecond)
	})
}

func TestWhereNoPresenceCanBeOpenedTheHurryEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &servers{ends: make(chan bool), answers: append([]error{nil}, slices.Repeat([]error{errors.New("no")}, 1000)...)}
		presentInstance(t, s)
		time.Sleep(time.Second)
		s.ends <- false
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := len(s.tried()); n < 20 || n > 22 {
			t.Errorf("%d were tried in the first two seconds, want ten in each", n)
		}
		hurried := len(s.tried())
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := len(s.tried()) - hurried; n < 5 || n > 11 {
			t.Errorf("%d were tried in the next ten seconds, want one in each or less", n)
		}
	})
}

func TestAServerThatOpensNoPresenceIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &servers{ends: make(chan bool), answers: []error{ErrNoPresence}}
		presentInstance(t, s)
		time.Sleep(time.Minute - time.Second)
		synctest.Wait()
		if len(s.tried()) != 1 {
			t.Errorf("it was asked %d times in a minute, want once", len(s.tried()))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(s.tried()) != 2 {
			t.Errorf("it was asked %d times in two minutes, want twice", len(s.tried()))
		}
	})
}
