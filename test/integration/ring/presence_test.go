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
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	rbac "k8s.io/api/rbac/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	shardingclient "k8s.io/client-go/kubernetes/typed/sharding/v1alpha1"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/client-go/tools/ring/host"
	ringmember "k8s.io/client-go/tools/ring/member"
	"k8s.io/component-base/metrics/legacyregistry"
)

// present is a process with one record.
type present struct {
	*worker
	s         *fenceServer
	presences *host.Presences
}

// present registers an instance of a process, with a connection of its own for presences.
func (s *fenceServer) present(t testing.TB, process, user string) *present {
	t.Helper()
	record := newRecord(process)
	record.Spec.HolderIdentity, record.Spec.LeaseDurationSeconds = process, 15
	config := restclient.CopyConfig(s.ClientConfig)
	config.Impersonate.UserName = user
	presences, err := host.NewPresences(config)
	if err != nil {
		t.Fatal(err)
	}
	return &present{s.register(t, record), s, presences}
}

// open opens a presence, which lasts until die is called.
func (p *present) open(why string) (die context.CancelFunc) {
	p.t.Helper()
	ctx, die := context.WithCancel(p.t.Context())
	_, err := p.presences.Open(ctx, p.identity, why)
	p.must(err)
	return die
}

// watches is a client whose watches of the record are presences.
func (p *present) watches() shardingclient.ControllerInstanceInterface {
	config := restclient.CopyConfig(p.s.ClientConfig)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			req = req.Clone(req.Context())
			req.Header.Set(fence.Header, p.identity.String())
			req.Header.Set(fence.PresenceHeader, fence.PresenceFirst)
			return next.RoundTrip(req)
		})
	})
	client, err := shardingclient.NewForConfig(config)
	p.must(err)
	return client.ControllerInstances()
}

// live renews the record all the time, until the function that it returns is called.
func (p *present) live() (die context.CancelFunc) {
	ctx, die := context.WithCancel(p.t.Context())
	go wait.UntilWithContext(ctx, p.renew, 100*time.Millisecond)
	return die
}

// renew renews the record, if it is there still.
func (p *present) renew(ctx context.Context) {
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q}}`, p.identity.UID)
	_, _ = p.registry.Patch(ctx, p.identity.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
}

// end follows the record. The function that it returns waits for its end, and returns its last
// state.
func (p *present) end() func() *shardingv1alpha1.ControllerInstance {
	p.t.Helper()
	w, err := p.s.instances().Watch(p.t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + p.identity.Name})
	p.must(err)
	return func() *shardingv1alpha1.ControllerInstance {
		p.t.Helper()
		defer w.Stop()
		for event := range w.ResultChan() {
			if event.Type == watch.Deleted {
				return event.Object.(*shardingv1alpha1.ControllerInstance)
			}
		}
		p.t.Fatalf("the watch of %s ended before the record", p.identity.Name)
		return nil
	}
}

// verdicts returns how many inquests have ended so, in this process.
func verdicts(t testing.TB, verdict string) (n float64) {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "apiserver_controller_ring_presence_ends_total" {
			continue
		}
		for _, metric := range family.Metric {
			if metric.Label[0].GetValue() == verdict {
				n += metric.Counter.GetValue()
			}
		}
	}
	return n
}

var allVerdicts = []string{"removed", "renewed", "reopened", "unsteady", "several", "late", "slow", "unclear", "many"}

// awaitVerdicts calls f, which ends presences, until n inquests have ended with that verdict. Where
// this machine is busy, server or etcd are late, and f is called again.
func (s *fenceServer) awaitVerdicts(t testing.TB, verdict string, n float64, f func()) {
	t.Helper()
	for {
		before, busy := verdicts(t, verdict), verdicts(t, "late")+verdicts(t, "slow")+verdicts(t, "unclear")
		f()
		again := false
		if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			again = verdicts(t, "late")+verdicts(t, "slow")+verdicts(t, "unclear") > busy
			return again || verdicts(t, verdict) >= before+n, nil
		}); err != nil {
			all := map[string]float64{}
			for _, v := range allVerdicts {
				all[v] = verdicts(t, v)
			}
			t.Fatalf("%v more with the verdict %q, want %v; in all %v", verdicts(t, verdict)-before, verdict, n, all)
		}
		if !again {
			return
		}
	}
}

func (p *present) has(want bool) {
	p.t.Helper()
	_, err := p.s.instances().Get(p.t.Context(), p.identity.Name, metav1.GetOptions{})
	if has := err == nil; has != want || !has && !apierrors.IsNotFound(err) {
		p.t.Errorf("%s has a record: %v (%v), want %v", p.identity.Name, has, err, want)
	}
}

func TestPresence(t *testing.T) {
	s := startFenceServer(t)
	// The first, as inquests of others would be counted, too.
	t.Run("What the server ends itself is no end", func(t *testing.T) {
		s := s.on(t)
		one := s.present(t, "times-out", "")
		defer one.live()()
		before := verdicts(t, "reopened")
		seconds := int64(1)
		w, err := one.watches().Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + one.identity.Name, TimeoutSeconds: &seconds})
		one.must(err)
		for range w.ResultChan() {
		}
		// An inquest into that one would end before that into this.
		s.awaitVerdicts(t, "renewed", 1, func() { one.open(fence.PresenceNext)() })
		if n := verdicts(t, "reopened") - before; n != 0 {
			t.Errorf("%v inquests into a watch whose time was over", n)
		}
		one.has(true)
	})
	t.Run("The record of a process that dies is removed", func(t *testing.T) {
		s := s.on(t)
		one, other := s.present(t, "dies", ""), s.present(t, "lives", "")
		began, told := time.Now(), one.end()
		defer other.open(fence.PresenceFirst)()
		defer other.live()()
		s.awaitVerdicts(t, "removed", 1, func() {
			one.renew(t.Context())
			one.open(fence.PresenceFirst)()
		})
		one.has(false)
		if ended := told().Status.PresenceEnded; ended == nil || ended.Time.Before(began) || ended.Time.After(time.Now()) {
			t.Errorf("the record's end says that its presence ended at %v, want a time since %v", ended, began)
		}
		other.has(true)
	})
	t.Run("That of one that renews stays", func(t *testing.T) {
		s := s.on(t)
		one := s.present(t, "renews", "")
		defer one.live()()
		s.awaitVerdicts(t, "renewed", 1, func() { one.open(fence.PresenceFirst)() })
		one.has(true)
	})
	t.Run("The newest presence counts", func(t *testing.T) {
		s := s.on(t)
		one := s.present(t, "opens", "")
		s.awaitVerdicts(t, "reopened", 1, func() {
			die := one.open(fence.PresenceFirst)
			t.Cleanup(one.open(fence.PresenceNext))
			die()
		})
		one.has(true)
	})
	t.Run("One that was opened in place of a lost one says nothing yet", func(t *testing.T) {
		s := s.on(t)
		one := s.present(t, "unsteady", "")
		s.awaitVerdicts(t, "unsteady", 1, func() { one.open(fence.PresenceLost)() })
		one.has(true)
	})
	t.Run("Where several end at once none is removed", func(t *testing.T) {
		s := s.on(t)
		one, other := s.present(t, "one", ""), s.present(t, "other", "")
		s.awaitVerdicts(t, "several", 2, func() {
			one.renew(t.Context())
			other.renew(t.Context())
			first, second := one.open(fence.PresenceFirst), other.open(fence.PresenceFirst)
			first()
			second()
		})
		one.has(true)
		other.has(true)
	})
	t.Run("One that left is none that died", func(t *testing.T) {
		s := s.on(t)
		one := s.present(t, "leaves", "")
		die := one.open(fence.PresenceFirst)
		s.awaitVerdicts(t, "reopened", 1, func() {
			one.must(one.registry.Delete(t.Context(), one.identity.Name, metav1.DeleteOptions{}))
			die()
		})
	})
	t.Run("Who may not work on the ring", s.testPresenceOfOthers)
}

// testPresenceOfOthers: only who may work on a ring opens, replaces or ends a presence of its
// instances.
func (s *fenceServer) testPresenceOfOthers(t *testing.T) {
	s = s.on(t)
	const reader, person, worker = "presence-reader", "presence-person", "presence-worker"
	records := rbac.PolicyRule{
		Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"}, APIGroups: []string{shardingv1alpha1.GroupName},
		Resources: []string{"controllerinstances", "controllerinstances/status"},
	}
	right := func(verb, ring string) rbac.PolicyRule {
		return rbac.PolicyRule{Verbs: []string{verb}, APIGroups: []string{shardingv1alpha1.GroupName}, Resources: []string{"rings"}, ResourceNames: []string{ring}}
	}
	one := s.present(t, "watched", "")
	ring := one.identity.Ring
	s.allow(reader, records)
	s.allow(person, records, right("steer", ring), right("work", "other"))
	s.allow(worker, records, right("work", ring))
	as := func(user string) *host.Presences {
		config := restclient.CopyConfig(s.ClientConfig)
		config.Impersonate.UserName = user
		p, err := host.NewPresences(config)
		one.must(err)
		return p
	}
	defer one.live()()
	die := one.open(fence.PresenceFirst)
	// The API server has to have read the roles first.
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		_, err := as(worker).Open(ctx, one.identity, fence.PresenceNext)
		return err == nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	another := one.identity
	another.UID = "another"
	named := one.identity
	named.Name = "nobody"
	elsewhere := one.identity
	elsewhere.Ring = "other"
	for _, tc := range []struct {
		user     string
		identity fence.Identity
		why      string
		want     string
	}{
		{reader, one.identity, fence.PresenceNext, "403"},
		{person, one.identity, fence.PresenceNext, "403"},
		{person, elsewhere, fence.PresenceNext, "409"},
		{worker, another, fence.PresenceNext, "409"},
		{worker, named, fence.PresenceNext, "404"},
		{worker, one.identity, "forged", "400"},
	} {
		_, err := as(tc.user).Open(t.Context(), tc.identity, tc.why)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s opens a presence of %v (%s): %v, want %s", tc.user, tc.identity, tc.why, err, tc.want)
		}
	}
	die()
	s.awaitVerdicts(t, "renewed", 1, func() { one.open(fence.PresenceNext)() })
	one.has(true)
}

func TestAServerMayTrackNoPresences(t *testing.T) {
	s := startFenceServer(t, "--ignore-presence")
	one := s.present(t, "one", "")
	// Behind a load balancer the next connection may lead to a server that does.
	connections := 0
	config := restclient.CopyConfig(s.ClientConfig)
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		connections++
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	presences, err := host.NewPresences(config)
	one.must(err)
	for n := 1; n <= 2; n++ {
		if _, err := presences.Open(t.Context(), one.identity, fence.PresenceFirst); !errors.Is(err, ringmember.ErrNoPresence) {
			t.Errorf("%v, want %v", err, ringmember.ErrNoPresence)
		}
		if connections != n {
			t.Errorf("%d connections after %d requests, want as many", connections, n)
		}
	}
}
