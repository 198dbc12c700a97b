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
	"testing"

	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	restclient "k8s.io/client-go/rest"
	"k8s.io/kubernetes/test/integration/authutil"
	"k8s.io/utils/ptr"
)

// restricted is a user who may write objects, but neither delete them nor set finalizers.
// OwnerReferencesPermissionEnforcement refuses what changes an owner reference for such a user.
const restricted = "restricted"

// enforcing are the flags of a server with that admission plugin.
var enforcing = []string{"--authorization-mode=RBAC", "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"}

// asRestricted returns the collection for the restricted user.
func (s *keyServer) asRestricted(t *testing.T, r keyResource) keyResource {
	t.Helper()
	authutil.GrantUserAuthorization(t, t.Context(), s.client, restricted, rbac.PolicyRule{
		Verbs: []string{"get", "update", "patch"}, APIGroups: []string{r.Group}, Resources: []string{r.Resource, r.Resource + "/status"},
	})
	config := restclient.CopyConfig(s.ClientConfig)
	config.QPS = -1
	config.Impersonate.UserName = restricted
	r.ResourceInterface = dynamic.NewForConfigOrDie(config).Resource(r.GroupVersionResource).Namespace(s.namespace)
	return r
}

// ownedWrite writes an object that its client has read as live.
type ownedWrite func(ctx context.Context, live *unstructured.Unstructured) (*unstructured.Unstructured, error)

// otherWrites are all kinds of writes that leave the owner references alone. They change
// something else, a label or the status, to n.
func otherWrites(r keyResource, n int64) map[string]ownedWrite {
	label := map[string]interface{}{"n": fmt.Sprint(n)}
	status := map[string]interface{}{"status": map[string]interface{}{"observedGeneration": n}}
	patch := func(kind types.PatchType, patch interface{}, subresources ...string) ownedWrite {
		return func(ctx context.Context, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			data, err := json.Marshal(patch)
			if err != nil {
				return nil, err
			}
			return r.Patch(ctx, live.GetName(), kind, data, metav1.PatchOptions{}, subresources...)
		}
	}
	apply := func(owners bool) ownedWrite {
		return func(ctx context.Context, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			metadata := map[string]interface{}{"name": live.GetName(), "labels": label}
			if owners {
				metadata["ownerReferences"] = live.Object["metadata"].(map[string]interface{})["ownerReferences"]
			}
			config := map[string]interface{}{"apiVersion": live.GetAPIVersion(), "kind": live.GetKind(), "metadata": metadata}
			return r.Apply(ctx, live.GetName(), &unstructured.Unstructured{Object: config}, metav1.ApplyOptions{FieldManager: "applier", Force: true})
		}
	}
	writes := map[string]ownedWrite{
		"merge patch":            patch(types.MergePatchType, map[string]interface{}{"metadata": map[string]interface{}{"labels": label}}),
		"merge patch of status":  patch(types.MergePatchType, status, "status"),
		"JSON patch":             patch(types.JSONPatchType, []interface{}{map[string]interface{}{"op": "add", "path": "/metadata/labels", "value": label}}),
		"apply":                  apply(false),
		"apply, with its owners": apply(true),
	}
	if r.kind == "ReplicaSet" {
		writes["strategic merge patch"] = patch(types.StrategicMergePatchType, map[string]interface{}{"metadata": map[string]interface{}{"labels": label}})
		writes["strategic merge patch of status"] = patch(types.StrategicMergePatchType, status, "status")
	}
	for client, keyOf := range map[string]func(metav1.OwnerReference) int64{
		"as read":         func(ref metav1.OwnerReference) int64 { return ptr.Deref(ref.HashKey, 0) },
		"without keys":    func(metav1.OwnerReference) int64 { return 0 },
		"with right keys": rightKey,
		"with wrong keys": func(metav1.OwnerReference) int64 { return 7 },
	} {
		writes["update, "+client] = func(ctx context.Context, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			sent := withOwnerKeys(live.DeepCopy(), keyOf)
			sent.SetLabels(map[string]string{"n": fmt.Sprint(n)})
			return r.Update(ctx, sent, metav1.UpdateOptions{})
		}
		writes["status update, "+client] = func(ctx context.Context, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			sent := withOwnerKeys(live.DeepCopy(), keyOf)
			sent.Object["status"] = map[string]interface{}{"observedGeneration": n, "replicas": int64(0)}
			return r.UpdateStatus(ctx, sent, metav1.UpdateOptions{})
		}
	}
	return writes
}

// TestOwnerKeysPassPermissionEnforcement: keys that a client sends, or that an earlier version has
// stored, are no part of an owner reference, so a user who may not change the references may write
// all else.
func TestOwnerKeysPassPermissionEnforcement(t *testing.T) {
	s := startKeyServer(t, enforcing...)
	for _, r := range []keyResource{s.replicas, s.custom} {
		user := s.asRestricted(t, r)
		for by, create := range map[string]func(name string) *unstructured.Unstructured{
			"an-earlier-version": func(name string) *unstructured.Unstructured {
				return s.byEarlierVersion(t, r, r.object(name, owner(lowUID, true, 0), owner(highUID, false, 0)))
			},
			"us": func(name string) *unstructured.Unstructured {
				created, err := r.Create(t.Context(), r.object(name, owner(lowUID, true, 1), owner(highUID, false, 0)), metav1.CreateOptions{})
				return expectNoKeys(t, created, err)
			},
		} {
			n := int64(0)
			for name, write := range otherWrites(user, 5) {
				n++
				t.Run(fmt.Sprintf("%s, stored by %s, %s", r.Resource, by, name), func(t *testing.T) {
					live := create(fmt.Sprintf("%s-%d", by, n))
					written, err := write(t.Context(), live)
					expectNoKeys(t, written, err)
					if written.GetResourceVersion() == live.GetResourceVersion() {
						t.Error("nothing was written")
					}
				})
			}
		}
		t.Run(r.Resource+", a change of an owner", func(t *testing.T) {
			changed := s.byEarlierVersion(t, r, r.object("changed", owner(lowUID, true, 0)))
			changed.SetOwnerReferences(nil)
			if _, err := user.Update(t.Context(), changed, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
				t.Errorf("got %v, want it to be forbidden", err)
			}
		})
	}
}
