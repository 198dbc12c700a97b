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

package ring

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/ring"
	ringmember "k8s.io/client-go/tools/ring/member"
	"k8s.io/klog/v2"
	kubeapiservertesting "k8s.io/kubernetes/cmd/kube-apiserver/app/testing"
	"k8s.io/kubernetes/test/integration/framework"
	"k8s.io/utils/clock"
)

const crowdController = "crowd-controller"

// crowdLease is so long that no time limit passes on a machine that stalls for half of it: past
// those, ranges are handed over cold.
const crowdLease = time.Minute

// fillTime is how long the caches of a crowd's instance take to follow a range.
const fillTime = 200 * time.Millisecond

// crowd is many instances of one ring in this process, on a real API server. Their
// controllers have keys, but no objects.
type crowd struct {
	config *restclient.Config
	// watchLag is by how much the watches of those that join from now on lag.
	watchLag time.Duration
	// refused counts their requests that were answered with 409 or 422.
	refused atomic.Int64
	keys    []int64
	wg      sync.WaitGroup

	lock    sync.Mutex
	members map[*instance]struct{}
	// handovers counts those that have ended, by kind and result.
	handovers map[handover]int
}

type handover struct {
	kind   ring.Kind
	result string
}

// instance is a member with its informer and its controller.
type instance struct {
	crowd *crowd
	gate  *ringmember.Gate
	leave context.CancelFunc

	lock    sync.Mutex
	want    hashkey.Ranges
	held    hashkey.Ranges
	changed chan struct{}
}

func newCrowd(t *testing.T) *crowd {
	server := kubeapiservertesting.StartTestServerOrDie(t, nil, framework.DefaultTestServerFlags(), framework.SharedEtcd())
	t.Cleanup(server.TearDownFn)
	c := &crowd{config: restclient.CopyConfig(server.ClientConfig), members: map[*instance]struct{}{}, handovers: map[handover]int{}}
	c.config.QPS = -1
	r := rand.New(rand.NewSource(1))
	for range 3000 {
		c.keys = append(c.keys, r.Int63())
	}
	// Before the server ends.
	t.Cleanup(func() {
		c.leave(c.all()...)
		c.wg.Wait()
	})
	return c
}

// join starts n instances.
func (c *crowd) join(ctx context.Context, t *testing.T, n int) {
	t.Helper()
	for range n {
		i := &instance{crowd: c, gate: ringmember.NewGate(clock.RealClock{}), changed: make(chan struct{}, 1)}
		config := restclient.CopyConfig(c.config)
		lag := c.watchLag
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &slowWatches{next, lag, &c.refused} })
		config.Wrap(i.gate.WrapRegistryTransport)
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		m, err := ringmember.New(ringmember.Config{
			Client:         client.ShardingV1alpha1().ControllerInstances(),
			Ring:           "crowd",
			Controllers:    map[string]ringmember.Controller{crowdController: i},
			HolderIdentity: fmt.Sprintf("host-%d_%p", rand.Int63(), i),
			LeaseDuration:  crowdLease,
			Gate:           i.gate,
			Sources:        []ringmember.Source{i},
			Metrics:        metrics{crowd: c},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), klog.Logger{}))
		i.leave = cancel
		c.lock.Lock()
		c.members[i] = struct{}{}
		c.lock.Unlock()
		c.wg.Go(func() {
			m.Run(ctx)
			c.lock.Lock()
			delete(c.members, i)
			c.lock.Unlock()
		})
	}
}

func (c *crowd) all() []*instance {
	c.lock.Lock()
	defer c.lock.Unlock()
	var all []*instance
	for i := range c.members {
		all = append(all, i)
	}
	return all
}

func (c *crowd) leave(instances ...*instance) {
	for _, i := range instances {
		i.leave()
	}
}

// serve waits until so many instances take part, each works on a range of its own, and they
// work on all keys together.
func (c *crowd) serve(ctx context.Context, t *testing.T, n int) time.Duration {
	t.Helper()
	began := time.Now()
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 5*time.Minute, true, func(context.Context) (bool, error) {
		all := c.all()
		working := 0
		for _, i := range all {
			if slices.ContainsFunc(c.keys, i.gate.For(crowdController).Serves) {
				working++
			}
		}
		served := !slices.ContainsFunc(c.keys, func(key int64) bool {
			return !slices.ContainsFunc(all, func(i *instance) bool { return i.gate.For(crowdController).Serves(key) })
		})
		return len(all) == n && working == n && served, nil
	})
	if err != nil {
		t.Fatalf("%d instances do not work on all keys together: %v", n, err)
	}
	return time.Since(began)
}

// registered waits until so many instances are in the registry.
func (c *crowd) registered(ctx context.Context, t *testing.T, n int) {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, wait.ForeverTestTimeout, true, func(ctx context.Context) (bool, error) {
		list, err := client.ShardingV1alpha1().ControllerInstances().List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == n, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// take returns the handovers that have ended since it was last called.
func (c *crowd) take() map[handover]int {
	c.lock.Lock()
	defer c.lock.Unlock()
	handovers := c.handovers
	c.handovers = map[handover]int{}
	return handovers
}

// SetRanges implements member.Source.
func (i *instance) SetRanges(ranges hashkey.Ranges) {
	i.lock.Lock()
	defer i.lock.Unlock()
	i.want, i.held = ranges, i.held.Intersect(ranges)
	time.AfterFunc(fillTime, func() {
		i.lock.Lock()
		defer i.lock.Unlock()
		if i.want.Equal(ranges) {
			i.held = ranges
			select {
			case i.changed <- struct{}{}:
			default:
			}
		}
	})
}

// Held implements member.Source.
func (i *instance) Held() hashkey.Ranges {
	i.lock.Lock()
	defer i.lock.Unlock()
	return i.held
}

// HeldChanged implements member.Source.
func (i *instance) HeldChanged() <-chan struct{} { return i.changed }

// Diverged implements member.Source.
func (i *instance) Diverged() string { return "" }

// Waits implements member.Source.
func (i *instance) Waits() string { return "" }

// WaitFor implements member.Source.
func (i *instance) WaitFor(ctx context.Context, ranges hashkey.Ranges) error {
	return wait.PollUntilContextCancel(ctx, 5*time.Millisecond, true, func(context.Context) (bool, error) {
		return i.Held().Covers(ranges), nil
	})
}

// Keys implements member.Controller.
func (i *instance) Keys(ranges hashkey.Ranges) []int64 {
	return slices.DeleteFunc(slices.Clone(i.crowd.keys), func(key int64) bool { return !ranges.Contains(key) })
}

// Acquired implements member.Controller.
func (i *instance) Prepare(hashkey.Ranges)                   {}
func (i *instance) Acquired(context.Context, hashkey.Ranges) {}

// Released implements member.Controller.
func (i *instance) Released(hashkey.Ranges) {}

// metrics counts the handovers of a crowd.
type metrics struct{ crowd *crowd }

var _ ringmember.Metrics = metrics{}

// HandedOver implements member.Metrics, as the methods below do.
func (m metrics) HandedOver(kind ring.Kind, result string) {
	m.crowd.lock.Lock()
	defer m.crowd.lock.Unlock()
	m.crowd.handovers[handover{kind, result}]++
}

func (metrics) Registered()                                   {}
func (metrics) Present(bool)                                  {}
func (metrics) State(shardingv1alpha1.InstancePhase, float64) {}
func (metrics) Load(int64, int64)                             {}
func (metrics) Heaviest(float64)                              {}
func (metrics) Work(float64)                                  {}
func (metrics) Balanced(string)                               {}
func (metrics) Working(string, bool)                          {}
func (metrics) Stuck(string, int)                             {}
func (metrics) Renewed(string)                                {}
func (metrics) News(string)                                   {}
func (metrics) Step(string, time.Duration)                    {}
func (metrics) Unserved(ring.Kind, time.Duration)             {}
func (metrics) Refused(string)                                {}

// Whoever is to receive a range fills its caches while the donor works on, however many
// come at once. Where many leave at once, most do.
func TestACrowdThatJoinsAndLeavesAtOnceHandsOverWarm(t *testing.T) {
	ctx := t.Context()
	c := newCrowd(t)
	c.join(ctx, t, 1)
	c.serve(ctx, t, 1)
	// mayBeCold is the part of the handovers that may end cold.
	wantWarm := func(what string, mayBeCold float64) {
		t.Helper()
		handovers := c.take()
		t.Logf("%s: %v", what, handovers)
		cold, all := 0, 0
		for h, n := range handovers {
			// Where a donor is told to leave while it serves a handover, it calls that off.
			switch h.result {
			case ringmember.ResultCold:
				cold += n
				fallthrough
			case ringmember.ResultWarm:
				all += n
			}
		}
		if float64(cold) > mayBeCold*float64(all) {
			t.Errorf("%s: %d of %d handovers ended cold", what, cold, all)
		}
	}
	c.take()

	c.join(ctx, t, 49)
	t.Logf("49 join one: %v", c.serve(ctx, t, 50))
	wantWarm("49 join one", 0)

	stay := c.all()[:3]
	c.leave(slices.DeleteFunc(c.all(), func(i *instance) bool { return slices.Contains(stay, i) })...)
	t.Logf("47 of 50 leave: %v", c.serve(ctx, t, 3))
	wantWarm("47 of 50 leave", 0.5)

	// The last takes over from all that were there.
	c.join(ctx, t, 1)
	c.registered(ctx, t, 4)
	c.leave(stay...)
	t.Logf("all leave while one joins: %v", c.serve(ctx, t, 1))
	wantWarm("all leave while one joins", 0)
}

// slowWatches delivers what a watch sends that much later.
type slowWatches struct {
	next    http.RoundTripper
	lag     time.Duration
	refused *atomic.Int64
}

func (s *slowWatches) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := s.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusConflict || resp.StatusCode == http.StatusUnprocessableEntity {
		s.refused.Add(1)
	}
	if req.URL.Query().Get("watch") != "" && s.lag > 0 {
		resp.Body = newSlowBody(resp.Body, s.lag)
	}
	return resp, nil
}

// slowBody is a body whose parts are read some time after they have come.
type slowBody struct {
	io.Closer
	parts chan part
	rest  []byte
}

type part struct {
	due  time.Time
	data []byte
	err  error
}

func newSlowBody(body io.ReadCloser, lag time.Duration) *slowBody {
	s := &slowBody{Closer: body, parts: make(chan part, 1000)}
	go func() {
		defer close(s.parts)
		for {
			data := make([]byte, 64<<10)
			n, err := body.Read(data)
			s.parts <- part{time.Now().Add(lag), data[:n], err}
			if err != nil {
				return
			}
		}
	}()
	return s
}

func (s *slowBody) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		next, ok := <-s.parts
		if !ok {
			return 0, io.EOF
		}
		time.Sleep(time.Until(next.due))
		if s.rest = next.data; next.err != nil && len(s.rest) == 0 {
			return 0, next.err
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// Where watches lag, those that wait for a peer list the registry. How long a join and a
// move take is logged; a noisy machine must not fail the test.
func TestAJoinAndAMoveEndThoughWatchesLagBySeconds(t *testing.T) {
	ctx := t.Context()
	c := newCrowd(t)
	c.watchLag = 3 * time.Second
	c.join(ctx, t, 1)
	c.serve(ctx, t, 1)
	c.join(ctx, t, 1)
	t.Logf("watches lag by %v, a second instance joins: %v, %d requests refused", c.watchLag, c.serve(ctx, t, 2), c.refused.Swap(0))

	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		t.Fatal(err)
	}
	instances := client.ShardingV1alpha1().ControllerInstances()
	list, err := instances.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The lower boundary moves down, to half of what it was.
	slices.SortFunc(list.Items, func(a, b shardingv1alpha1.ControllerInstance) int {
		return cmp.Compare(*a.Spec.HashKey, *b.Spec.HashKey)
	})
	low := list.Items[0]
	to := *low.Spec.HashKey / 2
	began := time.Now()
	if _, err := instances.Patch(ctx, low.Name, types.MergePatchType, []byte(fmt.Sprintf(`{"spec":{"nextHashKey":%d}}`, to)), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		instance, err := instances.Get(ctx, low.Name, metav1.GetOptions{})
		return err == nil && *instance.Spec.HashKey == to && instance.Spec.NextHashKey == nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
	c.serve(ctx, t, 2)
	t.Logf("watches lag by %v, a boundary moves: %v, %d requests refused", c.watchLag, time.Since(began), c.refused.Load())
	if n := c.refused.Load(); n > 20 {
		t.Errorf("%d requests were refused, want at most 20", n)
	}
}
