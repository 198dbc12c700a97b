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

package registry

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	apisharding "k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/rest"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

const hashKeyOwner = types.UID("c0000000-0000-4000-8000-000000000002")

// keyStore runs the test on a store with a watch cache and on one without.
func keyStore(t *testing.T, test func(t *testing.T, ctx context.Context, store *Store)) {
	for _, cached := range []bool{false, true} {
		t.Run(map[bool]string{false: "etcd", true: "watch cache"}[cached], func(t *testing.T) {
			destroy, store := newTestGenericStoreRegistry(t, scheme, cached)
			defer destroy()
			store.Storage.Codec = apitesting.TestStorageCodec(codecs, examplev1.SchemeGroupVersion) // for dry runs
			test(t, genericapirequest.NewDefaultContext(), store)
		})
	}
}

// sentPod returns a pod as a client sends it, with keys of the client's choice.
func sentPod(name string, own, owner int64) *example.Pod {
	return &example.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			Namespace:       metav1.NamespaceDefault,
			HashKey:         own,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Owner", Name: "owner", UID: hashKeyOwner, HashKey: owner}},
		},
		Spec: example.PodSpec{NodeName: "machine"},
	}
}

// expectStamped expects the keys that follow from the UIDs, that of the owner included.
func expectStamped(t *testing.T, obj runtime.Object, err error) *example.Pod {
	t.Helper()
	return expectKeys(t, obj, err, hashkey.OfUID(hashKeyOwner))
}

// expectKeys expects the pod's own key, and that key of its owner.
func expectKeys(t *testing.T, obj runtime.Object, err error, owner int64) *example.Pod {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	pod := obj.(*example.Pod)
	if want := hashkey.OfUID(pod.UID); pod.UID == "" || pod.HashKey != want {
		t.Errorf("pod %s, uid %q, has the key %x, want %x", pod.Name, pod.UID, pod.HashKey, want)
	}
	if pod.OwnerReferences[0].HashKey != owner {
		t.Errorf("pod %s: its owner has the key %x, want %x", pod.Name, pod.OwnerReferences[0].HashKey, owner)
	}
	return pod
}

func update(ctx context.Context, store *Store, pod *example.Pod) (runtime.Object, error) {
	obj, _, err := store.Update(ctx, pod.Name, rest.DefaultUpdatedObjectInfo(pod), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	return obj, err
}

func TestStoreStampsHashKeys(t *testing.T) {
	keyStore(t, func(t *testing.T, ctx context.Context, store *Store) {
		created, err := store.Create(ctx, sentPod("named", 1, 2), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
		expectStamped(t, created, err)
		stored, err := store.Get(ctx, "named", &metav1.GetOptions{})
		expectStamped(t, stored, err)

		generated := sentPod("", 1, 2)
		generated.GenerateName = "generated-"
		created, err = store.Create(ctx, generated, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
		expectStamped(t, created, err)

		created, err = store.Create(ctx, sentPod("dry", 1, 2), rest.ValidateAllObjectFunc, &metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		expectStamped(t, created, err)

		created, err = store.Create(ctx, sentPod("no owner key", 1, 0), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
		expectKeys(t, created, err, 0)

		// A real change comes with forged keys.
		changed := sentPod("named", 3, 4)
		changed.Labels = map[string]string{"changed": "true"}
		updated, err := update(ctx, store, changed)
		if pod := expectStamped(t, updated, err); pod.Labels["changed"] != "true" {
			t.Errorf("the change was lost: %v", pod)
		}
	})
}

func TestUpdateOfHashKeysAloneIsNotWritten(t *testing.T) {
	keyStore(t, func(t *testing.T, ctx context.Context, store *Store) {
		for name, owner := range map[string]int64{"with": hashkey.OfUID(hashKeyOwner), "without": 0} {
			obj, err := store.Create(ctx, sentPod(name, 0, owner), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
			created := expectKeys(t, obj, err, owner)
			for _, sent := range []*example.Pod{sentPod(name, 0, 0), sentPod(name, 1, 2), created.DeepCopy()} {
				sent.Labels = created.Labels
				obj, err := update(ctx, store, sent)
				if updated := expectKeys(t, obj, err, owner); updated.ResourceVersion != created.ResourceVersion {
					t.Errorf("%s an owner key: an update with the keys %x and %x was written", name, sent.HashKey, sent.OwnerReferences[0].HashKey)
				}
			}
		}
	})
}

func TestUpdateStampsWhatAStockServerStored(t *testing.T) {
	keyStore(t, func(t *testing.T, ctx context.Context, store *Store) {
		pod := sentPod("pod", 0, 0)
		pod.UID = "a0000000-0000-4000-8000-000000000001"
		key, err := store.KeyFunc(ctx, pod.Name)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Storage.Storage.Create(ctx, key, pod, &example.Pod{}, 0); err != nil {
			t.Fatal(err)
		}

		obj, err := store.Get(ctx, "pod", &metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if read := obj.(*example.Pod); read.HashKey != 0 || read.OwnerReferences[0].HashKey != 0 {
			t.Errorf("a read has added the keys %x and %x to what is stored", read.HashKey, read.OwnerReferences[0].HashKey)
		} else if metav1.HashKeyOf(read) != hashkey.OfUID(pod.UID) {
			t.Errorf("a reader derives the key %x", metav1.HashKeyOf(read))
		}

		changed := sentPod("pod", 0, 0)
		changed.Labels = map[string]string{"changed": "true"}
		obj, err = update(ctx, store, changed)
		stamped := expectKeys(t, obj, err, 0)
		obj, err = update(ctx, store, changed)
		if again := expectKeys(t, obj, err, 0); again.ResourceVersion != stamped.ResourceVersion {
			t.Error("once stamped, an update that changes nothing was written")
		}
	})
}

func TestStoreAddsNoHashKeysWithTheGateOff(t *testing.T) {
	keyStore(t, func(t *testing.T, ctx context.Context, store *Store) {
		obj, err := store.Create(ctx, sentPod("before", 0, 2), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
		expectStamped(t, obj, err)
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ControllerRing, false)

		created, err := store.Create(ctx, sentPod("off", 1, 2), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if pod := created.(*example.Pod); pod.HashKey != 0 || pod.OwnerReferences[0].HashKey != 0 {
			t.Errorf("created with the keys %x and %x", pod.HashKey, pod.OwnerReferences[0].HashKey)
		}
		updated, err := update(ctx, store, sentPod("before", 1, 0))
		if err != nil {
			t.Fatal(err)
		}
		// The owner references stay as they are.
		if pod := updated.(*example.Pod); pod.HashKey != 0 || pod.OwnerReferences[0].HashKey != hashkey.OfUID(hashKeyOwner) {
			t.Errorf("updated to the keys %x and %x", pod.HashKey, pod.OwnerReferences[0].HashKey)
		}
	})
}

func TestMalformedShardSelectorIsABadRequest(t *testing.T) {
	keyStore(t, func(t *testing.T, ctx context.Context, store *Store) {
		if _, err := store.Create(ctx, sentPod("pod", 0, 0), rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, selector := range []string{
			"nonsense",
			"shardRange(object.metadata.hashKey, '0x0', '0x5')",
			"shardRange(object.metadata.name, '0x0000000000000000', '0x8000000000000000')",
			hashkey.All().Selector(apisharding.ClaimHashKeyPath), // pods have no claims
		} {
			options := &metainternalversion.ListOptions{ShardSelector: selector}
			_, listErr := store.List(ctx, options)
			_, watchErr := store.Watch(ctx, options)
			_, deleteErr := store.DeleteCollection(ctx, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}, options.DeepCopy())
			for verb, err := range map[string]error{"list": listErr, "watch": watchErr, "deletecollection": deleteErr} {
				if !apierrors.IsBadRequest(err) {
					t.Errorf("%s with %q: got %v, want a BadRequest", verb, selector, err)
				} else if !strings.Contains(err.Error(), "shardRange(<path>") {
					t.Errorf("%s with %q: %q does not say what form is expected", verb, selector, err)
				}
			}
		}
		if _, err := store.Get(ctx, "pod", &metav1.GetOptions{}); err != nil {
			t.Errorf("the pod did not survive: %v", err)
		}
	})
}

func TestDeleteCollectionObeysTheHashKeys(t *testing.T) {
	keyStore(t, func(t *testing.T, ctx context.Context, store *Store) {
		pods := map[string]int64{}
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			obj, err := store.Create(ctx, sentPod(name, 1, 2), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
			pods[name] = expectStamped(t, obj, err).HashKey
		}
		doomed := hashkey.NewRanges(hashkey.Range{Start: uint64(pods["b"]), End: uint64(pods["b"]) + 1}, hashkey.Range{Start: uint64(pods["e"]), End: uint64(pods["e"]) + 1})
		options := &metainternalversion.ListOptions{ShardSelector: doomed.Selector(apisharding.HashKeyPath)}
		if _, err := store.DeleteCollection(ctx, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}, options); err != nil {
			t.Fatal(err)
		}
		for name, key := range pods {
			_, err := store.Get(ctx, name, &metav1.GetOptions{})
			if gone := apierrors.IsNotFound(err); gone != doomed.Contains(key) {
				t.Errorf("pod %s: gone is %t, want %t (%v)", name, gone, doomed.Contains(key), err)
			}
		}
	})
}
