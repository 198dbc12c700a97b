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
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclientset "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apiextensions-apiserver/test/integration/fixtures"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	kubeapiservertesting "k8s.io/kubernetes/cmd/kube-apiserver/app/testing"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/history"
	"k8s.io/kubernetes/test/integration/etcd"
	"k8s.io/kubernetes/test/integration/framework"
	"k8s.io/utils/ptr"
)

// Owners whose keys lie in the lower and in the upper half of all hash keys.
var (
	lowUID  = uidIn(hashkey.Range{Start: 0, End: hashkey.Limit / 2})
	highUID = uidIn(hashkey.Range{Start: hashkey.Limit / 2, End: hashkey.Limit})
)

func uidIn(r hashkey.Range) types.UID {
	for i := 0; ; i++ {
		if uid := types.UID(fmt.Sprintf("owner-%d", i)); r.Contains(hashkey.OfUID(uid)) {
			return uid
		}
	}
}

// keyServer is a kube-apiserver with a custom resource.
type keyServer struct {
	*kubeapiservertesting.TestServer
	client     kubernetes.Interface
	dynamic    dynamic.Interface
	namespace  string
	configMaps keyResource
	replicas   keyResource
	custom     keyResource
}

// keyResource is a collection that the tests use.
type keyResource struct {
	schema.GroupVersionResource
	kind string
	// url is the path of the collection in the API, and etcd its path in etcd.
	url, etcd string
	dynamic.ResourceInterface
}

func startKeyServer(t *testing.T, flags ...string) *keyServer {
	t.Helper()
	return startKeyServerOn(t, framework.SharedEtcd(), flags...)
}

// startKeyServerOn starts one on storage that other servers may share.
func startKeyServerOn(t *testing.T, storage *storagebackend.Config, flags ...string) *keyServer {
	t.Helper()
	server := kubeapiservertesting.StartTestServerOrDie(t, nil, append(framework.DefaultTestServerFlags(), flags...), storage)
	t.Cleanup(server.TearDownFn)
	s := &keyServer{
		TestServer: server,
		client:     kubernetes.NewForConfigOrDie(server.ClientConfig),
		dynamic:    dynamic.NewForConfigOrDie(server.ClientConfig),
		namespace:  "keys",
	}
	if _, err := s.client.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	s.configMaps = s.resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "ConfigMap", "/api/v1")
	s.replicas = s.resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}, "ReplicaSet", "/apis/apps/v1")

	// A version that is not the storage version.
	crd := fixtures.NewRandomNameMultipleVersionCustomResourceDefinition(apiextensionsv1.NamespaceScoped)
	if _, err := fixtures.CreateNewV1CustomResourceDefinition(crd, apiextensionsclientset.NewForConfigOrDie(server.ClientConfig), s.dynamic); err != nil {
		t.Fatal(err)
	}
	s.custom = s.resource(schema.GroupVersionResource{Group: crd.Spec.Group, Version: "v1beta1", Resource: crd.Spec.Names.Plural}, crd.Spec.Names.Kind,
		"/apis/"+crd.Spec.Group+"/v1beta1")
	s.custom.etcd = path.Join("/", s.EtcdStoragePrefix, crd.Spec.Group, crd.Spec.Names.Plural, s.namespace)
	return s
}

func (s *keyServer) resource(gvr schema.GroupVersionResource, kind, prefix string) keyResource {
	return keyResource{
		GroupVersionResource: gvr,
		kind:                 kind,
		url:                  path.Join(prefix, "namespaces", s.namespace, gvr.Resource),
		etcd:                 path.Join("/", s.EtcdStoragePrefix, gvr.Resource, s.namespace),
		ResourceInterface:    s.dynamic.Resource(gvr).Namespace(s.namespace),
	}
}

// object returns an object as a client sends it, of a kind with a status.
func (r keyResource) object(name string, owners ...interface{}) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]interface{}{
		"apiVersion": r.GroupVersion().String(),
		"kind":       r.kind,
		"metadata":   map[string]interface{}{"name": name},
	}}
	if len(owners) > 0 {
		obj.Object["metadata"].(map[string]interface{})["ownerReferences"] = owners
	}
	if r.kind == "ReplicaSet" {
		obj.Object["spec"] = map[string]interface{}{
			"replicas": int64(0),
			"selector": map[string]interface{}{"matchLabels": map[string]interface{}{"app": name}},
			"template": map[string]interface{}{
				"metadata": map[string]interface{}{"labels": map[string]interface{}{"app": name}},
				"spec":     map[string]interface{}{"containers": []interface{}{map[string]interface{}{"name": "c", "image": "i"}}},
			},
		}
	}
	return obj
}

// owner returns an owner reference, with a key if it is not 0.
func owner(uid types.UID, controller bool, key int64) map[string]interface{} {
	ref := map[string]interface{}{"apiVersion": "v1", "kind": "Owner", "name": "owner", "uid": string(uid)}
	if controller {
		ref["controller"] = true
	}
	if key != 0 {
		ref["hashKey"] = key
	}
	return ref
}

func withKey(obj *unstructured.Unstructured, key int64) *unstructured.Unstructured {
	obj.Object["metadata"].(map[string]interface{})["hashKey"] = key
	return obj
}

// withOwnerKeys sets the key of each owner reference.
func withOwnerKeys(obj *unstructured.Unstructured, keyOf func(metav1.OwnerReference) int64) *unstructured.Unstructured {
	refs := obj.GetOwnerReferences()
	for i := range refs {
		if refs[i].HashKey = nil; keyOf(refs[i]) != 0 {
			refs[i].HashKey = ptr.To(keyOf(refs[i]))
		}
	}
	if refs != nil {
		obj.SetOwnerReferences(refs)
	}
	return obj
}

// rightKey returns the key that the server derives for ref.
func rightKey(ref metav1.OwnerReference) int64 { return hashkey.OfUID(ref.UID) }

// withRightKeys returns the object with the keys that the server derives.
func withRightKeys(obj *unstructured.Unstructured) *unstructured.Unstructured {
	obj = obj.DeepCopy()
	obj.FillHashKeys()
	return obj
}

// expectNoKeys expects no keys in the object's metadata and in its owner references.
func expectNoKeys(t *testing.T, obj *unstructured.Unstructured, err error) *unstructured.Unstructured {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if obj.GetUID() == "" {
		t.Errorf("%s has no UID", obj.GetName())
	}
	if obj.DeepCopy().ClearHashKeys() {
		t.Errorf("it has keys: %v", obj)
	}
	return obj
}

// expectRightKeys expects the keys that follow from the UIDs, in each owner reference too.
func expectRightKeys(t *testing.T, obj *unstructured.Unstructured, err error) *unstructured.Unstructured {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if want := withRightKeys(obj); obj.GetUID() == "" || !reflect.DeepEqual(obj.Object["metadata"], want.Object["metadata"]) {
		t.Errorf("it has other keys than those of its UIDs: %v", obj)
	}
	return obj
}

// store writes obj as JSON directly into etcd, and returns its resource version.
func (s *keyServer) store(t *testing.T, r keyResource, obj *unstructured.Unstructured) string {
	t.Helper()
	obj = obj.DeepCopy()
	obj.SetResourceVersion("")
	if r.Resource == s.custom.Resource {
		obj.SetAPIVersion(r.Group + "/v1")
	}
	data, err := obj.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	key := path.Join(r.etcd, obj.GetName())
	got, err := s.EtcdClient.Get(t.Context(), key, clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	if got.Count != 1 {
		t.Fatalf("the server does not store the object at %s", key)
	}
	put, err := s.EtcdClient.Put(t.Context(), key, string(data))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(put.Header.Revision)
}

// byEarlierVersion creates an object as an earlier version has stored it, with keys.
func (s *keyServer) byEarlierVersion(t *testing.T, r keyResource, obj *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	created, err := r.Create(t.Context(), obj, metav1.CreateOptions{FieldManager: "creator"})
	expectNoKeys(t, created, err)
	s.store(t, r, withRightKeys(created))
	stored, err := r.Get(t.Context(), obj.GetName(), metav1.GetOptions{})
	if expectNoKeys(t, stored, err).GetUID() != created.GetUID() {
		t.Fatalf("a read of an object stored with keys returned %v", stored)
	}
	return stored
}

// stored returns what etcd holds of an object, and since which revision.
func (s *keyServer) stored(t *testing.T, r keyResource, name string) (string, int64) {
	t.Helper()
	got, err := s.EtcdClient.Get(t.Context(), path.Join(r.etcd, name))
	if err != nil || len(got.Kvs) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	return string(got.Kvs[0].Value), got.Kvs[0].ModRevision
}

// TestHashKeysOfEveryResource creates an object of every resource with forged keys, and
// finds it by its real key. A reader in JSON meets no field that stock Kubernetes does not have,
// and one who asks gets the keys.
func TestHashKeysOfEveryResource(t *testing.T) {
	server := kubeapiservertesting.StartTestServerOrDie(t, nil, []string{
		"--disable-admission-plugins=ServiceAccount,StorageObjectInUseProtection",
		"--runtime-config=api/all=true",
		"--endpoint-reconciler-type=none",
	}, framework.SharedEtcd())
	t.Cleanup(server.TearDownFn)
	client := kubernetes.NewForConfigOrDie(server.ClientConfig)
	dynamicClient := dynamic.NewForConfigOrDie(server.ClientConfig)
	asking := dynamic.NewForConfigOrDie(askingForKeys(server.ClientConfig))
	etcd.CreateTestCRDs(t, apiextensionsclientset.NewForConfigOrDie(server.ClientConfig), false, etcd.GetCustomResourceDefinitionData()...)

	const namespace = "every"
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, served, err := client.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	stubs := etcd.GetEtcdStorageDataForNamespace(namespace)
	event := stubs[schema.GroupVersionResource{Version: "v1", Resource: "events"}]
	event.Stub = `{"involvedObject": {"namespace": "` + namespace + `"}, "message": "some data here", "metadata": {"name": "event1"}}`
	stubs[schema.GroupVersionResource{Version: "v1", Resource: "events"}] = event

	found := 0
	for _, resource := range etcd.GetResources(t, served) {
		stub, ok := stubs[resource.Mapping.Resource]
		if !ok || stub.Stub == "" {
			continue
		}
		found++
		t.Run(resource.Mapping.Resource.String(), func(t *testing.T) {
			collection, obj, err := etcd.JSONToUnstructured(stub.Stub, namespace, resource.Mapping, dynamicClient)
			if err != nil {
				t.Fatal(err)
			}
			forged := withKey(obj, 1)
			forged.Object["metadata"].(map[string]interface{})["ownerReferences"] = []interface{}{owner(lowUID, true, 2), owner(highUID, false, 0)}
			created, err := collection.Create(t.Context(), forged, metav1.CreateOptions{})
			if apierrors.IsMethodNotSupported(err) {
				t.Skip("cannot be created")
			}
			expectNoKeys(t, created, err)
			t.Cleanup(func() {
				zero := int64(0)
				if err := collection.Delete(context.Background(), created.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil && !apierrors.IsNotFound(err) {
					t.Error(err)
				}
			})

			expectServedAsByStock(t, client, resource.Mapping, created)
			asked, err := asking.Resource(resource.Mapping.Resource).Namespace(created.GetNamespace()).Get(t.Context(), created.GetName(), metav1.GetOptions{})
			if !apierrors.IsMethodNotSupported(err) {
				expectRightKeys(t, asked, err)
			}

			for pathName, key := range map[string]int64{
				sharding.HashKeyPath:           hashkey.OfUID(created.GetUID()),
				sharding.ControllerHashKeyPath: hashkey.OfUID(lowUID),
			} {
				only := hashkey.NewRanges(hashkey.Range{Start: uint64(key), End: uint64(key) + 1})
				for what, ranges := range map[string]hashkey.Ranges{"in": only, "out": hashkey.All().Minus(only)} {
					list, err := collection.List(t.Context(), metav1.ListOptions{ShardSelector: ranges.Selector(pathName)})
					if err != nil {
						t.Fatal(err)
					}
					listed := false
					for i := range list.Items {
						listed = listed || list.Items[i].GetUID() == created.GetUID()
					}
					if want := what == "in"; listed != want {
						t.Errorf("listed by %v of %s: %t, want %t", ranges, pathName, listed, want)
					}
					if info := list.GetShardInfo(); info == nil || info.Selector != ranges.Selector(pathName) {
						t.Errorf("listed by %v of %s: shardInfo is %v", ranges, pathName, info)
					}
				}
			}
		})
	}
	if found < 80 {
		t.Errorf("only %d resources were tried", found)
	}
}

// TestHashKeysCannotBeForged sends forged keys by every way that a client can write. They are not
// stored, and are no change.
func TestHashKeysCannotBeForged(t *testing.T) {
	s := startKeyServer(t)
	forgedRefs := []interface{}{owner(lowUID, true, 3), owner(highUID, false, 4)}
	patchOf := func(metadata map[string]interface{}) []byte {
		return mustMarshal(t, map[string]interface{}{"metadata": metadata})
	}
	for _, r := range []keyResource{s.replicas, s.custom} {
		t.Run(r.Resource, func(t *testing.T) {
			forged := withKey(r.object("forged", owner(lowUID, true, 1), owner(highUID, false, 0)), 3)
			created, err := r.Create(t.Context(), forged, metav1.CreateOptions{})
			expectNoKeys(t, created, err)

			generated := r.object("", owner(lowUID, true, 1))
			generated.SetGenerateName("generated-")
			obj, err := r.Create(t.Context(), withKey(generated, 3), metav1.CreateOptions{})
			expectNoKeys(t, obj, err)

			dry := withKey(r.object("dry", owner(lowUID, true, 1)), 3)
			obj, err = r.Create(t.Context(), dry, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			expectNoKeys(t, obj, err)

			strict := withKey(r.object("strict", owner(lowUID, true, 1)), 3)
			obj, err = r.Create(t.Context(), strict, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
			expectNoKeys(t, obj, err)

			applied := withKey(r.object("applied", owner(lowUID, true, 1)), 3)
			obj, err = r.Apply(t.Context(), "applied", applied, metav1.ApplyOptions{FieldManager: "applier"})
			expectNoKeys(t, obj, err)

			// These change nothing but keys, so the server writes nothing.
			applyForged := func(ctx context.Context, subresources ...string) (*unstructured.Unstructured, error) {
				return r.Apply(ctx, "forged", withKey(r.object("forged", owner(lowUID, true, 5)), 6), metav1.ApplyOptions{FieldManager: "applier"}, subresources...)
			}
			obj, err = applyForged(t.Context()) // the first apply changes managedFields
			created = expectNoKeys(t, obj, err)
			_, revision := s.stored(t, r, "forged")
			put := func(change func(obj *unstructured.Unstructured), subresources ...string) func(ctx context.Context) (*unstructured.Unstructured, error) {
				return func(ctx context.Context) (*unstructured.Unstructured, error) {
					sent := created.DeepCopy()
					change(sent)
					return r.Update(ctx, sent, metav1.UpdateOptions{}, subresources...)
				}
			}
			patch := func(kind types.PatchType, data []byte, subresources ...string) func(ctx context.Context) (*unstructured.Unstructured, error) {
				return func(ctx context.Context) (*unstructured.Unstructured, error) {
					return r.Patch(ctx, "forged", kind, data, metav1.PatchOptions{}, subresources...)
				}
			}
			forge := func(obj *unstructured.Unstructured) {
				withKey(obj, 7)
				withOwnerKeys(obj, func(metav1.OwnerReference) int64 { return 8 })
			}
			same := func(obj *unstructured.Unstructured) {}
			forgetUID := func(obj *unstructured.Unstructured) { obj.SetUID(""); obj.SetResourceVersion("") }
			writes := map[string]func(ctx context.Context) (*unstructured.Unstructured, error){
				"put, forged":               put(forge),
				"put, no keys":              put(same),
				"put to status, forged":     put(forge, "status"),
				"put to status, no keys":    put(same, "status"),
				"JSON patch":                patch(types.JSONPatchType, []byte(`[{"op":"add","path":"/metadata/hashKey","value":7},{"op":"add","path":"/metadata/ownerReferences/0/hashKey","value":7}]`)),
				"JSON patch to status":      patch(types.JSONPatchType, []byte(`[{"op":"add","path":"/metadata/hashKey","value":7},{"op":"add","path":"/metadata/ownerReferences/0/hashKey","value":7}]`), "status"),
				"JSON patch, with a test":   patch(types.JSONPatchType, mustMarshal(t, []interface{}{map[string]interface{}{"op": "test", "path": "/metadata", "value": created.Object["metadata"]}})),
				"merge patch":               patch(types.MergePatchType, patchOf(map[string]interface{}{"hashKey": 7, "ownerReferences": forgedRefs})),
				"merge patch, removed":      patch(types.MergePatchType, patchOf(map[string]interface{}{"hashKey": nil})),
				"merge patch to status":     patch(types.MergePatchType, patchOf(map[string]interface{}{"hashKey": 7, "ownerReferences": forgedRefs}), "status"),
				"server-side apply, forged": func(ctx context.Context) (*unstructured.Unstructured, error) { return applyForged(ctx) },
				"server-side apply, with right keys": func(ctx context.Context) (*unstructured.Unstructured, error) {
					sent := r.object("forged", owner(lowUID, true, hashkey.OfUID(lowUID)))
					return r.Apply(ctx, "forged", withKey(sent, hashkey.OfUID(created.GetUID())), metav1.ApplyOptions{FieldManager: "applier"})
				},
			}
			if r.kind == "ReplicaSet" { // custom resources allow no unconditional update and no strategic merge patch
				writes["put, no UID"] = put(forgetUID)
				writes["strategic merge patch"] = patch(types.StrategicMergePatchType, patchOf(map[string]interface{}{"hashKey": 7, "ownerReferences": forgedRefs}))
				writes["strategic merge patch to status"] = patch(types.StrategicMergePatchType, patchOf(map[string]interface{}{"hashKey": 7}), "status")
			}
			for name, write := range writes {
				t.Run(name, func(t *testing.T) {
					written, err := write(t.Context())
					expectNoKeys(t, written, err)
					read, err := r.Get(t.Context(), "forged", metav1.GetOptions{})
					expectNoKeys(t, read, err)
					if data, now := s.stored(t, r, "forged"); now != revision || holdsKeys(data) {
						t.Errorf("a write that changes nothing but keys was stored:\n%q", data)
					}
				})
			}

			added, err := r.Patch(t.Context(), "forged", types.MergePatchType, patchOf(map[string]interface{}{
				"hashKey": 7, "ownerReferences": append(forgedRefs, owner("a third owner", false, 9), owner("a fourth", false, 0)),
			}), metav1.PatchOptions{})
			expectNoKeys(t, added, err)
			if data, _ := s.stored(t, r, "forged"); holdsKeys(data) || len(added.GetOwnerReferences()) != 4 {
				t.Errorf("new owners are stored as %q", data)
			}

			// Two references that differ only in their keys are merged, as without keys.
			twice, err := r.Create(t.Context(), r.object("twice", owner(lowUID, false, 1), owner(lowUID, false, 0)), metav1.CreateOptions{})
			expectNoKeys(t, twice, err)
			if refs := twice.GetOwnerReferences(); len(refs) != 1 {
				t.Errorf("two references to the same owner became %v", refs)
			}
		})
	}
}

// holdsKeys says whether data, in JSON or protobuf, may hold hash keys, today's or those of an
// earlier version: no other field of these objects has a number as high as theirs, or that name.
func holdsKeys(data string) bool {
	return strings.Contains(data, "hashKey") || strings.Contains(data, "\xd0\x3e") || strings.Contains(data, "\xc8\x3e")
}

// managedBy returns the fields that a manager owns, as JSON.
func managedBy(obj *unstructured.Unstructured, manager string) string {
	var fields []string
	for _, entry := range obj.GetManagedFields() {
		if entry.Manager == manager {
			fields = append(fields, string(entry.FieldsV1.GetRawBytes()))
		}
	}
	return strings.Join(fields, "\n")
}

// TestHashKeysAndFieldManagement: keys do not change owner references for clients that send
// them without keys, or with others.
func TestHashKeysAndFieldManagement(t *testing.T) {
	s := startKeyServer(t)
	for _, r := range []keyResource{s.replicas, s.custom} {
		for name, key := range map[string]int64{"keyed": 7, "bare": 0, "earlier": 0} {
			earlier := name == "earlier" // stored by an earlier version
			t.Run(r.Resource+", "+name, func(t *testing.T) {
				apply := func(manager string, refs ...interface{}) (*unstructured.Unstructured, error) {
					return r.Apply(t.Context(), name, r.object(name, refs...), metav1.ApplyOptions{FieldManager: manager})
				}
				created, err := apply("one", owner(lowUID, true, key))
				expectNoKeys(t, created, err)
				ownerReference := fmt.Sprintf(`"k:{\"uid\":\"%s\"}"`, lowUID)
				if !strings.Contains(managedBy(created, "one"), ownerReference) {
					t.Fatalf("the applier does not own its owner reference: %s", managedBy(created, "one"))
				}
				if earlier {
					s.store(t, r, withRightKeys(created))
				}

				// An update of another field takes no ownership of the references, with keys or without.
				for i, prepare := range []func(*unstructured.Unstructured) *unstructured.Unstructured{(*unstructured.Unstructured).DeepCopy, withRightKeys} {
					live, err := r.Get(t.Context(), name, metav1.GetOptions{})
					if err != nil {
						t.Fatal(err)
					}
					sent := prepare(live)
					sent.SetLabels(map[string]string{"label": fmt.Sprint(i)})
					updated, err := r.Update(t.Context(), sent, metav1.UpdateOptions{FieldManager: "updater"})
					expectNoKeys(t, updated, err)
					if owned := managedBy(updated, "updater"); strings.Contains(owned, "ownerReferences") || !strings.Contains(owned, "f:label") {
						t.Errorf("an update of a label owns %s", owned)
					}
					if earlier {
						s.store(t, r, withRightKeys(updated))
					}
				}

				// A patch with the same owner takes no ownership either.
				patched, err := r.Patch(t.Context(), name, types.MergePatchType,
					mustMarshal(t, map[string]interface{}{"metadata": map[string]interface{}{"ownerReferences": []interface{}{owner(lowUID, true, 0)}}}),
					metav1.PatchOptions{FieldManager: "patcher"})
				expectNoKeys(t, patched, err)
				if owned := managedBy(patched, "patcher"); owned != "" {
					t.Errorf("a patch that changes nothing owns %s", owned)
				}
				if earlier {
					s.store(t, r, withRightKeys(patched))
				}

				// Other appliers of the same reference share it without a conflict, even with a
				// forged key.
				for manager, key := range map[string]int64{"two": 0, "three": 42} {
					applied, err := apply(manager, owner(lowUID, true, key))
					expectNoKeys(t, applied, err)
					if owned := managedBy(applied, manager); !strings.Contains(owned, ownerReference) {
						t.Errorf("the applier %s owns %s", manager, owned)
					}
				}
				before, err := r.Get(t.Context(), name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				again, err := apply("two", owner(lowUID, true, 0))
				expectNoKeys(t, again, err)
				if again.GetResourceVersion() != before.GetResourceVersion() {
					t.Error("applying the same again was written")
				}

				// A different reference is a conflict, as before.
				if _, err := apply("four", owner(lowUID, false, hashkey.OfUID(lowUID))); !apierrors.IsConflict(err) {
					t.Errorf("another reference to the same owner: got %v, want a conflict", err)
				}

				// No manager owns the keys.
				for _, entry := range again.GetManagedFields() {
					if strings.Contains(string(entry.FieldsV1.GetRawBytes()), "hashKey") {
						t.Errorf("%s manages a key: %s", entry.Manager, entry.FieldsV1.GetRawBytes())
					}
				}
			})
		}
	}
}

// TestObjectsStoredByAnEarlierVersion have keys in etcd. They are served without, found by their
// keys, and rewritten once: by the first write that changes something.
func TestObjectsStoredByAnEarlierVersion(t *testing.T) {
	// What the test stores is in JSON.
	s := startKeyServer(t, "--storage-media-type=application/json")
	for _, r := range []keyResource{s.replicas, s.custom} {
		t.Run(r.Resource, func(t *testing.T) {
			stored := s.byEarlierVersion(t, r, r.object("earlier", owner(lowUID, true, 0)))
			for _, pathName := range []string{sharding.HashKeyPath, sharding.ControllerHashKeyPath} {
				uid := stored.GetUID()
				if pathName == sharding.ControllerHashKeyPath {
					uid = lowUID
				}
				key := hashkey.OfUID(uid)
				only := hashkey.NewRanges(hashkey.Range{Start: uint64(key), End: uint64(key) + 1})
				for _, version := range []string{stored.GetResourceVersion(), "0", ""} {
					in, err := r.List(t.Context(), metav1.ListOptions{ResourceVersion: version, ShardSelector: only.Selector(pathName)})
					if err != nil {
						t.Fatal(err)
					}
					out, err := r.List(t.Context(), metav1.ListOptions{ResourceVersion: version, ShardSelector: hashkey.All().Minus(only).Selector(pathName)})
					if err != nil {
						t.Fatal(err)
					}
					if len(in.Items) != 1 || len(out.Items) != 0 {
						t.Fatalf("by %s at %q: %d objects in its own range and %d outside", pathName, version, len(in.Items), len(out.Items))
					}
					expectNoKeys(t, &in.Items[0], nil)
				}
			}

			_, revision := s.stored(t, r, "earlier")
			for what, write := range map[string]func() (*unstructured.Unstructured, error){
				"update": func() (*unstructured.Unstructured, error) {
					return r.Update(t.Context(), stored.DeepCopy(), metav1.UpdateOptions{FieldManager: "creator"})
				},
				"update of status": func() (*unstructured.Unstructured, error) {
					return r.UpdateStatus(t.Context(), stored.DeepCopy(), metav1.UpdateOptions{FieldManager: "creator"})
				},
				"patch": func() (*unstructured.Unstructured, error) {
					return r.Patch(t.Context(), "earlier", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{FieldManager: "creator"})
				},
			} {
				unchanged, err := write()
				expectNoKeys(t, unchanged, err)
				if _, now := s.stored(t, r, "earlier"); now != revision {
					t.Fatalf("%s: a write that changes nothing was stored", what)
				}
			}

			stored.SetLabels(map[string]string{"changed": "true"})
			updated, err := r.Update(t.Context(), stored, metav1.UpdateOptions{})
			expectNoKeys(t, updated, err)
			if data, _ := s.stored(t, r, "earlier"); holdsKeys(data) {
				t.Errorf("after a change it is stored as %q", data)
			}
			if err := r.Delete(t.Context(), "earlier", metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// setControllerReference does what controller-runtime's controllerutil does: it replaces the
// reference to the same owner by a new one, which it fills in without a key.
func setControllerReference(obj metav1.Object, kind, name string, uid types.UID) {
	anew := metav1.OwnerReference{
		APIVersion: "v1", Kind: kind, Name: name, UID: uid, Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}
	refs := obj.GetOwnerReferences()
	if i := slices.IndexFunc(refs, func(ref metav1.OwnerReference) bool { return ref.Kind == kind && ref.Name == name }); i >= 0 {
		refs[i] = anew
	} else {
		refs = append(refs, anew)
	}
	obj.SetOwnerReferences(refs)
}

// TestOwnersSetAnewAreTheSame: an operator that knows no keys, and sets the owner of its
// objects anew each time that it reconciles, sees no difference, and its update writes nothing.
func TestOwnersSetAnewAreTheSame(t *testing.T) {
	s := startKeyServer(t)
	ctx := t.Context()
	for _, r := range []keyResource{s.replicas, s.custom} {
		t.Run(r.Resource, func(t *testing.T) {
			for name, keyOf := range map[string]func(metav1.OwnerReference) int64{
				"owned":         func(metav1.OwnerReference) int64 { return 0 },
				"created-by-us": rightKey,
			} {
				obj := r.object(name)
				setControllerReference(obj, "Owner", "owner", lowUID)
				read, err := r.Create(ctx, withOwnerKeys(obj, keyOf), metav1.CreateOptions{})
				expectNoKeys(t, read, err)
				anew := read.DeepCopy()
				setControllerReference(anew, "Owner", "owner", lowUID)
				if !reflect.DeepEqual(anew, read) {
					t.Errorf("with its owner set anew it is %v, was %v", anew, read)
				}
				updated, err := r.Update(ctx, anew, metav1.UpdateOptions{})
				expectNoKeys(t, updated, err)
				if updated.GetResourceVersion() != read.GetResourceVersion() {
					t.Errorf("%s: an update with the same owner was written", name)
				}
			}
		})
	}
	t.Run("typed", func(t *testing.T) {
		read, err := s.client.AppsV1().ReplicaSets(s.namespace).Get(ctx, "owned", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		setControllerReference(read, "Owner", "owner", lowUID)
		updated, err := s.client.AppsV1().ReplicaSets(s.namespace).Update(ctx, read, metav1.UpdateOptions{})
		if err != nil || updated.ResourceVersion != read.ResourceVersion {
			t.Errorf("an update with the same owner was written: %v, %v", updated, err)
		}
	})
}

// TestAdoption runs the adoption patches that controllers send.
func TestAdoption(t *testing.T) {
	s := startKeyServer(t)
	ctx := t.Context()
	template := v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "adopted"}},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}},
	}
	selector := &metav1.LabelSelector{MatchLabels: template.Labels}
	deployment, err := s.client.AppsV1().Deployments(s.namespace).Create(ctx, &apps.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "parent"},
		Spec:       apps.DeploymentSpec{Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kind := apps.SchemeGroupVersion.WithKind("Deployment")
	canAdopt := func(context.Context) error { return nil }
	matching := labels.SelectorFromSet(template.Labels)
	recorder := record.NewFakeRecorder(10)
	expectAdopted := func(t *testing.T, collection func(options metav1.ListOptions) (runtime.Object, error)) {
		t.Helper()
		key := hashkey.OfUID(deployment.UID)
		only := hashkey.NewRanges(hashkey.Range{Start: uint64(key), End: uint64(key) + 1})
		for _, ranges := range []hashkey.Ranges{only, hashkey.All().Minus(only)} {
			list, err := collection(metav1.ListOptions{LabelSelector: matching.String(), ShardSelector: ranges.Selector(sharding.ControllerHashKeyPath)})
			if err != nil {
				t.Fatal(err)
			}
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(list)
			if err != nil {
				t.Fatal(err)
			}
			items, _, _ := unstructured.NestedSlice(content, "items")
			if want := ranges.Contains(key); (len(items) == 1) != want {
				t.Errorf("%d objects by %v, want %t", len(items), ranges, want)
			}
			for _, item := range items {
				expectNoKeys(t, &unstructured.Unstructured{Object: item.(map[string]interface{})}, nil)
			}
		}
	}

	t.Run("a ReplicaSet by a Deployment", func(t *testing.T) {
		orphan, err := s.client.AppsV1().ReplicaSets(s.namespace).Create(ctx, &apps.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: "orphan", Labels: template.Labels},
			Spec:       apps.ReplicaSetSpec{Selector: selector, Template: template},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		manager := controller.NewReplicaSetControllerRefManager(controller.RealRSControl{KubeClient: s.client, Recorder: recorder}, deployment, matching, kind, canAdopt)
		if claimed, err := manager.ClaimReplicaSets(ctx, []*apps.ReplicaSet{orphan}); err != nil || len(claimed) != 1 {
			t.Fatalf("claimed %v, %v", claimed, err)
		}
		expectAdopted(t, func(options metav1.ListOptions) (runtime.Object, error) {
			return s.client.AppsV1().ReplicaSets(s.namespace).List(ctx, options)
		})
	})
	t.Run("a Pod", func(t *testing.T) {
		orphan, err := s.client.CoreV1().Pods(s.namespace).Create(ctx, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "orphan", Labels: template.Labels}, Spec: template.Spec,
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		manager := controller.NewPodControllerRefManager(controller.RealPodControl{KubeClient: s.client, Recorder: recorder}, deployment, matching, kind, canAdopt)
		if claimed, err := manager.ClaimPods(ctx, []*v1.Pod{orphan}); err != nil || len(claimed) != 1 {
			t.Fatalf("claimed %v, %v", claimed, err)
		}
		expectAdopted(t, func(options metav1.ListOptions) (runtime.Object, error) {
			return s.client.CoreV1().Pods(s.namespace).List(ctx, options)
		})
	})
	t.Run("a ControllerRevision", func(t *testing.T) {
		orphan, err := s.client.AppsV1().ControllerRevisions(s.namespace).Create(ctx, &apps.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Name: "orphan", Labels: template.Labels},
			Data:       runtime.RawExtension{Raw: []byte(`{}`)},
			Revision:   1,
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		if _, err := history.NewHistory(s.client, appslisters.NewControllerRevisionLister(indexer), indexer).AdoptControllerRevision(deployment, kind, orphan); err != nil {
			t.Fatal(err)
		}
		expectAdopted(t, func(options metav1.ListOptions) (runtime.Object, error) {
			return s.client.AppsV1().ControllerRevisions(s.namespace).List(ctx, options)
		})
	})
}

// TestHashKeysWithTheGateOff: with the feature gate off, the server behaves like stock.
func TestHashKeysWithTheGateOff(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ControllerRing, false)
	s := startKeyServer(t)
	asking := dynamic.NewForConfigOrDie(askingForKeys(s.ClientConfig))
	for _, r := range []keyResource{s.configMaps, s.custom} {
		t.Run(r.Resource, func(t *testing.T) {
			created, err := r.Create(t.Context(), withKey(r.object("off", owner(lowUID, true, 1)), 2), metav1.CreateOptions{})
			expectNoKeys(t, created, err)
			asked, err := asking.Resource(r.GroupVersionResource).Namespace(s.namespace).Get(t.Context(), "off", metav1.GetOptions{})
			expectNoKeys(t, asked, err)

			// An object stored with keys loses them with the first change.
			s.store(t, r, withRightKeys(created))
			read, err := r.Get(t.Context(), "off", metav1.GetOptions{})
			expectNoKeys(t, read, err)
			read.SetLabels(map[string]string{"changed": "true"})
			updated, err := r.Update(t.Context(), read, metav1.UpdateOptions{})
			expectNoKeys(t, updated, err)
			if data, _ := s.stored(t, r, "off"); holdsKeys(data) {
				t.Errorf("it is stored as %q", data)
			}

			for _, pathName := range []string{sharding.HashKeyPath, sharding.ControllerHashKeyPath} {
				options := metav1.ListOptions{ShardSelector: hashkey.All().Selector(pathName)}
				_, listErr := r.List(t.Context(), options)
				_, watchErr := r.Watch(t.Context(), options)
				for verb, err := range map[string]error{"list": listErr, "watch": watchErr} {
					want := fmt.Sprintf("unsupported field path %q; supported: object.metadata.uid, object.metadata.namespace", pathName)
					if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), want) {
						t.Errorf("%s by %s: got %v, want a bad request with %q", verb, pathName, err, want)
					}
				}
			}
			list, err := r.List(t.Context(), metav1.ListOptions{ShardSelector: "shardRange(object.metadata.uid, '0x0000000000000000', '0x10000000000000000')"})
			if err != nil || len(list.Items) != 1 {
				t.Errorf("upstream's selector gives %v, %v", list, err)
			}
		})
	}
}

func mustMarshal(t *testing.T, value interface{}) []byte {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
