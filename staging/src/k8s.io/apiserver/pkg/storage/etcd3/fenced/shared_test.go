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

package fenced

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/storage/etcd3/testserver"
	"k8s.io/component-base/metrics/testutil"
)

// asking is the context of somebody who asks. Its channel is closed once they have joined a read
// and wait.
type asking struct {
	context.Context
	once  sync.Once
	waits chan struct{}
}

func newAsking(ctx context.Context) *asking { return &asking{Context: ctx, waits: make(chan struct{})} }

func (a *asking) Done() <-chan struct{} {
	a.once.Do(func() { close(a.waits) })
	return a.Context.Done()
}

// slowRead counts, and each of its reads begins and waits to be let go.
type slowRead struct {
	begun, release chan struct{}
	lock           sync.Mutex
	reads          int
}

func newSlowRead() *slowRead {
	return &slowRead{begun: make(chan struct{}), release: make(chan struct{})}
}

func (r *slowRead) read(ctx context.Context) (int, error) {
	r.lock.Lock()
	r.reads++
	n := r.reads
	r.lock.Unlock()
	r.begun <- struct{}{}
	select {
	case <-r.release:
		return n, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

type answer struct {
	read int
	err  error
}

// ask asks, and returns once the question has joined a read.
func ask(ctx context.Context, s *shared[int]) <-chan answer {
	question, answers := newAsking(ctx), make(chan answer, 1)
	go func() {
		n, err := s.get(question)
		answers <- answer{n, err}
	}()
	<-question.waits
	return answers
}

func TestAllWhoAskWhileAReadRunsShareTheNextOne(t *testing.T) {
	slow := newSlowRead()
	s := &shared[int]{ctx: t.Context(), timeout: time.Hour, read: slow.read}
	first := ask(t.Context(), s)
	<-slow.begun
	var later []<-chan answer
	for range 100 {
		later = append(later, ask(t.Context(), s))
	}
	slow.release <- struct{}{}
	if got := <-first; got != (answer{1, nil}) {
		t.Errorf("the first got %+v, want the first read", got)
	}
	<-slow.begun
	slow.release <- struct{}{}
	for _, answers := range later {
		if got := <-answers; got != (answer{2, nil}) {
			t.Errorf("one who asked while the first read ran got %+v, want the second", got)
		}
	}

	// Nothing is left over: the next question has a read of its own.
	next := ask(t.Context(), s)
	<-slow.begun
	slow.release <- struct{}{}
	if got := <-next; got != (answer{3, nil}) {
		t.Errorf("one who asked later got %+v, want the third read", got)
	}
}

func TestAReadOutlivesThoseWhoAskedForIt(t *testing.T) {
	slow := newSlowRead()
	s := &shared[int]{ctx: t.Context(), timeout: time.Hour, read: slow.read}
	impatient, giveUp := context.WithCancelCause(t.Context())
	gaveUp := errors.New("gave up")
	first := ask(impatient, s)
	<-slow.begun
	second, third := ask(impatient, s), ask(t.Context(), s)
	giveUp(gaveUp)
	for _, answers := range []<-chan answer{first, second} {
		if got := <-answers; !errors.Is(got.err, gaveUp) {
			t.Errorf("one whose context has ended got %+v, want %v", got, gaveUp)
		}
	}
	slow.release <- struct{}{}
	<-slow.begun
	slow.release <- struct{}{}
	if got := <-third; got != (answer{2, nil}) {
		t.Errorf("one who waited got %+v, want the second read", got)
	}
}

func TestAReadThatHangsFailsForAllAndTheNextOneIsMade(t *testing.T) {
	slow := newSlowRead()
	s := &shared[int]{ctx: t.Context(), timeout: 10 * time.Millisecond, read: slow.read}
	first := ask(t.Context(), s)
	<-slow.begun
	if got := <-first; !errors.Is(got.err, context.DeadlineExceeded) {
		t.Errorf("got %+v, want it to have taken too long", got)
	}
	s.timeout = time.Hour
	second := ask(t.Context(), s)
	<-slow.begun
	slow.release <- struct{}{}
	if got := <-second; got != (answer{2, nil}) {
		t.Errorf("after a read that hung: %+v, want the second read", got)
	}
}

// Whoever asks sees what was stored before, though a list that began earlier does not show it.
func TestListsOfTheRegistryAreSharedAndShowWhatWasStoredBefore(t *testing.T) {
	etcd := testserver.RunEtcd(t, nil)
	w := newWorld(t, etcd, etcd)
	r := deploymentOf(w.prefix).registry()
	listed, release := make(chan struct{}), make(chan struct{})
	r.lists.read = func(ctx context.Context) (*rings, error) {
		all, err := r.readAll(ctx)
		listed <- struct{}{}
		<-release
		return all, err
	}
	list := func(ctx context.Context) <-chan *rings {
		question, answers := newAsking(ctx), make(chan *rings, 1)
		go func() {
			all, err := r.list(question)
			if err != nil {
				t.Error(err)
			}
			answers <- all
		}()
		<-question.waits
		return answers
	}
	before, err := testutil.GetCounterMetricValue(quorumReads)
	w.must(err)
	early := list(w.ctx)
	<-listed
	var late []<-chan *rings
	for i := range 20 {
		w.register(fmt.Sprintf("late-%d", i), nil)
		late = append(late, list(w.ctx))
	}
	release <- struct{}{}
	if all := <-early; len(all.instances) != 0 {
		t.Errorf("a list that began before all registered shows %d", len(all.instances))
	}
	<-listed
	release <- struct{}{}
	for i, answers := range late {
		if all := <-answers; all.instances[fmt.Sprintf("late-%d", i)] == nil {
			t.Errorf("a list that was asked for after late-%d had registered does not show it", i)
		}
	}
	after, err := testutil.GetCounterMetricValue(quorumReads)
	w.must(err)
	if after-before != 2 {
		t.Errorf("%v lists were made, want 2", after-before)
	}
}
