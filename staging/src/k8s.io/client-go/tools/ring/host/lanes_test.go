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

package host

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	shardingclient "k8s.io/client-go/kubernetes/typed/sharding/v1alpha1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/ring/member"
	"k8s.io/utils/clock"
)

// dialed is a server of HTTP/2 that notes over which connection each request has come.
type dialed struct {
	lock sync.Mutex
	from []string
	// arrived gets a token from each request for a record called slow, which then has no answer.
	arrived chan struct{}
}

func (d *dialed) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	d.lock.Lock()
	d.from = append(d.from, req.RemoteAddr)
	d.lock.Unlock()
	if req.URL.Path == "/apis/sharding.k8s.io/v1alpha1/controllerinstances/slow" {
		d.arrived <- struct{}{}
		<-req.Context().Done()
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write([]byte(`{"kind": "ControllerInstance", "apiVersion": "sharding.k8s.io/v1alpha1"}`))
}

// connections returns over how many connections the requests since the last call have come.
func (d *dialed) connections() int {
	d.lock.Lock()
	defer d.lock.Unlock()
	slices.Sort(d.from)
	n := len(slices.Compact(d.from))
	d.from = nil
	return n
}

func newDialed(t *testing.T) (*dialed, shardingclient.ControllerInstanceInterface) {
	d := &dialed{arrived: make(chan struct{})}
	server := httptest.NewUnstartedServer(d)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	client, err := NewRegistry(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, member.NewGate(clock.RealClock{}))
	if err != nil {
		t.Fatal(err)
	}
	return d, client
}

func TestRequestsInTurnShareAConnection(t *testing.T) {
	d, client := newDialed(t)
	for range 10 {
		if _, err := client.Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := d.connections(); n != 1 {
		t.Errorf("ten requests came over %d connections, want 1", n)
	}
}

func TestNoRequestSharesAConnectionWithOneThatIsUnanswered(t *testing.T) {
	d, client := newDialed(t)
	ctx, cancel := context.WithCancel(t.Context())
	var slow sync.WaitGroup
	for range 3 {
		slow.Go(func() {
			if _, err := client.Get(ctx, "slow", metav1.GetOptions{}); err == nil {
				t.Error("a request was answered")
			}
		})
		<-d.arrived
	}
	if _, err := client.Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := d.connections(); n != 4 {
		t.Errorf("four requests at once came over %d connections, want 4", n)
	}
	cancel()
	slow.Wait()
}

func TestAConnectionWhoseRequestWasGivenUpIsNotUsedAgain(t *testing.T) {
	d, client := newDialed(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-d.arrived
		cancel()
	}()
	if _, err := client.Get(ctx, "slow", metav1.GetOptions{}); err == nil {
		t.Error("the request was answered")
	}
	if _, err := client.Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := d.connections(); n != 2 {
		t.Errorf("the next request came over the same connection")
	}
}
