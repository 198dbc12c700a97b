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
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/etcd3/testserver"
)

// newServer returns what an API server that starts now knows of its etcd.
func newServer() *etcd { return newEtcd("test", "registry") }

// looks lets the API server look once, and returns what it knows then.
func (e *etcd) looks(t *testing.T, c *clientv3.Client) (*record, error) {
	t.Helper()
	last, err := e.check(t.Context(), c)
	if err == nil {
		e.last = last
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
func stored(t *testing.T, c *clientv3.Client, change func(*record)) *record {
	t.Helper()
	key := newServer().key
	read, err := c.KV.Get(t.Context(), key)
	if err != nil || len(read.Kvs) != 1 {
		t.Fatalf("%s: %v, %v", key, read, err)
	}
	r := parse(read.Kvs[0].Value)
	if r == nil || change == nil {
		return r
	}
	change(r)
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
	var seen []*looked
	for range 100 {
		l, err := look(ctx, c, newServer().key)
		if err != nil {
			t.Fatal(err)
		}
		if l.min > l.max {
			t.Errorf("the lead is %d or more and %d or less", l.min, l.max)
		}
		for _, before := range seen {
			if reason := l.divergence(&record{Cluster: before.cluster, Lead: before.min}); reason != "" {
				t.Fatal(reason)
			}
		}
		seen = append(seen, l)
	}
	if first, last := seen[0], seen[len(seen)-1]; last.min <= first.max {
		t.Errorf("the lead is %d to %d, and was %d to %d: the writers have not raised it", last.min, last.max, first.min, first.max)
	}
}

func TestAllAPIServersTellTheIdentityThatIsStored(t *testing.T) {
	c := testserver.RunEtcd(t, nil).Client
	const servers = 8
	identities := make([]string, servers)
	var started sync.WaitGroup
	for n := range servers {
		started.Go(func() {
			if last, err := newServer().check(t.Context(), c); err == nil {
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
			test.change(runs.last)
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
	e := follow(c, []string{"here"}, "registry")
	if again := follow(c, []string{"here"}, "registry"); again != e {
		t.Error("two follow the same etcd")
	}
	if err := e.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if told := Identities(); told[e.name] != stored(t, c, nil).ID || len(told) != 1 {
		t.Errorf("identities %v, want %s", told, stored(t, c, nil).ID)
	}
	stored(t, c, func(r *record) { r.Cluster = "1" })
	<-exited
}
