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
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/ring/fence"
	ringmember "k8s.io/client-go/tools/ring/member"
	kubeapiservertesting "k8s.io/kubernetes/cmd/kube-apiserver/app/testing"
	"k8s.io/kubernetes/test/integration/framework"
	"k8s.io/kubernetes/test/utils/etcdbackup"
)

// restorable is an etcd and an API server that can be stopped and started, with other data.
type restorable struct {
	*testing.T
	dir, url, peer string
	stopEtcd       func()
	server         *kubeapiservertesting.TestServer
}

// start starts etcd on that data, and an API server.
func (r *restorable) start(data string) {
	r.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	etcd := exec.CommandContext(ctx, "etcd", "--data-dir", data, "--listen-client-urls", r.url, "--advertise-client-urls", r.url,
		"--listen-peer-urls", r.peer, "--initial-advertise-peer-urls", r.peer, "--initial-cluster", "default="+r.peer, "--log-level", "error", "--unsafe-no-fsync")
	etcd.Stderr = os.Stderr
	if err := etcd.Start(); err != nil {
		r.Fatal(err)
	}
	r.stopEtcd = sync.OnceFunc(func() {
		cancel()
		_ = etcd.Wait()
	})
	storage := storagebackend.NewDefaultConfig("/registry", nil)
	storage.Transport.ServerList = []string{r.url}
	r.server = kubeapiservertesting.StartTestServerOrDie(r.T, nil, framework.DefaultTestServerFlags(), storage)
}

func (r *restorable) stop() {
	if r.server != nil {
		r.server.TearDownFn()
		r.server = nil
	}
	r.stopEtcd()
}

// revision returns that of the API server's data, after n writes.
func (r *restorable) revision(writes int) string {
	r.Helper()
	config := rest.CopyConfig(r.server.ClientConfig)
	config.QPS = -1
	maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
	for range writes {
		if _, err := maps.Create(r.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "written-"}}, metav1.CreateOptions{}); err != nil {
			r.Fatal(err)
		}
	}
	list, err := maps.List(r.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		r.Fatal(err)
	}
	return list.ResourceVersion
}

// restore makes data of a backup, with further flags.
func (r *restorable) restore(backup string, flags ...string) (data string) {
	r.Helper()
	data = backup + ".data"
	if err := etcdbackup.Restore("etcdutl", backup, data, "default", r.peer, flags...); err != nil {
		r.Fatal(err)
	}
	return data
}

// noticing is what the clients of one process notice. What they say goes into changed.
type noticing struct {
	*ringmember.Histories
	changed chan string
}

func newNoticing() *noticing {
	n := &noticing{changed: make(chan string, 100)}
	n.Histories = ringmember.NewHistories(func(reason string) { n.changed <- reason })
	return n
}

// get reads a namespace, from the watch cache.
func (n *noticing) get(r *restorable) error {
	config := rest.CopyConfig(r.server.ClientConfig)
	config.Wrap(n.WrapTransport)
	// The API server is another after each start, at the same address to its clients.
	server, err := url.Parse(config.Host)
	if err != nil {
		return err
	}
	config.Host = "https://127.0.0.1:1"
	config.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server.Host)
	}
	_, err = kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().Get(r.Context(), "default", metav1.GetOptions{})
	return err
}

// A client that has seen a lost history learns it with the first answer, whichever revisions etcd
// has by then; restarts are nothing to it, and who does not ask is told nothing.
func TestARestoreIsNoticedAtAnyRevision(t *testing.T) {
	peers, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	peers.Close()
	dir, err := os.MkdirTemp("", "restore")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &restorable{T: t, dir: dir, url: "unix://" + filepath.Join(dir, "etcd.sock"), peer: "http://" + peers.Addr().String()}
	t.Cleanup(r.stop)
	data := filepath.Join(dir, "first")
	r.start(data)
	client := newNoticing()
	if err := client.get(r); err != nil {
		t.Fatal(err)
	}
	r.revision(10)
	r.stop()
	r.start(data)
	if err := client.get(r); err != nil || len(client.changed) > 0 {
		t.Fatalf("after a restart: %v; want nothing", err)
	}
	for _, test := range []struct {
		name  string
		flags []string
	}{
		{"to an older revision", nil},
		{"with a bump", []string{"--bump-revision", "1000000", "--mark-compacted"}},
		{"of another cluster's data", []string{"--initial-cluster-token", "another"}},
	} {
		backup := filepath.Join(dir, test.name)
		if err := etcdbackup.Take(t.Context(), r.url, backup); err != nil {
			t.Fatal(err)
		}
		before := r.revision(20)
		r.stop()
		r.start(r.restore(backup, test.flags...))
		if after := r.revision(60); len(after) < len(before) || len(after) == len(before) && after <= before {
			t.Fatalf("a restore %s: at revision %s now, want that it has passed %s", test.name, after, before)
		}
		for range 2 {
			if err := client.get(r); err == nil || !strings.Contains(err.Error(), "history of etcd") {
				t.Errorf("a restore %s: got %v, want that the history is another", test.name, err)
			}
		}
		select {
		case <-client.changed:
		case <-time.After(wait.ForeverTestTimeout):
			t.Errorf("a restore %s: the process is not told", test.name)
		}
		// The next process.
		client = newNoticing()
		if err := client.get(r); err != nil {
			t.Errorf("the next client: %v", err)
		}
	}
	plain, err := rest.HTTPClientFor(r.server.ClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := plain.Get(fmt.Sprintf("%s/api/v1/namespaces/default", r.server.ClientConfig.Host))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if told := resp.Header.Get(fence.HistoryHeader); told != "" || resp.StatusCode != http.StatusOK {
		t.Errorf("who does not ask gets %s and is told %q, want nothing", resp.Status, told)
	}
}
