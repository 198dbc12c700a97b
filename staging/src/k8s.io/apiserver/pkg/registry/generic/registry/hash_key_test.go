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
	"fmt"
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
			HashKey:         &own,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Owner", Name: "owner", UID: hashKeyOwner, HashKey: &owner}},
		},
		Spec: example.PodSpec{NodeName: "machine"},
	}
}

// expectNoKeys expects a pod, and its owner reference, without keys.
func expectNoKeys(t *testing.T, obj runtime.Object, err error) *example.Pod {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	pod := obj.(*example.Pod)
	if pod.UID == "" || pod.OwnerReferences[0].UID != hashKeyOwner {
		t.Errorf("pod %s has the uid %q and the owners %v", pod.Name, pod.UID, pod.OwnerReferences)
	}
	if pod.HashKey != nil || pod.OwnerReferences[0].HashKey != nil {
		t.Errorf("pod %s has a key, or its owner: %v", pod.Name, pod)
	}
	return pod
}

func update(ctx context.Context, store *Store, pod *example.Pod) (runtime.Object, error) {
	obj, _, err := store.Update(ctx, pod.Name, rest.DefaultUpdatedObjectInfo(pod), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	return obj, err
}

// TestStoreKeepsNoHashKeys: whatever is written, nothing that is stored or returned has keys, with
// the feature gate or without.
func TestStoreKeepsNoHashKeys(t *testing.T) {
	for _, gate := range []bool{true, false} {
		t.Run(fmt.Sprintf("gate %t", gate), func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ControllerRing, gate)
			keyStore(t, func(t *testing.T, ctx context.Context, store *Store) {
				created, err := store.Create(ctx, sentPod("named", 1, 2), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
				first := expectNoKeys(t, created, err)
				stored, err := store.Get(ctx, "named", &metav1.GetOptions{})
				expectNoKeys(t, stored, err)

				generated := sentPod("", 1, 2)
				generated.GenerateName = "generated-"
				created, err = store.Create(ctx, generated, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
				expectNoKeys(t, created, err)

				created, err = store.Create(ctx, sentPod("dry", 1, 2), rest.ValidateAllObjectFunc, &metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				expectNoKeys(t, created, err)

				// Keys alone are no change.
				for _, sent := range []*example.Pod{sentPod("named", 0, 0), sentPod("named", 1, 2), first.DeepCopy()} {
					sent.Labels = first.Labels
					obj, err := update(ctx, store, sent)
					if updated := expectNoKeys(t, obj, err); updated.ResourceVersion != first.ResourceVersion {
						t.Errorf("an update with keys was written: %v", sent)
					}
				}

				changed := sentPod("named", 3, 4)
				changed.Labels = map[string]string{"changed": "true"}
				updated, err := update(ctx, store, changed)
				if pod := expectNoKeys(t, updated, err); pod.Labels["changed"] != "true" {
					t.Errorf("the change was lost: %v", pod)
				}
			})
		})
	}
}

// TestWhatAnEarlierVersionStored has keys in etcd, and nowhere else.
func TestWhatAnEarlierVersionStored(t *testing.T) {
	keyStore(t, func(t *testing.T, ctx context.Context, store *Store) {
		pod := sentPod("pod", 1, 2)
		pod.UID = "a0000000-0000-4000-8000-000000000001"
		key, err := store.KeyFunc(ctx, pod.Name)
		if err != nil {
			t.Fatal(err)
		}
		// The storage takes what it is given.
		if err := store.Storage.Storage.Create(ctx, key, pod, &example.Pod{}, 0); err != nil {
			t.Fatal(err)
		}

		obj, err := store.Get(ctx, "pod", &metav1.GetOptions{})
		read := expectNoKeys(t, obj, err)
		unchanged := sentPod("pod", 0, 0)
		obj, err = update(ctx, store, unchanged)
		if updated := expectNoKeys(t, obj, err); updated.ResourceVersion != read.ResourceVersion {
			t.Error("an update that changes nothing was written")
		}
		unchanged.Labels = map[string]string{"changed": "true"}
		obj, err = update(ctx, store, unchanged)
		if updated := expectNoKeys(t, obj, err); updated.ResourceVersion == read.ResourceVersion {
			t.Error("a change was not written")
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
			pods[name] = hashkey.OfUID(expectNoKeys(t, obj, err).UID)
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
