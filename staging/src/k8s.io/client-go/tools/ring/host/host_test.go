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
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// request is what controller-runtime's Request is.
type request struct{ types.NamespacedName }

func good() Config {
	return Config{REST: &rest.Config{Host: "127.0.0.1:1"}, Ring: "a", Controllers: []Controller{{Name: "c", Works: &v1.ConfigMap{}, Owns: []runtime.Object{&v1.Pod{}}}}}
}

func TestABadConfigurationIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Config)
		err    string
	}{
		"no ring":                         {func(c *Config) { c.Ring = "" }, "needs REST, Ring and Controllers"},
		"no controller":                   {func(c *Config) { c.Controllers = nil }, "needs REST, Ring and Controllers"},
		"no name":                         {func(c *Config) { c.Controllers[0].Name = "" }, "needs Name and Works"},
		"nothing to work on":              {func(c *Config) { c.Controllers[0].Works = nil }, "needs Name and Works"},
		"an unknown key":                  {func(c *Config) { c.Reads = []Read{{&v1.Node{}, "spec.x"}} }, `*v1.Node by "spec.x": use a path of hash keys`},
		"no example":                      {func(c *Config) { c.Reads = []Read{{nil, Whole}} }, "without an example"},
		"a read twice":                    {func(c *Config) { c.Reads = []Read{{&v1.Node{}, Whole}, {&v1.Node{}, Whole}} }, "Reads lists *v1.Node, all twice"},
		"works on what is in every range": {func(c *Config) { c.Reads = []Read{{&v1.ConfigMap{}, sharding.ControllerHashKeyPath}} }, `c works on *v1.ConfigMap, which Reads divides by "object.metadata.controllerRef.hashKey": use`},
		"a controller twice":              {func(c *Config) { c.Controllers = append(c.Controllers, Controller{Name: "c", Works: &v1.Secret{}}) }, `Controllers lists "c" twice`},
		"one's objects twice":             {func(c *Config) { c.Controllers = append(c.Controllers, Controller{Name: "d", Works: &v1.ConfigMap{}}) }, "d works on *v1.ConfigMap, as another controller does"},
		"another's objects owned": {func(c *Config) {
			c.Controllers = append(c.Controllers, Controller{Name: "d", Works: &v1.Secret{}, Owns: []runtime.Object{&v1.ConfigMap{}}})
		}, `d owns *v1.ConfigMap, which is divided by "object.metadata.hashKey" for another controller`},
		"its own kind owned":   {func(c *Config) { c.Controllers[0].Owns = []runtime.Object{&v1.ConfigMap{}} }, "c owns *v1.ConfigMap, which is divided by"},
		"metadata of any kind": {func(c *Config) { c.Reads = []Read{{&metav1.PartialObjectMetadata{}, Whole}} }, "without a kind"},
		"no settings":          {func(c *Config) { c.SettingsFile = "/does/not/exist" }, "ring settings /does/not/exist"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good()
			tc.change(&cfg)
			if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("error %v, want one with %q", err, tc.err)
			}
		})
	}
	if _, err := New(good()); err != nil {
		t.Error(err)
	}
}

func TestByDefaultTheHomeKeyGovernsWrites(t *testing.T) {
	h, err := New(good())
	if err != nil {
		t.Fatal(err)
	}
	if got := h.controllers[0].Writes; len(got) != 1 || got[0] != (Write{"*", "*", shardingv1alpha1.GoverningKeyHome}) {
		t.Errorf("writes %v", got)
	}
}

// What lies in one namespace is with one instance then, whoever its controller is.
func TestAControllerByNamespaceHasAllByNamespace(t *testing.T) {
	cfg := good()
	cfg.Reads = []Read{{&v1.ConfigMap{}, sharding.NamespaceHashKeyPath}}
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got := h.read(&v1.Pod{}).By; got != sharding.NamespaceHashKeyPath {
		t.Errorf("it holds pods by %s", got)
	}
	if got := h.controllers[0].Writes; len(got) != 1 || got[0] != (Write{"*", "*", shardingv1alpha1.GoverningKeyNamespace}) {
		t.Errorf("writes %v", got)
	}
}

// A Host registers with the controllers that the settings list, and no more once it was abandoned.
func TestAHostTakesPartWithWhatTheSettingsList(t *testing.T) {
	created := make(chan []string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var instance shardingv1alpha1.ControllerInstance
		if r.Method == http.MethodPost && json.NewDecoder(r.Body).Decode(&instance) == nil && instance.Spec.Ring != "" {
			select {
			case created <- instance.Spec.Controllers:
			case <-r.Context().Done():
			}
		}
		http.NotFound(w, r)
	}))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "ring.yaml")
	write := func(controller string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("controllers: [{name: "+controller+"}]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("c")
	cfg := good()
	cfg.REST = &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
	cfg.SettingsFile = path
	cfg.Controllers = append(cfg.Controllers, Controller{Name: "d", Works: &v1.Secret{}})
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range []runtime.Object{&v1.ConfigMap{}, &v1.Pod{}, &v1.Secret{}} {
		h.NewInformer(&cache.ListWatch{}, object, 0, cache.Indexers{})
	}
	for _, name := range []string{"c", "d"} {
		defer NewQueue[request](h)(name, workqueue.DefaultTypedControllerRateLimiter[request]()).ShutDown()
	}
	ended := make(chan error, 1)
	go func() { ended <- h.Start(t.Context()) }()
	for _, want := range []string{"c", "d"} {
		write(want)
		for got := <-created; !slices.Equal(got, []string{want}); got = <-created {
		}
	}
	if err := h.Start(t.Context()); err == nil {
		t.Error("it was started twice")
	}
	abandoned := make(chan error, 1)
	go func() { abandoned <- h.Abandon(t.Context()) }()
	for {
		select {
		case <-created: // it was on its way
			continue
		case err := <-abandoned:
			if err != nil {
				t.Error(err)
			}
			abandoned = nil
			continue
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		}
		break
	}
}

// After an exit the process is to end, and whoever does not end it must not be on the ring again.
func TestAHostThatHasToEndTakesPartNoMore(t *testing.T) {
	created := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case created <- struct{}{}:
		default:
		}
		http.NotFound(w, r)
	}))
	defer server.Close()
	cfg := good()
	cfg.REST = &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range []runtime.Object{&v1.ConfigMap{}, &v1.Pod{}} {
		h.NewInformer(&cache.ListWatch{}, object, 0, cache.Indexers{})
	}
	defer NewQueue[request](h)("c", workqueue.DefaultTypedControllerRateLimiter[request]()).ShutDown()
	ended := make(chan error, 1)
	go func() { ended <- h.Start(t.Context()) }()
	<-created
	h.process.diverge("another history")
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "another history") {
		t.Errorf("Start failed with %v", err)
	}
	if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return len(h.process.Snapshots()) == 0, nil
	}); err != nil {
		t.Error("it stays on the ring")
	}
}

// A Host says that it waits, and for what, rather than to work with half of its informers.
func TestAHostIsNotReadyBeforeTheProgramHasAskedForAll(t *testing.T) {
	h, err := New(good())
	if err != nil {
		t.Fatal(err)
	}
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	h.NewInformer(&cache.ListWatch{}, &v1.ConfigMap{}, 0, indexers)
	NewQueue[request](h)("c", workqueue.DefaultTypedControllerRateLimiter[request]()).ShutDown()
	if err := h.Ready(nil); err == nil || !strings.Contains(err.Error(), "has not asked for an informer of *v1.Pod by "+sharding.ControllerHashKeyPath) {
		t.Errorf("ready: %v", err)
	}
	h.NewInformer(&cache.ListWatch{}, &v1.Pod{}, 0, indexers)
	select {
	case <-h.complete:
	default:
		t.Errorf("it waits for %q", h.lacks())
	}
	if err := h.Ready(nil); err == nil || !strings.Contains(err.Error(), "not registered on ring a") {
		t.Errorf("ready: %v", err)
	}
	// Anything else is not the ring's.
	h.NewInformer(&cache.ListWatch{}, &v1.Secret{}, 0, indexers)
	for what, ask := range map[string]func(){
		"a second informer":             func() { h.NewInformer(&cache.ListWatch{}, &v1.Pod{}, 0, indexers) },
		"an unknown controller's queue": func() { NewQueue[request](h)("x", nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s was given", what)
				}
			}()
			ask()
		}()
	}
}

func TestInformersOfMetadataAreToldApartByKind(t *testing.T) {
	metadata := func(kind string) *metav1.PartialObjectMetadata {
		m := &metav1.PartialObjectMetadata{}
		m.SetGroupVersionKind(schema.GroupVersionKind{Group: "g", Version: "v1", Kind: kind})
		return m
	}
	cfg := good()
	cfg.Reads = []Read{{metadata("A"), Whole}, {metadata("B"), sharding.ControllerHashKeyPath}}
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]string{"A": Whole, "B": sharding.ControllerHashKeyPath} {
		if i := h.read(metadata(kind)); i == nil || i.By != want {
			t.Errorf("kind %s is read as %v, want by %s", kind, i, want)
		}
	}
	if i := h.read(metadata("C")); i != nil {
		t.Errorf("kind C is read as %v", i)
	}
}

func TestWhatNoKeyGovernsGoesOutWithoutAName(t *testing.T) {
	for path, want := range map[string]bool{
		"/api/v1/namespaces/a/pods":                          true,
		"/api/v1/namespaces/a/pods/b/status":                 true,
		"/api/v1/namespaces/events":                          true,
		"/api/v1/namespaces/a":                               true,
		"/api/v1/nodes/events":                               true,
		"/apis/g.example/v1/namespaces/a/things/b":           true,
		"/apis/g.example/v1/events":                          true,
		"/below/this/apis/g.example/v1/things":               true,
		"/apis/sharding.k8s.io/v1alpha1/controllerinstances": true,
		"/metrics":                    true,
		"/apis":                       true,
		"/api/v1/namespaces/a/events": false,
		"/api/v1/events":              false,
		"/apis/events.k8s.io/v1/namespaces/a/events/b":                         false,
		"/apis/coordination.k8s.io/v1/namespaces/a/leases/b":                   false,
		"/below/this/apis/coordination.k8s.io/v1/namespaces/a/leases":          false,
		"/apis/authorization.k8s.io/v1/subjectaccessreviews":                   false,
		"/apis/authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews": false,
		"/apis/authentication.k8s.io/v1/tokenreviews":                          false,
	} {
		if got := isGoverned(path); got != want {
			t.Errorf("%s: governed %v, want %v", path, got, want)
		}
	}
}
