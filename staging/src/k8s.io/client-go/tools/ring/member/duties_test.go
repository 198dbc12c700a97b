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
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/fence"
)

// election is a Lease that instances look at.
type election struct {
	lock    sync.Mutex
	holder  string
	seen    *ring.Leader
	changed []func()
	// onRead, if set, is called before each read with quorum.
	onRead func() error
	reads  int
}

// lead makes holder the leader, which the watch shows if seen.
func (e *election) lead(holder string, seen bool) {
	e.lock.Lock()
	e.holder = holder
	if seen {
		e.seen = &ring.Leader{Holder: holder}
	}
	changed := slices.Clone(e.changed)
	e.lock.Unlock()
	for _, f := range changed {
		f()
	}
}

// Leader implements Leadership.
func (e *election) Leader() (ring.Leader, bool) {
	e.lock.Lock()
	defer e.lock.Unlock()
	if e.seen == nil {
		return ring.Leader{}, false
	}
	return *e.seen, true
}

// Notify implements Leadership.
func (e *election) Notify(ctx context.Context, changed func()) {
	e.lock.Lock()
	defer e.lock.Unlock()
	e.changed = append(e.changed, changed)
}

// Read implements Leadership.
func (e *election) Read(ctx context.Context) (ring.Leader, error) {
	e.lock.Lock()
	e.reads++
	onRead := e.onRead
	e.lock.Unlock()
	if onRead != nil {
		if err := onRead(); err != nil {
			return ring.Leader{}, err
		}
	}
	e.lock.Lock()
	defer e.lock.Unlock()
	e.seen = &ring.Leader{Holder: e.holder}
	return *e.seen, nil
}

const (
	stock     = "host_1"
	withoutIt = "host_2;controllers=*,-" + controllerName
	withIt    = "host_3;controllers=*"
)

// under returns an instance that obeys the election.
func under(t *testing.T, r *registry, e *election, change ...func(*Config)) *instance {
	return newInstance(t, r, append(change, func(c *Config) { c.Leadership = e })...)
}

// state returns what the record says of the instance's controller.
func (i *instance) state() shardingv1alpha1.ControllerState {
	states := i.record().Status.Controllers
	if len(states) == 0 {
		return shardingv1alpha1.ControllerState{}
	}
	return states[0]
}

// works waits until the record says that the instance works on its controller, and it does.
func (i *instance) works() {
	i.t.Helper()
	eventually(i.t, "the controller is worked on", func() bool {
		return i.state().Working && i.door().ServesAll()
	})
}

// waits waits until the record says that the instance does not work on its controller, for
// that reason.
func (i *instance) waits(reason string) {
	i.t.Helper()
	eventually(i.t, "the controller waits: "+reason, func() bool {
		state := i.state()
		return !state.Working && strings.Contains(state.Reason, reason) && !i.door().isOpen()
	})
}

func TestAnInstanceSaysThatItWorksThenReadsTheLeaderThenTheCachesThenBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &election{}
		e.lead(withoutIt, true)
		i := under(t, newRegistry(t), e).slow()
		e.onRead = func() error {
			if !i.state().Working {
				t.Error("the leader was read before the record says that the instance works")
			}
			return nil
		}
		i.start()
		for n := range i.sources {
			s := i.sources[n]
			eventually(t, "a question", func() bool { return len(s.asked()) > 0 })
			if i.door().isOpen() {
				t.Error("the door is open before the caches are fresh")
			}
			eventually(t, "all answers", func() bool {
				for _, s := range i.sources[:n+1] {
					for _, q := range s.asked() {
						select {
						case <-q.answer:
						default:
							close(q.answer)
						}
					}
					s.hold(hashkey.All())
				}
				return n == 0 || i.door().ServesAll()
			})
		}
		i.works()
	})
}

func TestAnInstanceWaitsForALeaderThatRunsTheController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &election{}
		i := under(t, newRegistry(t), e)
		i.start()
		eventually(t, "a record", func() bool { _, ok := i.gate.identity(); return ok })
		i.waits("not known yet who leads")
		e.lead(stock, true)
		i.waits("the leader's Lease is held by host_1, a kube-controller-manager without rings")
		e.lead(withIt, true)
		i.waits("the leader, host_3, runs it")
		e.lead(withoutIt, true)
		i.works()
		e.lead("", true)
		i.works()

		// What is in work is waited for, and what it has sent is refused afterwards.
		epoch := i.record().Status.Epoch
		leave := i.work(1)
		e.lead(withIt, true)
		eventually(t, "a shut door", func() bool { return !i.door().isOpen() })
		time.Sleep(time.Minute)
		if !i.state().Working || i.record().Status.Epoch != epoch {
			t.Errorf("the record says %+v while work is under way", i.record().Status)
		}
		leave()
		i.waits("the leader, host_3, runs it")
		if got := i.record().Status.Epoch; got != epoch+1 {
			t.Errorf("the epoch is %d after the work has ended, want %d", got, epoch+1)
		}
		e.lead(withoutIt, true)
		i.works()
	})
}

func TestAWatchOfTheLeaseThatLagsOpensNoDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &election{}
		e.lead(withoutIt, true)
		e.lead(stock, false)
		i := under(t, newRegistry(t), e)
		i.calls.take()
		i.start()
		eventually(t, "a read of the leader", func() bool { e.lock.Lock(); defer e.lock.Unlock(); return e.reads > 0 })
		i.waits(stock)
		for _, line := range i.calls.take() {
			if strings.HasPrefix(line, "acquired") {
				t.Errorf("%s, though a stock manager leads", line)
			}
		}
	})
}

func TestALeaderThatCannotBeReadIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &election{}
		e.lead(withoutIt, true)
		var failures atomic.Int32
		failures.Store(3)
		e.onRead = func() error {
			if failures.Add(-1) >= 0 {
				return errors.New("injected")
			}
			return nil
		}
		i := under(t, newRegistry(t), e)
		i.start()
		eventually(t, "three failures", func() bool { return failures.Load() < 0 })
		i.works()
	})
}

func TestAnInstanceCeasesWhileAnotherDoesNotListTheController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		a := newInstance(t, r)
		a.start()
		a.works()
		b := newInstance(t, r, func(c *Config) { c.Controllers = map[string]Controller{"job-controller": b0{}} })
		stop, _ := b.start()
		eventually(t, "b's record", func() bool { _, ok := b.gate.identity(); return ok })
		self, _ := b.gate.identity()
		a.waits("ControllerInstance " + self.Name + " does not list it")
		b.waits("does not list it")
		stop()
		a.works()
	})
}

// b0 is a controller without objects.
type b0 struct{}

func (b0) Prepare(hashkey.Ranges)                   {}
func (b0) Acquired(context.Context, hashkey.Ranges) {}
func (b0) Released(hashkey.Ranges)                  {}

func TestOneControllerWaitsWhileAnotherIsWorkedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &election{}
		e.lead("host;controllers=job-controller", true)
		i := under(t, newRegistry(t), e, func(c *Config) {
			c.Controllers = map[string]Controller{controllerName: c.Controllers[controllerName], "job-controller": b0{}}
		})
		i.start()
		eventually(t, "one door is open", i.door().ServesAll)
		if i.gate.For("job-controller").isOpen() {
			t.Error("a controller that the leader runs is worked on")
		}
		e.lead("host;controllers=*,-job-controller", true)
		eventually(t, "the other door is open", func() bool {
			return i.gate.For("job-controller").ServesAll() && !i.door().isOpen()
		})
	})
}

func TestAnAbandonedRecordIsGoneAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInstance(t, newRegistry(t))
		i.controller.abandoned = true
		_, done := i.start()
		i.works()
		leave := i.work(1)
		self, _ := i.gate.identity()
		if err := i.Abandon(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if _, ok := i.registry.get(self.Name); ok {
			t.Error("the record is still there")
		}
		if _, ok := i.door().Enter(2); ok {
			t.Error("work may begin")
		}
		leave()
		<-done
		if _, ok := i.gate.identity(); ok {
			t.Error("the instance has registered again")
		}
		if err := i.Abandon(testContext(t)); err != nil {
			t.Errorf("the second time: %v", err)
		}
	})
}

// As of a process that was paused: its records are gone, and so is the Lease, at the same time.
func TestARecordThatIsBeingCreatedIsAbandonedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInstance(t, newRegistry(t))
		i.controller.abandoned = true
		answer := make(chan struct{})
		i.registry.after = func(_ context.Context, r request, _ *shardingv1alpha1.ControllerInstance) error {
			if r.verb == "create" {
				<-answer
			}
			return nil
		}
		_, done := i.start()
		synctest.Wait()
		const name = "workloads-2"
		if _, ok := i.registry.get(name); !ok {
			t.Fatal("the record has not been created")
		}
		abandoned := make(chan error)
		go func() { abandoned <- i.Abandon(testContext(t)) }()
		synctest.Wait()
		close(answer)
		if err := <-abandoned; err != nil {
			t.Fatal(err)
		}
		if _, ok := i.registry.get(name); ok {
			t.Error("the process leaves its record")
		}
		<-done
	})
}

func TestAnAnswerOfAServerWithoutTheFenceStopsAllWorkForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInstance(t, newRegistry(t))
		i.start()
		i.works()
		s := &server{}
		rt := i.gate.WrapTransport(controllerName)(s)
		answer := func(method, header string, code int) {
			t.Helper()
			s.answer = func(*http.Request) (*http.Response, error) {
				resp := response(code, strings.NewReader(""))
				resp.Header.Set(fence.Header, header)
				return resp, nil
			}
			resp, err := send(t, rt, method)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			synctest.Wait()
		}
		answer(http.MethodGet, "", http.StatusOK)
		answer(http.MethodPost, "judged", http.StatusCreated)
		answer(http.MethodPut, "", http.StatusConflict)
		answer(http.MethodPut, "", http.StatusTooManyRequests)
		if !i.door().isOpen() {
			t.Fatal("the door is shut though nothing was carried out without being judged")
		}
		epoch := i.record().Status.Epoch
		answer(http.MethodPost, "", http.StatusCreated)
		// The rest of the work in hand is not sent either.
		if _, err := send(t, rt, http.MethodPost); err == nil {
			t.Error("a request was sent to where nobody judges")
		}
		answer(http.MethodGet, "", http.StatusOK)
		i.waits("an API server without the feature gate ControllerRing has answered (POST /path)")
		if got := i.record().Status.Epoch; got != epoch+1 {
			t.Errorf("the epoch is %d, want %d", got, epoch+1)
		}
		time.Sleep(barredTime - time.Second)
		if i.door().isOpen() {
			t.Error("the door is open too early")
		}
		i.works()
	})
}

// A leader waits for that work, so it must not be forgotten while other work gets on.
func TestWorkThatHangsBehindAShutDoorCostsTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &election{}
		e.lead("host;controllers=", true)
		i := under(t, newRegistry(t), e, func(c *Config) {
			c.Controllers = map[string]Controller{controllerName: c.Controllers[controllerName], "job-controller": b0{}}
		})
		i.controller.abandoned = true
		i.start()
		other := i.gate.For("job-controller")
		eventually(t, "both doors are open", func() bool { return i.door().ServesAll() && other.ServesAll() })
		self, _ := i.gate.identity()
		leave := i.work(1)
		defer leave()
		working, end := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer end()
		wg.Go(func() {
			for working.Err() == nil {
				if leave, ok := other.Enter(2); ok {
					leave()
				}
				time.Sleep(time.Second)
			}
		})
		time.Sleep(2 * DefaultHungLimit)
		if _, ok := i.registry.get(self.Name); !ok {
			t.Fatal("the record is gone while the door is open")
		}
		e.lead("host;controllers="+controllerName, true)
		time.Sleep(DefaultHungLimit + 2*lease)
		if _, ok := i.registry.get(self.Name); ok {
			t.Error("the record is still renewed")
		}
	})
}
