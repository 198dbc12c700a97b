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

package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/storage/etcd3/testserver"
)

// newServer returns what an API server that starts now knows of its etcd.
func newServer() *etcd { return newEtcd("test", "registry", nil) }

// looks lets the API server look once, and returns what it knows then.
func (e *etcd) looks(t *testing.T, c *clientv3.Client) (record, error) {
	t.Helper()
	last, err := e.check(t.Context(), newLooker(c, e.key))
	if err == nil {
		e.setLast(last)
	}
	return last, err
}

// identity has the API server look, and returns the identity.
func (e *etcd) identity(t *testing.T, c *clientv3.Client) string {
	t.Helper()
	last, err := e.looks(t, c)
	if err != nil {
		t.Fatal(err)
	}
	return last.ID
}

// stored returns the record in etcd, after change has changed it.
func stored(t *testing.T, c *clientv3.Client, change func(*record)) record {
	t.Helper()
	key := newServer().key
	read, err := c.KV.Get(t.Context(), key)
	if err != nil || len(read.Kvs) != 1 {
		t.Fatalf("%s: %v, %v", key, read, err)
	}
	r := parse(read.Kvs[0])
	if change == nil {
		return r
	}
	change(&r)
	value, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.KV.Put(t.Context(), key, string(value)); err != nil {
		t.Fatal(err)
	}
	return r
}

// What raises the revision and what does not, many at once: the lead is within its bounds at each
// look, and no later look takes the history for another.
func TestNoLookTakesAHistoryForAnother(t *testing.T) {
	c := testserver.RunEtcd(t, nil).Client
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	defer writers.Wait()
	defer cancel()
	for n := range 4 {
		writers.Go(func() {
			key := fmt.Sprintf("/registry/pods/%d", n)
			for i := 0; ctx.Err() == nil; i++ {
				switch i % 5 {
				case 0:
					_, _ = c.KV.Delete(ctx, key)
				case 1:
					_, _ = c.KV.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", -1)).Then(clientv3.OpPut(key, "never")).Commit()
				case 2:
					// Two keys at one revision.
					_, _ = c.KV.Txn(ctx).Then(clientv3.OpPut(key, "a"), clientv3.OpPut(key+"b", "b")).Commit()
				case 3:
					if lease, err := c.Grant(ctx, 60); err == nil {
						_, _ = c.KV.Put(ctx, key, "leased", clientv3.WithLease(lease.ID))
						_, _ = c.Revoke(ctx, lease.ID)
					}
				default:
					_, _ = c.KV.Put(ctx, key, "put")
				}
			}
		})
	}
	l := newLooker(c, newServer().key)
	var bounds []record
	for range 100 {
		first, err := l.look(ctx)
		if err != nil {
			t.Fatal(err)
		}
		second, err := l.look(ctx)
		if err != nil {
			t.Fatal(err)
		}
		bounds = append(bounds, record{ID: "a", Cluster: first.cluster, Lead: first.applied - second.revision})
		for _, before := range bounds {
			if reason := second.divergence(before); reason != "" {
				t.Fatal(reason)
			}
		}
	}
	if first, last := bounds[0], bounds[len(bounds)-1]; last.Lead <= first.Lead {
		t.Errorf("the lead was %d or more, and is %d or more: the writers have not raised it", first.Lead, last.Lead)
	}
}

func TestAllAPIServersTellTheIdentityThatIsStored(t *testing.T) {
	c := testserver.RunEtcd(t, nil).Client
	const servers = 8
	identities := make([]string, servers)
	var started sync.WaitGroup
	for n := range servers {
		started.Go(func() {
			if last, err := newServer().looks(t, c); err == nil {
				identities[n] = last.ID
			}
		})
	}
	started.Wait()
	for _, identity := range identities {
		if want := stored(t, c, nil).ID; identity != want {
			t.Errorf("got identity %q, want that which is stored, %q", identity, want)
		}
	}
	e := newServer()
	for range 3 {
		if got := e.identity(t, c); got != identities[0] {
			t.Errorf("a look later the identity is %q, and was %q", got, identities[0])
		}
	}
}

func TestAnotherHistoryHasAnotherIdentity(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*record)
		reason string
	}{
		"a restore":                   {func(r *record) { r.Lead += 1000 }, "raft's index less the revision is"},
		"the data of another cluster": {func(r *record) { r.Cluster = "1" }, "cluster ID"},
	} {
		t.Run(name, func(t *testing.T) {
			c := testserver.RunEtcd(t, nil).Client
			runs := newServer()
			before := runs.identity(t, c)
			stored(t, c, test.change)
			after := newServer().identity(t, c)
			if before == after {
				t.Errorf("the identity is %s, as before", after)
			}
			if again := newServer().identity(t, c); again != after {
				t.Errorf("the next API server that starts tells %s, want %s", again, after)
			}
			// The same, as the one that ran meanwhile sees it.
			test.change(&runs.last)
			var diverged *divergedError
			if _, err := runs.looks(t, c); !errors.As(err, &diverged) || !strings.Contains(err.Error(), test.reason) {
				t.Errorf("an API server that has run meanwhile: got %v, want %q", err, test.reason)
			}
		})
	}
}

// An API server that runs ends by what others have found, too.
func TestAnAPIServerEndsOnceAnotherHasFoundAnotherHistory(t *testing.T) {
	c := testserver.RunEtcd(t, nil).Client
	runs := newServer()
	before := runs.identity(t, c)
	stored(t, c, func(r *record) { r.ID = "another" })
	var diverged *divergedError
	if _, err := runs.looks(t, c); !errors.As(err, &diverged) || !strings.Contains(err.Error(), before) {
		t.Errorf("got %v, want that the identity is not %s", err, before)
	}
}

func TestARecordThatIsGoneOrUnreadableIsWrittenAnew(t *testing.T) {
	c := testserver.RunEtcd(t, nil).Client
	runs := newServer()
	before := runs.identity(t, c)
	if _, err := c.KV.Delete(t.Context(), runs.key); err != nil {
		t.Fatal(err)
	}
	if got := runs.identity(t, c); got != before || stored(t, c, nil).ID != before {
		t.Errorf("an API server that runs tells %s, want %s", got, before)
	}
	for _, value := range []string{"", "{", "{}", "null", "7"} {
		if _, err := c.KV.Put(t.Context(), runs.key, value); err != nil {
			t.Fatal(err)
		}
		if got := newServer().identity(t, c); got == "" || got != stored(t, c, nil).ID {
			t.Errorf("%q: got identity %q", value, got)
		}
	}
}

// Until the history is known nothing is read, and an API server exits when it is another.
func TestFollow(t *testing.T) {
	c := testserver.RunEtcd(t, nil).Client
	exited := make(chan struct{})
	defer func(interval time.Duration, end func()) { lookInterval, exit = interval, end }(lookInterval, exit)
	lookInterval, exit = 10*time.Millisecond, func() { close(exited) }
	defer func(before bool) { looks = before }(looks)
	looks = false
	here, there := []string{t.TempDir()}, []string{t.TempDir()}
	e := follow(c, here, "registry")
	if err := e.wait(t.Context()); err != nil || Identities()[e.name] != "" {
		t.Errorf("without a registry: %v, %v; want that nobody looks", err, Identities())
	}
	start()
	other := testserver.RunEtcd(t, nil).Client
	if later := follow(other, there, "registry"); later.wait(t.Context()) != nil || Identities()[later.name] == "" {
		t.Errorf("an etcd that is named later is not looked at")
	}
	if again := follow(c, here, "registry"); again != e {
		t.Error("two follow the same etcd")
	}
	if err := e.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if told := Identities(); told[e.name] != stored(t, c, nil).ID {
		t.Errorf("identities %v, want %s", told, stored(t, c, nil).ID)
	}
	stored(t, c, func(r *record) { r.ID = "another" })
	select {
	case <-exited:
	case <-time.After(wait.ForeverTestTimeout):
		t.Error("the API server lives on")
	}
}

// Nothing raises the lead of a directory that was put back, with raft's log and all; a process that
// has seen more notices it.
func TestAnAPIServerEndsWhenRevisionsGoBack(t *testing.T) {
	c := testserver.RunEtcd(t, nil).Client
	runs := newServer()
	for range 2 {
		runs.identity(t, c)
	}
	runs.revision += 100
	var diverged *divergedError
	if _, err := runs.looks(t, c); !errors.As(err, &diverged) || !strings.Contains(err.Error(), "its revision is") {
		t.Errorf("got %v, want that the revision was higher", err)
	}
}

// Endpoints may be dead, or those of others, or no etcd's.
func TestLooksAtEndpoints(t *testing.T) {
	etcd := testserver.RunEtcd(t, nil).Client
	e := newServer()
	if _, err := newLooker(etcd, e.key).statusOf(t.Context(), 1); !errors.Is(err, errNoMember) {
		t.Errorf("a member that does not answer: got %v, want %v", err, errNoMember)
	}
	// Another member answers where this one did.
	l := newLooker(etcd, e.key)
	read, err := etcd.KV.Get(t.Context(), e.key)
	if err != nil {
		t.Fatal(err)
	}
	l.endpoints[read.Header.MemberId] = testserver.RunEtcd(t, nil).Endpoints()[0]
	if status, err := l.statusOf(t.Context(), read.Header.MemberId); err != nil || status.Header.MemberId != read.Header.MemberId {
		t.Errorf("got the status %v, %v, want that of member %x", status, err, read.Header.MemberId)
	}
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	etcd.SetEndpoints(append([]string{"http://" + dead.Addr().String()}, etcd.Endpoints()...)...)
	for range 3 {
		e.identity(t, etcd)
	}
	other := grpc.NewServer()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = other.Serve(listener) }()
	defer other.Stop()
	etcd.SetEndpoints("http://" + listener.Addr().String())
	if _, err := newLooker(etcd, e.key).look(t.Context()); !isRefused(err) {
		t.Errorf("a backend that is no etcd: got %v, want that it will not tell", err)
	}
}
