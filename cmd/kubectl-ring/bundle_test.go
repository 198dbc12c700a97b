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

package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

// testMetrics are what an API server shows, in short.
const testMetrics = `# HELP apiserver_controller_ring_fence_refusals_total refused writes
apiserver_controller_ring_fence_refusals_total{reason="gone"} 1
apiserver_watch_cache_range_index_offered_events_total{group="",resource="pods"} 7
apiserver_request_total{verb="LIST"} 9
`

func newBundler(objects ...runtime.Object) *bundler {
	return &bundler{
		client: fake.NewClientset(objects...),
		raw: func(_ context.Context, path string) ([]byte, error) {
			return map[string][]byte{"/version": []byte(`{"major":"1"}`), "/metrics": []byte(testMetrics)}[path], nil
		},
		ask: func(_ context.Context, addresses []string) map[string]answer {
			answers := map[string]answer{}
			for _, address := range addresses {
				answers[address] = answer{raw: []byte(`{"of":"` + address + `"}`)}
			}
			if len(addresses) > 1 {
				answers[addresses[1]] = answer{err: errors.New("connection refused")}
			}
			return answers
		},
		now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
}

// unpack returns the files of an archive.
func unpack(t *testing.T, name string) map[string]string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(content)
	}
}

func TestBundle(t *testing.T) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-controller-manager"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("host-a_1")}}
	event := &v1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e", ResourceVersion: "5"}, InvolvedObject: v1.ObjectReference{Kind: "ControllerInstance", Name: "a"}, Reason: "Joined"}
	secret := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}, Data: map[string][]byte{"k": []byte("hidden")}}
	a, other, space := worker("a", "workloads", math.MaxInt64), worker("b", "workloads", 1), worker("s", "namespaces", 1)
	a.Spec.HolderIdentity, other.Spec.HolderIdentity, space.Spec.HolderIdentity = "[::1]:10257_1_x", "host-b:10257_1_x", "[::1]:10257_1_x"
	b := newBundler(a, other, space, lease, event, secret)
	file := filepath.Join(t.TempDir(), "mine.tar.gz")
	var out strings.Builder
	if err := b.write(t.Context(), file, &out); err != nil {
		t.Fatal(err)
	}
	files := unpack(t, file)
	for name, want := range map[string]string{
		"version.json":              `{"major":"1"}`,
		"metrics-of-api-server.txt": `offered_events_total{group="",resource="pods"} 7`,
		"controllerinstances.yaml":  "kind: ControllerInstanceList\n",
		"lease.yaml":                "holderIdentity: host-a_1\n",
		"events.yaml":               "reason: Joined\n",
		"rings.txt":                 "a         Active",
		"status.txt":                "workloads: every hash key is owned and worked on, by 2 instances\n",
		"balance.txt":               "workloads: balance is on, unless a settings file says otherwise\n",
		"history-of-workloads.txt":  "Joined",
		"history-of-namespaces.txt": "No instance has told of a handover.\n",
		"ringz-of-__1_10257.json":   `{"of":"[::1]:10257"}`,
		"errors.txt":                "ringz-of-host-b_10257.json: connection refused\n",
	} {
		got, ok := files["mine/"+name]
		if !ok || !strings.Contains(got, want) {
			t.Errorf("no %q in %s:\n%s", want, name, got)
		}
		delete(files, "mine/"+name)
		if !strings.Contains(out.String(), "  "+name+"\n") {
			t.Errorf("no %s in\n%s", name, out.String())
		}
		if strings.Contains(got, "hidden") || strings.Contains(got, "LIST") {
			t.Errorf("%s has what it should not:\n%s", name, got)
		}
	}
	if len(files) > 0 {
		t.Errorf("files that nobody wants: %v", files)
	}
	if want := "\n1 parts are missing or not complete: errors.txt says why\nWrote " + file + "\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("got\n%s", out.String())
	}

	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.write(t.Context(), file, &out); err == nil || !strings.Contains(err.Error(), "mine.tar.gz exists already: name another with --output, or remove it") {
		t.Errorf("again: %v", err)
	}
	if after, err := os.ReadFile(file); err != nil || !slices.Equal(before, after) {
		t.Errorf("the first one has changed: %v", err)
	}
}

// What a bundle reads is listed here: nothing that holds secrets.
func TestABundleReadsNoSecrets(t *testing.T) {
	b := newBundler(worker("a", "workloads", math.MaxInt64))
	b.collect(t.Context())
	for _, a := range b.client.(*fake.Clientset).Actions() {
		if r := a.GetResource().Resource; !slices.Contains([]string{"controllerinstances", "leases", "events"}, r) {
			t.Errorf("%s %s", a.GetVerb(), r)
		}
	}
}

func TestABundleIsMadeOfWhatThereIs(t *testing.T) {
	b := newBundler()
	nothing := errors.New("connection refused")
	b.client.(*fake.Clientset).PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nothing })
	files, failed := b.collect(t.Context())
	if len(files) != 2 || len(failed) != 6 {
		t.Errorf("got %d files, %v", len(files), failed)
	}

	little := filepath.Join(t.TempDir(), "little.tar.gz")
	if err := b.write(t.Context(), little, io.Discard); err == nil || !strings.Contains(err.Error(), "the ControllerInstances could not be read") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(little); err != nil {
		t.Error(err)
	}

	b.raw = func(context.Context, string) ([]byte, error) { return nil, nothing }
	file := filepath.Join(t.TempDir(), "none.tar.gz")
	if err := b.write(t.Context(), file, io.Discard); err == nil || !strings.Contains(err.Error(), "nothing could be read: ") || !errors.Is(err, nothing) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an archive of nothing: %v", err)
	}
}

func TestABundlesNameSaysWhatItIs(t *testing.T) {
	command := newCommand()
	command.SetArgs([]string{"bundle", "--output=x.zip"})
	command.SilenceErrors, command.SilenceUsage = true, true
	if err := command.ExecuteContext(t.Context()); err == nil || err.Error() != `--output is "x.zip", want a name that ends with .tar.gz` {
		t.Errorf("got %v", err)
	}
}
