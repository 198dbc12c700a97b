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
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/utils/ptr"
)

// askingForKeys returns config for clients that ask for hash keys.
func askingForKeys(config *restclient.Config) *restclient.Config {
	config = restclient.CopyConfig(config)
	config.QPS = -1
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return asking{next} })
	return config
}

// asking asks for hash keys with whatever its client accepts.
type asking struct{ http.RoundTripper }

func (a asking) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	clauses := strings.Split(req.Header.Get("Accept"), ",")
	for i := range clauses {
		clauses[i] += ";hashKeys=1"
	}
	req.Header.Set("Accept", strings.Join(clauses, ","))
	return a.RoundTripper.RoundTrip(req)
}

// expectServedAsByStock expects that nothing which the server answers in JSON, about this object
// and its kind, has a field of hash keys.
func expectServedAsByStock(t *testing.T, client kubernetes.Interface, mapping *meta.RESTMapping, obj *unstructured.Unstructured) {
	t.Helper()
	collection := path.Join("/apis", mapping.Resource.Group, mapping.Resource.Version)
	if mapping.Resource.Group == "" {
		collection = path.Join("/api", mapping.Resource.Version)
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		collection = path.Join(collection, "namespaces", obj.GetNamespace())
	}
	collection = path.Join(collection, mapping.Resource.Resource)
	get := func(url string, params map[string]string) string {
		request := client.CoreV1().RESTClient().Get().AbsPath(url).SetHeader("Accept", "application/json")
		for name, value := range params {
			request.Param(name, value)
		}
		data, err := request.DoRaw(t.Context())
		if err != nil {
			t.Errorf("%s: %v", url, err)
		}
		return string(data)
	}
	for what, answer := range map[string]string{
		"get":   get(path.Join(collection, obj.GetName()), nil),
		"list":  get(collection, nil),
		"watch": get(collection, map[string]string{"watch": "true", "timeoutSeconds": "1", "fieldSelector": "metadata.name=" + obj.GetName()}),
	} {
		if strings.Contains(answer, `"hashKey"`) || !strings.Contains(answer, string(obj.GetUID())) {
			t.Errorf("%s answers %s", what, answer)
		}
	}
}

// exchange is one request and what is expected of its answer.
type exchange struct {
	name, method, path, query string
	contentType, body         string
	// as is what the client wants to have the answer as, in parameters of Accept.
	as string
	// objects is how many objects with metadata the answer has; those of a list or of a table.
	objects int
	// jsonOnly: other encodings have no such answer.
	jsonOnly bool
}

// exchanges returns one of each verb and form of answer, on two objects a and b that exist, and
// creates others whose names begin with prefix.
func (r keyResource) exchanges(t *testing.T, prefix string) []exchange {
	body := func(name string) string {
		return string(mustMarshal(t, r.object(name, owner(lowUID, true, 3), owner(highUID, false, 0)).Object))
	}
	const table, partial, partialList = ";as=Table;v=v1;g=meta.k8s.io", ";as=PartialObjectMetadata;v=v1;g=meta.k8s.io", ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	a, labels := r.url+"/"+prefix+"a", `{"metadata":{"labels":{"n":%q}}}`
	found := []exchange{
		{name: "create", method: "POST", path: r.url, contentType: "application/json", body: body(prefix + "a"), objects: 1},
		{name: "create b", method: "POST", path: r.url, contentType: "application/json", body: body(prefix + "b"), objects: 1},
		{name: "dry run", method: "POST", path: r.url, query: "dryRun=All", contentType: "application/json", body: body(prefix + "dry"), objects: 1},
		{name: "create as metadata", method: "POST", path: r.url, contentType: "application/json", body: body(prefix + "c"), as: partial, objects: 1},
		{name: "get", method: "GET", path: a, objects: 1},
		{name: "get from the cache", method: "GET", path: a, query: "resourceVersion=0", objects: 1},
		{name: "get as metadata", method: "GET", path: a, as: partial, objects: 1},
		{name: "get status", method: "GET", path: a + "/status", objects: 1},
		{name: "get a table", method: "GET", path: a, as: table, objects: 1, jsonOnly: true},
		{name: "merge patch", method: "PATCH", path: a, contentType: "application/merge-patch+json", body: fmt.Sprintf(labels, "merge"), objects: 1},
		{name: "JSON patch", method: "PATCH", path: a, contentType: "application/json-patch+json", body: `[{"op":"add","path":"/metadata/labels","value":{"n":"json"}}]`, objects: 1},
		{name: "patch status", method: "PATCH", path: a + "/status", contentType: "application/merge-patch+json", body: `{"status":{"observedGeneration":5}}`, objects: 1},
		{name: "apply", method: "PATCH", path: r.url + "/" + prefix + "applied", query: "fieldManager=m", contentType: "application/apply-patch+yaml", body: body(prefix + "applied"), objects: 1},
		{name: "list", method: "GET", path: r.url, objects: 4},
		{name: "list from the cache", method: "GET", path: r.url, query: "resourceVersion=0", objects: 4},
		{name: "list a page", method: "GET", path: r.url, query: "limit=2", objects: 2},
		{name: "list metadata", method: "GET", path: r.url, as: partialList, objects: 4},
		{name: "list a table", method: "GET", path: r.url, as: table, objects: 4, jsonOnly: true},
		{name: "list a table of objects", method: "GET", path: r.url, query: "includeObject=Object", as: table, objects: 4, jsonOnly: true},
		{name: "list a table of cells", method: "GET", path: r.url, query: "includeObject=None", as: table, objects: 0, jsonOnly: true},
	}
	if r.kind == "ReplicaSet" {
		found = append(found,
			exchange{name: "get scale", method: "GET", path: a + "/scale", objects: 1},
			exchange{name: "put", method: "PUT", path: a, contentType: "application/json", body: body(prefix + "a"), objects: 1},
			exchange{name: "strategic merge patch", method: "PATCH", path: a, contentType: "application/strategic-merge-patch+json", body: fmt.Sprintf(labels, "strategic"), objects: 1},
		)
	}
	return append(found,
		// A finalizer keeps the object, so the answer is not a Status.
		exchange{name: "a finalizer", method: "PATCH", path: a, contentType: "application/merge-patch+json", body: `{"metadata":{"finalizers":["example.com/f"]}}`, objects: 1},
		exchange{name: "delete", method: "DELETE", path: a, objects: 1},
		exchange{name: "no finalizer", method: "PATCH", path: a, contentType: "application/merge-patch+json", body: `{"metadata":{"finalizers":null}}`, objects: 1},
		exchange{name: "delete the rest", method: "DELETE", path: r.url, objects: 3},
	)
}

// answer sends the request of e, and returns what the answer has of objects with metadata.
func (s *keyServer) answer(t *testing.T, client *http.Client, e exchange, accept string) []*unstructured.Unstructured {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), e.method, s.ClientConfig.Host+e.path+"?"+e.query, strings.NewReader(e.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	if e.contentType != "" {
		req.Header.Set("Content-Type", e.contentType)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		t.Fatalf("%s: %d, %v: %q", e.name, resp.StatusCode, err, data)
	}
	var content map[string]interface{}
	switch kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";"); kind {
	case "application/json":
		err = utiljson.Unmarshal(data, &content)
	case "application/cbor":
		err = direct.Unmarshal(data, &content)
	case "application/vnd.kubernetes.protobuf":
		obj, _, decodeErr := protobufCodecs.UniversalDeserializer().Decode(data, nil, nil)
		if decodeErr != nil {
			t.Fatalf("%s: %v", e.name, decodeErr)
		}
		content, err = runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	default:
		t.Fatalf("%s: answered in %q", e.name, kind)
	}
	if err != nil {
		t.Fatalf("%s: %v: %q", e.name, err, data)
	}
	return objectsIn(content)
}

// objectsIn returns the objects of a list, those in the rows of a table, or the object itself.
func objectsIn(content map[string]interface{}) []*unstructured.Unstructured {
	var found []*unstructured.Unstructured
	if rows, ok := content["rows"].([]interface{}); ok {
		for _, row := range rows {
			if obj, ok := row.(map[string]interface{})["object"].(map[string]interface{}); ok {
				found = append(found, &unstructured.Unstructured{Object: obj})
			}
		}
		return found
	}
	if items, ok := content["items"].([]interface{}); ok {
		for _, item := range items {
			found = append(found, &unstructured.Unstructured{Object: item.(map[string]interface{})})
		}
		return found
	}
	return []*unstructured.Unstructured{{Object: content}}
}

// protobufCodecs know metadata alone, too.
var protobufCodecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(metav1.AddMetaToScheme(scheme))
	return serializer.NewCodecFactory(scheme)
}()

// TestHashKeysForWhoAsks: who asks for keys gets the right ones in all that has metadata, by every
// verb and in every encoding; who does not gets none.
func TestHashKeysForWhoAsks(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.CBORServingAndStorage, true)
	s := startKeyServer(t)
	client, err := restclient.HTTPClientFor(s.ClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []keyResource{s.replicas, s.custom} {
		for encoding, accept := range map[string]string{"json": "application/json", "cbor": "application/cbor", "protobuf": "application/vnd.kubernetes.protobuf"} {
			if encoding == "protobuf" && r.kind != "ReplicaSet" {
				continue
			}
			for _, asked := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, asked %t", r.Resource, encoding, asked), func(t *testing.T) {
					for _, e := range r.exchanges(t, fmt.Sprintf("%s-%t-", encoding, asked)) {
						if e.jsonOnly && encoding != "json" {
							continue
						}
						expect, accept := expectNoKeys, accept+e.as
						if asked {
							expect, accept = expectRightKeys, accept+";hashKeys=1"
						}
						t.Run(e.name, func(t *testing.T) {
							objects := s.answer(t, client, e, accept)
							if len(objects) != e.objects {
								t.Fatalf("%d objects, want %d: %v", len(objects), e.objects, objects)
							}
							for _, obj := range objects {
								expect(t, obj, nil)
							}
						})
					}
				})
			}
		}
	}
}

// createSome creates n objects whose names begin with prefix.
func (r keyResource) createSome(t *testing.T, prefix string, n int) {
	t.Helper()
	for i := range n {
		created, err := r.Create(t.Context(), r.object(fmt.Sprint(prefix, i), owner(lowUID, true, 0)), metav1.CreateOptions{})
		expectNoKeys(t, created, err)
	}
}

// TestWatchesOfHashKeys: of two clients that watch the same events, and the same objects before
// them, the one that asks for keys gets them in each, and the other in none.
func TestWatchesOfHashKeys(t *testing.T) {
	s := startKeyServer(t)
	ctx := t.Context()
	for _, r := range []keyResource{s.replicas, s.custom} {
		t.Run(r.Resource, func(t *testing.T) {
			const updates = 20
			r.createSome(t, "before-", 2)
			options := metav1.ListOptions{
				AllowWatchBookmarks: true, SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
			}
			watches := map[string]func(*restclient.Config) (watch.Interface, error){
				"JSON": func(config *restclient.Config) (watch.Interface, error) {
					return dynamic.NewForConfigOrDie(config).Resource(r.GroupVersionResource).Namespace(s.namespace).Watch(ctx, options)
				},
				"metadata": func(config *restclient.Config) (watch.Interface, error) {
					return metadata.NewForConfigOrDie(config).Resource(r.GroupVersionResource).Namespace(s.namespace).Watch(ctx, options)
				},
			}
			if r.kind == "ReplicaSet" {
				watches["protobuf"] = func(config *restclient.Config) (watch.Interface, error) {
					config = restclient.CopyConfig(config)
					config.ContentType = runtime.ContentTypeProtobuf
					return kubernetes.NewForConfigOrDie(config).AppsV1().ReplicaSets(s.namespace).Watch(ctx, options)
				}
			}
			open := map[string]watch.Interface{}
			for name, start := range watches {
				for asks, config := range map[string]*restclient.Config{"asked": askingForKeys(s.ClientConfig), "not asked": s.ClientConfig} {
					events, err := start(config)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(events.Stop)
					open[name+", "+asks] = events
				}
			}
			for i := range updates {
				patch := fmt.Appendf(nil, `{"metadata":{"labels":{"n":"%d"}}}`, i)
				if _, err := r.Patch(ctx, fmt.Sprint("before-", i%2), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.Delete(ctx, "before-0", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}

			for name, events := range open {
				expect := expectNoKeys
				if strings.HasSuffix(name, ", asked") {
					expect = expectRightKeys
				}
				bookmarks, deleted := 0, false
				for !deleted {
					event, ok := <-events.ResultChan()
					if !ok {
						t.Fatalf("%s: the watch has ended", name)
					}
					content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(event.Object)
					if err != nil {
						t.Fatal(err)
					}
					switch event.Type {
					case watch.Bookmark:
						bookmarks++
						if (&unstructured.Unstructured{Object: content}).ClearHashKeys() {
							t.Errorf("%s: a bookmark has keys: %v", name, event.Object)
						}
						continue
					case watch.Deleted:
						deleted = true
					case watch.Error:
						t.Fatalf("%s: %v", name, event.Object)
					}
					expect(t, &unstructured.Unstructured{Object: content}, nil)
				}
				if bookmarks == 0 {
					t.Errorf("%s: no bookmark after what there was before", name)
				}
			}
		})
	}
}

// TestStreamsOfHashKeys: watches that no client of ours opens, of tables and in CBOR.
func TestStreamsOfHashKeys(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.CBORServingAndStorage, true)
	s := startKeyServer(t)
	client, err := restclient.HTTPClientFor(s.ClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []keyResource{s.replicas, s.custom} {
		r.createSome(t, "before-", 2)
		for accept, decoderOf := range map[string]func(io.ReadCloser) func(any) error{
			"application/json;as=Table;v=v1;g=meta.k8s.io": func(body io.ReadCloser) func(any) error {
				events := json.NewDecoder(body)
				return func(into any) error {
					var event json.RawMessage
					if err := events.Decode(&event); err != nil {
						return err
					}
					return utiljson.Unmarshal(event, into)
				}
			},
			"application/cbor": func(body io.ReadCloser) func(any) error {
				frames, frame := cbor.NewFramer().NewFrameReader(body), make([]byte, 1<<20)
				return func(into any) error {
					n, err := frames.Read(frame)
					if err != nil {
						return err
					}
					return direct.Unmarshal(frame[:n], into)
				}
			},
		} {
			for _, asked := range []bool{false, true} {
				expect := expectNoKeys
				name := accept
				if asked {
					expect, name = expectRightKeys, name+";hashKeys=1"
				}
				t.Run(r.Resource+", "+name, func(t *testing.T) {
					req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.ClientConfig.Host+r.url+"?watch=true&resourceVersion=0&includeObject=Object", nil)
					if err != nil {
						t.Fatal(err)
					}
					req.Header.Set("Accept", name)
					resp, err := client.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					if is := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || !strings.HasPrefix(is, strings.Split(accept, ";")[0]) {
						t.Fatalf("%d, %q", resp.StatusCode, is)
					}
					patch := fmt.Appendf(nil, `{"metadata":{"labels":{"n":%q}}}`, fmt.Sprint("stream-", asked))
					if _, err := r.Patch(t.Context(), "before-0", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
						t.Fatal(err)
					}
					decode := decoderOf(resp.Body)
					for modified := false; !modified; {
						var event struct {
							Type   watch.EventType `json:"type"`
							Object map[string]any  `json:"object"`
						}
						if err := decode(&event); err != nil {
							t.Fatal(err)
						}
						found := objectsIn(event.Object)
						if len(found) != 1 {
							t.Fatalf("%s has %d objects, want 1: %v", event.Type, len(found), event.Object)
						}
						expect(t, found[0], nil)
						modified = event.Type == watch.Modified
					}
				})
			}
		}
	}
}

// TestPagesOfHashKeys: each page has what the first has.
func TestPagesOfHashKeys(t *testing.T) {
	s := startKeyServer(t)
	for _, r := range []keyResource{s.replicas, s.custom} {
		r.createSome(t, "page-", 5)
		for _, asked := range []bool{false, true} {
			config, expect := s.ClientConfig, expectNoKeys
			if asked {
				config, expect = askingForKeys(config), expectRightKeys
			}
			client := dynamic.NewForConfigOrDie(config).Resource(r.GroupVersionResource).Namespace(s.namespace)
			pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return client.List(ctx, options)
			})
			pages.PageSize = 2
			found := 0
			if err := pages.EachListItem(t.Context(), metav1.ListOptions{}, func(obj runtime.Object) error {
				expect(t, obj.(*unstructured.Unstructured), nil)
				found++
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if found != 5 {
				t.Errorf("%s, asked %t: %d objects, want 5", r.Resource, asked, found)
			}
		}
	}
}

// TestHashKeysForAll: with the flag every client is served keys, and what it sends back, keys and
// all, changes nothing.
func TestHashKeysForAll(t *testing.T) {
	s := startKeyServer(t, "--serve-hash-keys")
	for _, r := range []keyResource{s.replicas, s.custom} {
		created, err := r.Create(t.Context(), r.object("all", owner(lowUID, true, 0)), metav1.CreateOptions{})
		expectRightKeys(t, created, err)
		list, err := r.List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			t.Fatalf("%v, %v", list, err)
		}
		expectRightKeys(t, &list.Items[0], nil)
		updated, err := r.Update(t.Context(), created, metav1.UpdateOptions{})
		if expectRightKeys(t, updated, err).GetResourceVersion() != created.GetResourceVersion() {
			t.Error("an update that changes nothing was written")
		}
		if data, _ := s.stored(t, r, "all"); holdsKeys(data) {
			t.Errorf("it is stored as %q", data)
		}
	}
}
