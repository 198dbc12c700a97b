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
	"errors"
	"fmt"
	"math"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	shardingclient "k8s.io/client-go/kubernetes/typed/sharding/v1alpha1"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/ring/fence"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/klog/v2"
	kubeapiservertesting "k8s.io/kubernetes/cmd/kube-apiserver/app/testing"
	"k8s.io/kubernetes/test/integration/framework"
	"k8s.io/utils/ptr"
)

// registryServer is a kube-apiserver with RBAC on the shared etcd, with clients of both.
type registryServer struct {
	t *testing.T
	*kubeapiservertesting.TestServer
	client kubernetes.Interface
}

// startRegistryServer starts one that lets anybody write hash keys, so that a test can set
// up a ring.
func startRegistryServer(t *testing.T) *registryServer {
	flags := append(framework.DefaultTestServerFlags(), "--authorization-mode=RBAC", "--disable-admission-plugins=ControllerRing")
	server := kubeapiservertesting.StartTestServerOrDie(t, nil, flags, framework.SharedEtcd())
	t.Cleanup(server.TearDownFn)
	s := &registryServer{t: t, TestServer: server}
	s.client = s.clientAs("")
	return s
}

// clientAs returns a client for the user of that name, or for an unrestricted user.
func (s *registryServer) clientAs(user string) kubernetes.Interface {
	s.t.Helper()
	config := restclient.CopyConfig(s.ClientConfig)
	config.ContentType = runtime.ContentTypeProtobuf
	config.Impersonate.UserName = user
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		s.t.Fatal(err)
	}
	return client
}

func (s *registryServer) instances() shardingclient.ControllerInstanceInterface {
	return s.client.ShardingV1alpha1().ControllerInstances()
}

// testRing is a ring that tests name instances of as they like.
const testRing = "test"

func newInstance(name string) *shardingv1alpha1.ControllerInstance {
	return &shardingv1alpha1.ControllerInstance{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: shardingv1alpha1.ControllerInstanceSpec{
			Ring:                 testRing,
			HolderIdentity:       "host1_4711",
			LeaseDurationSeconds: 600,
		},
	}
}

func (s *registryServer) create(instance *shardingv1alpha1.ControllerInstance) *shardingv1alpha1.ControllerInstance {
	s.t.Helper()
	created, err := s.instances().Create(s.t.Context(), instance, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return created
}

// lease returns the etcd lease that an instance is stored under. It fails the test if
// there is none, or if the lease has other keys.
func (s *registryServer) lease(name string) clientv3.LeaseID {
	s.t.Helper()
	key := path.Join("/", s.EtcdStoragePrefix, "controllerinstances", name)
	stored, err := s.EtcdClient.Get(s.t.Context(), key)
	if err != nil {
		s.t.Fatal(err)
	}
	if len(stored.Kvs) != 1 {
		s.t.Fatalf("%s is not in etcd", key)
	}
	lease := clientv3.LeaseID(stored.Kvs[0].Lease)
	if lease == clientv3.NoLease {
		s.t.Fatalf("%s is stored without a lease", name)
	}
	attached, err := s.EtcdClient.TimeToLive(s.t.Context(), lease, clientv3.WithAttachedKeys())
	if err != nil {
		s.t.Fatal(err)
	}
	if len(attached.Keys) != 1 || string(attached.Keys[0]) != key {
		s.t.Fatalf("%q are stored under the lease of %s", attached.Keys, name)
	}
	return lease
}

// renew renews the record as the instance does, and returns it. It is no manager of any of its
// fields.
func (s *registryServer) renew(instance *shardingv1alpha1.ControllerInstance) (*shardingv1alpha1.ControllerInstance, error) {
	patch := []byte(`{"metadata":{"uid":"` + string(instance.UID) + `"}}`)
	return s.instances().Patch(s.t.Context(), instance.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "renewal"}, "status")
}

// report changes the status of the record.
func (s *registryServer) report(name string, weight int64) *shardingv1alpha1.ControllerInstance {
	s.t.Helper()
	patch := fmt.Appendf(nil, `{"status":{"weight":%d}}`, weight)
	reported, err := s.instances().Patch(s.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		s.t.Fatal(err)
	}
	return reported
}

// waitForDeletion reads the watch until the instance is deleted, and returns the object of
// that event.
func waitForDeletion(t *testing.T, w watch.Interface, name string) *shardingv1alpha1.ControllerInstance {
	t.Helper()
	timeout := time.After(wait.ForeverTestTimeout)
	for {
		select {
		case event, ok := <-w.ResultChan():
			if !ok {
				t.Fatalf("the watch ended before the deletion of %s", name)
			}
			instance, ok := event.Object.(*shardingv1alpha1.ControllerInstance)
			if !ok {
				t.Fatalf("event %s: %v", event.Type, event.Object)
			}
			if event.Type == watch.Deleted && instance.Name == name {
				return instance
			}
		case <-timeout:
			t.Fatalf("no event reported the deletion of %s", name)
		}
	}
}

func TestRegistry(t *testing.T) {
	s := startRegistryServer(t)
	t.Run("writes", func(t *testing.T) { s.on(t).testWrites() })
	t.Run("validation", func(t *testing.T) { s.on(t).testValidation() })
	t.Run("size", func(t *testing.T) { s.on(t).testSize() })
	t.Run("preconditions", func(t *testing.T) { s.on(t).testPreconditions() })
	t.Run("selectors", func(t *testing.T) { s.on(t).testSelectors() })
	t.Run("leases", func(t *testing.T) { s.on(t).testLeases() })
	t.Run("expiry", func(t *testing.T) { s.on(t).testExpiry() })
	t.Run("renewal", func(t *testing.T) { s.on(t).testRenewal() })
	t.Run("refused renewals", func(t *testing.T) { s.on(t).testRefusedRenewals() })
	t.Run("deletion", func(t *testing.T) { s.on(t).testDeletion() })
	t.Run("table", func(t *testing.T) { s.on(t).testTable() })
	t.Run("rbac", func(t *testing.T) { s.on(t).testRBAC() })
}

// on returns the same server for a part of the test, which starts without instances.
func (s *registryServer) on(t *testing.T) *registryServer {
	t.Helper()
	part := *s
	part.t = t
	if err := part.instances().DeleteCollection(t.Context(), *metav1.NewDeleteOptions(0), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	return &part
}

// testWrites: spec and status change separately, and only a change of the spec increments
// the generation.
func (s *registryServer) testWrites() {
	t, ctx := s.t, s.t.Context()
	instance := newInstance("a")
	instance.Spec.Controllers = []string{"replicaset-controller", "deployment-controller"}
	instance.Spec.Governs = []shardingv1alpha1.Governs{
		{Controller: "*", Resource: "pods", By: shardingv1alpha1.GoverningKeyController},
		{Controller: "replicaset-controller", Group: "apps", Resource: "replicasets", By: shardingv1alpha1.GoverningKeyOwn},
	}
	instance.Spec.PinnedHashKey, instance.Spec.Drained, instance.Spec.Balance = ptr.To[shardingv1alpha1.HashKey](math.MaxInt64), true, shardingv1alpha1.BalanceDisabled
	instance.Spec.Held = []shardingv1alpha1.HashKeyRange{{First: 0, Last: 0}, {First: 100, Last: math.MaxInt64}}
	instance.Spec.HashKey = ptr.To[shardingv1alpha1.HashKey](6)
	instance.Status.Phase = shardingv1alpha1.InstanceActive
	created := s.create(instance)
	if !apiequality.Semantic.DeepEqual(created.Spec, instance.Spec) || created.Status.Phase != "" || created.Generation != 1 {
		t.Errorf("created %+v, want the spec as it was sent, no status, and generation 1", created)
	}

	change := created.DeepCopy()
	change.Status = shardingv1alpha1.ControllerInstanceStatus{
		Phase:  shardingv1alpha1.InstanceActive,
		Cached: []shardingv1alpha1.HashKeyRange{{First: 0, Last: 10}, {First: 100, Last: math.MaxInt64}},
		Weight: 3, Heaviest: 2,
		Busy:  1,
		Epoch: 2,
		Gives: &shardingv1alpha1.Gift{To: "b", HashKey: math.MaxInt64},
		Heap:  &shardingv1alpha1.ProcessHeap{LiveBytes: 1 << 50, Objects: 2},
		Work:  1000,
		Controllers: []shardingv1alpha1.ControllerState{
			{Name: "replicaset-controller", Working: true},
			{Name: "deployment-controller", Reason: "the leader runs it"},
		},
	}
	change.Spec.HashKey = ptr.To[shardingv1alpha1.HashKey](7)
	reported, err := s.instances().UpdateStatus(ctx, change, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if reported.Status.PhaseSince == nil {
		t.Error("the server has not said since when the phase is what it is")
	}
	change.Status.PhaseSince = reported.Status.PhaseSince
	if !apiequality.Semantic.DeepEqual(reported.Status, change.Status) || !apiequality.Semantic.DeepEqual(reported.Spec, created.Spec) || reported.Generation != 1 {
		t.Errorf("an update of the status gave %+v, want that status, the spec of before, and generation 1", reported)
	}

	change = reported.DeepCopy()
	change.Spec.HashKey, change.Spec.NextHashKey, change.Spec.Donor = ptr.To[shardingv1alpha1.HashKey](math.MaxInt64-1), ptr.To[shardingv1alpha1.HashKey](0), "b"
	change.Spec.Drained, change.Spec.Balance = false, ""
	change.Status = shardingv1alpha1.ControllerInstanceStatus{}
	updated, err := s.instances().Update(ctx, change, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// Whoever names a key that no instance does pins the boundary there.
	change.Spec.PinnedHashKey = change.Spec.NextHashKey
	if !apiequality.Semantic.DeepEqual(updated.Spec, change.Spec) || !apiequality.Semantic.DeepEqual(updated.Status, reported.Status) || updated.Generation != 2 {
		t.Errorf("an update of the spec gave %+v, want that spec, the status of before, and generation 2", updated)
	}

	if _, err := s.instances().Update(ctx, reported, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update with an old resource version gave %v, want a conflict", err)
	}
	if _, err := s.instances().UpdateStatus(ctx, reported, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("news with an old resource version gave %v, want a conflict", err)
	}

	released, err := s.instances().Patch(ctx, "a", types.MergePatchType, []byte(`{"spec":{"pinnedHashKey":null}}`), metav1.PatchOptions{})
	if err != nil || released.Spec.PinnedHashKey != nil || !ptr.Equal(released.Spec.NextHashKey, updated.Spec.NextHashKey) {
		t.Errorf("a boundary that is released gave %+v, %v", released.Spec, err)
	}
	identity := fence.Identity{Ring: testRing, Name: "a", UID: created.UID, Epoch: released.Status.Epoch}
	config := restclient.CopyConfig(s.ClientConfig)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return withHeader{next, identity.String()} })
	self, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	moved, err := self.ShardingV1alpha1().ControllerInstances().Patch(ctx, "a", types.MergePatchType, []byte(`{"spec":{"nextHashKey":5}}`), metav1.PatchOptions{})
	if err != nil || moved.Spec.PinnedHashKey != nil || !ptr.Equal(moved.Spec.NextHashKey, ptr.To[shardingv1alpha1.HashKey](5)) {
		t.Errorf("a key that an instance names gave %+v, %v, want it not pinned", moved.Spec, err)
	}

	// Time passes in whole seconds.
	began := reported.Status.PhaseSince
	weight := reported.Status.Weight
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, wait.ForeverTestTimeout, true, func(ctx context.Context) (bool, error) {
		weight++
		if kept := s.report("a", weight); !kept.Status.PhaseSince.Equal(began) {
			return false, fmt.Errorf("news of the same phase gave it the time %v, want that of before, %v", kept.Status.PhaseSince, began)
		}
		return time.Since(began.Time) > time.Second, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	leaves, err := s.instances().Patch(ctx, "a", types.MergePatchType, []byte(`{"status":{"phase":"Leaving","phaseSince":"2020-01-01T00:00:00Z"}}`), metav1.PatchOptions{}, "status")
	if err != nil || !began.Before(leaves.Status.PhaseSince) {
		t.Errorf("another phase gave %+v, %v, want a time after %v", leaves, err, began)
	}

	gone := updated.DeepCopy()
	gone.Name = "nobody"
	if _, err := s.instances().Update(ctx, gone, metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("an update of a missing object gave %v, want not found", err)
	}
}

func (s *registryServer) testValidation() {
	t, ctx := s.t, s.t.Context()
	s.create(newInstance("a"))
	wantInvalid := func(what string, err error, fields ...string) {
		t.Helper()
		var status *apierrors.StatusError
		if !apierrors.IsInvalid(err) || !errors.As(err, &status) {
			t.Errorf("%s: got %v, want it refused as invalid", what, err)
			return
		}
		var got []string
		for _, cause := range status.ErrStatus.Details.Causes {
			got = append(got, cause.Field)
		}
		if !slices.Equal(got, fields) {
			t.Errorf("%s: errors on %q, want %q: %v", what, got, fields, err)
		}
	}

	instance := newInstance("b")
	instance.Spec = shardingv1alpha1.ControllerInstanceSpec{
		HashKey: ptr.To[shardingv1alpha1.HashKey](-1), NextHashKey: ptr.To[shardingv1alpha1.HashKey](-2), Donor: "b",
		Controllers: []string{"*"}, Governs: []shardingv1alpha1.Governs{{Controller: "a", Resource: "pods/status", By: "Owner"}},
	}
	_, err := s.instances().Create(ctx, instance, metav1.CreateOptions{})
	wantInvalid("create", err, "spec.ring", "spec.holderIdentity", "spec.leaseDurationSeconds", "spec.hashKey", "spec.nextHashKey", "spec.donor",
		"spec.controllers[0]", "spec.governs[0].resource", "spec.governs[0].by")
	instance = newInstance("b")
	instance.Spec.PinnedHashKey, instance.Spec.Balance = ptr.To[shardingv1alpha1.HashKey](-1), "On"
	_, err = s.instances().Create(ctx, instance, metav1.CreateOptions{})
	wantInvalid("create", err, "spec.pinnedHashKey", "spec.balance")
	instance = newInstance("b")
	instance.Spec.Held = []shardingv1alpha1.HashKeyRange{{First: -1, Last: 5}, {First: 5, Last: 4}}
	_, err = s.instances().Create(ctx, instance, metav1.CreateOptions{})
	wantInvalid("create", err, "spec.held[0].first", "spec.held[1].last", "spec.held[1].first")

	reserved := newInstance("workloads-a")
	_, err = s.instances().Create(ctx, reserved, metav1.CreateOptions{})
	wantInvalid("reserved name", err, "metadata.name")
	reserved.Name, reserved.Spec.Ring = "a", "workloads"
	_, err = s.instances().Create(ctx, reserved, metav1.CreateOptions{})
	wantInvalid("reserved ring", err, "metadata.name")
	reserved.Name, reserved.GenerateName = "", "workloads-"
	s.create(reserved)

	_, err = s.instances().Patch(ctx, "a", types.MergePatchType, []byte(`{"spec":{"ring":"claims","holderIdentity":"host2","leaseDurationSeconds":6,"controllers":["job-controller"],
		"governs":[{"controller":"*","group":"*","resource":"*","by":"Own"}],"held":[{"first":0,"last":9}]}}`), metav1.PatchOptions{})
	wantInvalid("update", err, "spec.ring", "spec.holderIdentity", "spec.leaseDurationSeconds", "spec.controllers", "spec.governs", "spec.held")

	_, err = s.instances().Patch(ctx, "a", types.MergePatchType, []byte(`{"status":{"phase":"Dozing","cached":[{"first":9,"last":8}],"weight":-1,"busy":-1,"gives":{"to":"B","hashKey":-1},
		"work":1001,"heap":{"liveBytes":0,"objects":-1},"controllers":[{"name":"job-controller","working":true}]}}`), metav1.PatchOptions{}, "status")
	wantInvalid("status", err, "status.cached[0].last", "status.weight", "status.busy", "status.heap.objects", "status.work", "status.phase", "status.controllers[0].name", "status.gives", "status.gives.to", "status.gives.hashKey")

	if _, err := s.instances().Patch(ctx, "a", types.MergePatchType, []byte(`{"status":{"epoch":3}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	_, err = s.instances().Patch(ctx, "a", types.MergePatchType, []byte(`{"status":{"epoch":2}}`), metav1.PatchOptions{}, "status")
	wantInvalid("epoch", err, "status.epoch")

	// No report leaves the next one without an epoch, or a phase that the instance can have.
	for _, report := range []string{`{"epoch":4611686018427387904}`, `{"epoch":1028}`, `{"phase":"Active"}`, `{"epoch":4,"gives":{"to":"b","hashKey":3}}`, `{"weight":1099511627777}`} {
		_, err = s.instances().Patch(ctx, "a", types.MergePatchType, []byte(`{"status":`+report+`}`), metav1.PatchOptions{}, "status")
		if !apierrors.IsInvalid(err) {
			t.Errorf("%s: got %v, want it refused as invalid", report, err)
		}
	}
	if _, err = s.instances().Patch(ctx, "a", types.MergePatchType, []byte(`{"status":{"epoch":1027}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Errorf("the highest step: %v", err)
	}
}

// testSize: nobody who writes the metadata of a record makes it so large that its instance could
// not write it any more, and what is too large all the same is renewed and reported.
func (s *registryServer) testSize() {
	t, ctx := s.t, s.t.Context()
	created := s.create(newInstance("a"))
	annotation := func(size int) []byte {
		return fmt.Appendf(nil, `{"metadata":{"annotations":{"a":%q}}}`, strings.Repeat("x", size))
	}
	if _, err := s.instances().Patch(ctx, "a", types.MergePatchType, annotation(255<<10), metav1.PatchOptions{}); err != nil {
		t.Errorf("255 KiB: %v", err)
	}
	if _, err := s.instances().Patch(ctx, "a", types.MergePatchType, annotation(256<<10), metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("more than 256 KiB: got %v, want it refused as invalid", err)
	}
	// Each manager of a field is remembered.
	var err error
	for n := 0; err == nil && n < 2000; n++ {
		apply := fmt.Appendf(nil, `{"apiVersion":"sharding.k8s.io/v1alpha1","kind":"ControllerInstance","metadata":{"name":"a","labels":{"l%d":"x"}}}`, n)
		_, err = s.instances().Patch(ctx, "a", types.ApplyPatchType, apply, metav1.PatchOptions{FieldManager: fmt.Sprintf("manager-%d", n)})
	}
	if !apierrors.IsInvalid(err) {
		t.Errorf("managers of fields without end: got %v, want them refused as invalid", err)
	}
	if _, err := s.renew(created); err != nil {
		t.Errorf("a renewal: %v", err)
	}
	s.report("a", 7)
}

// testPreconditions: a write of a spec that tests UID and generation, as members send it, is
// let in whatever news and renewals there were, and refused once the spec has changed.
func (s *registryServer) testPreconditions() {
	t, ctx := s.t, s.t.Context()
	const highest = int64(math.MaxInt64)
	decidedOn := s.create(newInstance("a"))
	grant := func(uid types.UID) error {
		_, err := s.instances().Patch(ctx, "a", types.JSONPatchType, []byte(fmt.Sprintf(`[
			{"op":"test","path":"/metadata/uid","value":%q},
			{"op":"test","path":"/metadata/generation","value":%d},
			{"op":"add","path":"/spec/hashKey","value":%d},
			{"op":"add","path":"/spec/nextHashKey","value":null},
			{"op":"add","path":"/spec/donor","value":""}]`, uid, decidedOn.Generation, highest)), metav1.PatchOptions{})
		return err
	}
	wantRefused := func(what string, err error) {
		t.Helper()
		var status *apierrors.StatusError
		if !apierrors.IsInvalid(err) || !errors.As(err, &status) || len(status.ErrStatus.Details.Causes) > 0 {
			t.Errorf("%s: got %v, want 422 without a cause, by which members tell it from an invalid value", what, err)
		}
	}
	wantRefused("another's UID", grant("another"))
	s.report("a", 7)
	if _, err := s.renew(decidedOn); err != nil {
		t.Fatal(err)
	}
	if err := grant(decidedOn.UID); err != nil {
		t.Errorf("after news and a renewal: %v", err)
	}
	got, err := s.instances().Get(ctx, "a", metav1.GetOptions{})
	if err != nil || got.Spec.HashKey == nil || int64(*got.Spec.HashKey) != highest || got.Generation != decidedOn.Generation+1 {
		t.Errorf("got %+v of generation %d, %v", got.Spec, got.Generation, err)
	}
	wantRefused("a spec that has changed", grant(decidedOn.UID))
}

// testSelectors: clients can list and watch the instances of one ring only.
func (s *registryServer) testSelectors() {
	t, ctx := s.t, s.t.Context()
	s.create(newInstance("a"))
	other := newInstance("b")
	other.Spec.Ring = "other"
	s.create(other)

	options := metav1.ListOptions{FieldSelector: "spec.ring=other"}
	list, err := s.instances().List(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Name != "b" {
		t.Errorf("listed %+v, want b alone", list.Items)
	}

	options.ResourceVersion = list.ResourceVersion
	w, err := s.instances().Watch(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for _, name := range []string{"a", "b"} {
		if err := s.instances().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if event := <-w.ResultChan(); event.Type != watch.Deleted || event.Object.(*shardingv1alpha1.ControllerInstance).Name != "b" {
		t.Errorf("the first event is %+v, want that b is gone", event)
	}

	if _, err := s.instances().List(ctx, metav1.ListOptions{FieldSelector: "spec.holderIdentity=host1_4711"}); !apierrors.IsBadRequest(err) {
		t.Errorf("a selector on another field gave %v, want a bad request", err)
	}
}

// testLeases: each record has an etcd lease of its own, which no write takes it off, however
// the request comes.
func (s *registryServer) testLeases() {
	t, ctx := s.t, s.t.Context()
	a, b := s.create(newInstance("a")), s.create(newInstance("b"))
	first := map[string]clientv3.LeaseID{"a": s.lease("a"), "b": s.lease("b")}
	if first["a"] == first["b"] {
		t.Errorf("two records share lease %x", first["a"])
	}
	kept := func(what string) {
		t.Helper()
		for name, lease := range first {
			if got := s.lease(name); got != lease {
				t.Errorf("%s put %s under lease %x, want that of its creation, %x", what, name, got, lease)
			}
		}
	}
	for _, instance := range []*shardingv1alpha1.ControllerInstance{a, b} {
		if _, err := s.renew(instance); err != nil {
			t.Fatal(err)
		}
	}
	kept("a renewal")
	s.report("a", 7)
	kept("news")
	patch := func(name, patch string) {
		t.Helper()
		if _, err := s.instances().Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "somebody-else"}); err != nil {
			t.Fatal(err)
		}
	}
	patch("a", `{"spec":{"hashKey":5}}`)
	kept("a spec by somebody else")
	patch("a", `{"metadata":{"labels":{"zone":"a"},"finalizers":["example.com/hold"]}}`)
	kept("metadata by somebody else")
	for _, grace := range []int64{600, 0} {
		if err := s.instances().Delete(ctx, "a", *metav1.NewDeleteOptions(grace)); err != nil {
			t.Fatal(err)
		}
		kept("a mark of deletion")
	}
	patch("a", `{"metadata":{"finalizers":null}}`)
}

// testExpiry: a record that is not renewed disappears, whatever else is written, news
// included. A watch reports that with the last state of the object.
func (s *registryServer) testExpiry() {
	t, ctx := s.t, s.t.Context()
	list, err := s.instances().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.instances().Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()

	instance := newInstance("a")
	instance.Spec.LeaseDurationSeconds = 5
	created := s.create(instance)
	var updated *shardingv1alpha1.ControllerInstance
	weight := 0
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, wait.ForeverTestTimeout, true, func(ctx context.Context) (bool, error) {
		weight++
		news := fmt.Appendf(nil, `{"status":{"weight":%d}}`, weight)
		written, err := s.instances().Patch(ctx, "a", types.MergePatchType, news, metav1.PatchOptions{}, "status")
		if err == nil {
			updated = written
		}
		return apierrors.IsNotFound(err), nil
	})
	if err != nil {
		t.Fatalf("news has kept the record alive: %v", err)
	}

	deleted := waitForDeletion(t, w, "a")
	if deleted.UID != created.UID || !apiequality.Semantic.DeepEqual(deleted.Status, updated.Status) {
		t.Errorf("the event has %+v, want the object as it was last: %+v", deleted, updated)
	}
	if deleted.ResourceVersion == updated.ResourceVersion {
		t.Errorf("the event has resource version %s, that of the last write, want that of the expiry", deleted.ResourceVersion)
	}
	if _, err := s.instances().Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the event: %v, want not found", err)
	}
}

// testRenewal: renewals keep a record alive beyond the lease that it was created with, and
// store nothing: the record and etcd's log stay as they are, and nobody who watches is told.
func (s *registryServer) testRenewal() {
	t, ctx := s.t, s.t.Context()
	instance := newInstance("a")
	instance.Spec.LeaseDurationSeconds = 5
	instance.Spec.HashKey = ptr.To[shardingv1alpha1.HashKey](math.MaxInt64)
	begin := time.Now()
	created := s.create(instance)
	w, err := s.instances().Watch(ctx, metav1.ListOptions{ResourceVersion: created.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()

	renewals, before := 0, s.raftIndex()
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, wait.ForeverTestTimeout, true, func(context.Context) (bool, error) {
		renewed, err := s.renew(created)
		if err == nil && !apiequality.Semantic.DeepEqual(renewed, created) {
			err = fmt.Errorf("a renewal changed the record to %+v", renewed)
		}
		renewals++
		return renewals >= 100 && time.Since(begin) > 11*time.Second, err
	})
	if err != nil {
		t.Fatal(err)
	}
	// The API server and etcd write a few times on their own.
	if entries := s.raftIndex() - before; entries > uint64(10+time.Since(begin).Seconds()) {
		t.Errorf("etcd's log has %d more entries after %d renewals", entries, renewals)
	}
	reported := s.report("a", 12)
	event := <-w.ResultChan()
	if got, ok := event.Object.(*shardingv1alpha1.ControllerInstance); !ok || got.ResourceVersion != reported.ResourceVersion {
		t.Errorf("the first event after %d renewals is %+v, want the news that followed", renewals, event)
	}

	// What is about to leave lives as others do.
	if err := s.instances().Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if renewed, err := s.renew(created); err != nil || renewed.DeletionTimestamp == nil {
		t.Errorf("a renewal of a record that is marked as deleted gave %+v, %v", renewed, err)
	}
	waitForDeletion(t, w, "a")
}

// raftIndex returns the length of etcd's log.
func (s *registryServer) raftIndex() uint64 {
	s.t.Helper()
	status, err := s.EtcdClient.Status(s.t.Context(), s.EtcdClient.Endpoints()[0])
	if err != nil {
		s.t.Fatal(err)
	}
	return status.RaftIndex
}

// testRefusedRenewals: an instance learns from the answer why its record cannot be renewed.
func (s *registryServer) testRefusedRenewals() {
	t, ctx := s.t, s.t.Context()
	created := s.create(newInstance("a"))
	stranger := created.DeepCopy()
	stranger.UID = "another"
	if _, err := s.renew(stranger); !apierrors.IsConflict(err) || fence.IsLeaseLost(err) {
		t.Errorf("another's UID: got %v, want a conflict without a cause", err)
	}

	// Take the record off its lease, which the registry never does.
	key := path.Join("/", s.EtcdStoragePrefix, "controllerinstances", "a")
	lease := s.lease("a")
	stored, err := s.EtcdClient.Get(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.EtcdClient.Put(ctx, key, string(stored.Kvs[0].Value)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.renew(created); !apierrors.IsConflict(err) || !fence.IsLeaseLost(err) {
		t.Errorf("a record without a lease: got %v, want a conflict with cause %s", err, fence.CauseLeaseLost)
	}

	if _, err := s.EtcdClient.Put(ctx, key, string(stored.Kvs[0].Value), clientv3.WithLease(lease)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.EtcdClient.Revoke(ctx, lease); err != nil {
		t.Fatal(err)
	}
	if _, err := s.renew(created); !apierrors.IsNotFound(err) {
		t.Errorf("a record whose lease has ended: got %v, want not found", err)
	}
}

// testDeletion: a delete of the record of an instance that owns a range asks the instance to
// leave. The instance's own delete is the end.
func (s *registryServer) testDeletion() {
	t, ctx := s.t, s.t.Context()
	owner := newInstance("a")
	owner.Spec.HashKey = ptr.To[shardingv1alpha1.HashKey](math.MaxInt64)
	created := s.create(owner)
	w, err := s.instances().Watch(ctx, metav1.ListOptions{ResourceVersion: created.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for _, options := range []metav1.DeleteOptions{{}, {}, *metav1.NewDeleteOptions(600)} {
		if err := s.instances().Delete(ctx, "a", options); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.instances().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	event := <-w.ResultChan()
	marked, ok := event.Object.(*shardingv1alpha1.ControllerInstance)
	if !ok || event.Type != watch.Modified || marked.DeletionTimestamp == nil || marked.Generation != created.Generation+1 {
		t.Fatalf("the first event is %+v, want the record marked as deleted", event)
	}

	identity := fence.Identity{Ring: testRing, Name: "a", UID: created.UID}
	config := restclient.CopyConfig(s.ClientConfig)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return withHeader{next, identity.String()} })
	self, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := self.ShardingV1alpha1().ControllerInstances().Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForDeletion(t, w, "a")

	s.create(owner)
	s.create(newInstance("b"))
	for name, options := range map[string]metav1.DeleteOptions{"a": *metav1.NewDeleteOptions(0), "b": {}} {
		if err := s.instances().Delete(ctx, name, options); err != nil {
			t.Fatal(err)
		}
		if _, err := s.instances().Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s is there after its delete: %v", name, err)
		}
	}
}

func (s *registryServer) testTable() {
	t, ctx := s.t, s.t.Context()
	for name, key := range map[string]*int64{"a": ptr.To[int64](1<<62 - 1), "b": ptr.To[int64](math.MaxInt64), "c": nil} {
		instance := newInstance(name)
		instance.Labels = map[string]string{"name": name}
		instance.Spec.HashKey = (*shardingv1alpha1.HashKey)(key)
		s.create(instance)
	}
	if _, err := s.instances().Patch(ctx, "b", types.MergePatchType, []byte(`{"status":{"phase":"Active","weight":12}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}

	client, err := kubernetes.NewForConfig(s.ClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	table := func(path, labelSelector string) *metav1.Table {
		t.Helper()
		request := client.ShardingV1alpha1().RESTClient().Get().AbsPath("/apis/sharding.k8s.io/v1alpha1/controllerinstances"+path).
			SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
		if labelSelector != "" {
			request = request.Param("labelSelector", labelSelector)
		}
		raw, err := request.Do(ctx).Raw()
		if err != nil {
			t.Fatal(err)
		}
		table := &metav1.Table{}
		if err := json.Unmarshal(raw, table); err != nil {
			t.Fatal(err)
		}
		return table
	}
	wantCells := func(what string, row metav1.TableRow, want ...any) {
		t.Helper()
		// Omit what comes from the status alone, the age, and the cells of the wide form.
		if got := row.Cells[:5]; !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}

	all := table("", "")
	var columns []string
	for _, column := range all.ColumnDefinitions {
		if column.Priority == 0 {
			columns = append(columns, column.Name)
		}
	}
	if want := []string{"Name", "Ring", "Phase", "Range", "Weight", "Controllers", "Age", "Waiting"}; !slices.Equal(columns, want) {
		t.Errorf("columns: %q, want %q", columns, want)
	}
	if len(all.Rows) != 3 {
		t.Fatalf("got %d rows, want 3", len(all.Rows))
	}
	wantCells("list", all.Rows[0], "a", testRing, "<none>", "[0000000000000000, 3fffffffffffffff]", float64(0))
	wantCells("list", all.Rows[1], "b", testRing, "Active", "(3fffffffffffffff, 7fffffffffffffff]", float64(12))
	wantCells("list", all.Rows[2], "c", testRing, "<none>", "-", float64(0))

	wantCells("one", table("/b", "").Rows[0], "b", testRing, "Active", "≤7fffffffffffffff", float64(12))
	wantCells("part of a ring", table("", "name=b").Rows[0], "b", testRing, "Active", "≤7fffffffffffffff", float64(12))
}

// testRBAC: kube-controller-manager may do what the protocol requires. Nobody else may,
// including its controllers where they have identities of their own.
func (s *registryServer) testRBAC() {
	t, ctx := s.t, s.t.Context()
	manager := s.clientAs("system:kube-controller-manager").ShardingV1alpha1().ControllerInstances()
	// A healthy server has written the bootstrap roles, but may not have read them yet.
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, wait.ForeverTestTimeout, true, func(ctx context.Context) (bool, error) {
		_, err := manager.Get(ctx, "a", metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	if err != nil {
		t.Fatal("kube-controller-manager may not get controllerinstances")
	}
	created, err := manager.Create(ctx, newInstance("a"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	created.Spec.HashKey = ptr.To[shardingv1alpha1.HashKey](math.MaxInt64)
	updated, err := manager.Update(ctx, created, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	updated.Status.Phase = shardingv1alpha1.InstanceActive
	if _, err := manager.UpdateStatus(ctx, updated, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := manager.Patch(ctx, "a", types.MergePatchType, []byte(`{"spec":{"donor":"b"}}`), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := manager.Patch(ctx, "a", types.MergePatchType, []byte(`{"status":{"busy":1}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Error(err)
	}
	list, err := manager.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := manager.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()

	for _, user := range []string{"system:serviceaccount:kube-system:replicaset-controller", "system:kube-scheduler", "somebody"} {
		instances := s.clientAs(user).ShardingV1alpha1().ControllerInstances()
		if _, err := instances.Create(ctx, newInstance("b"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s creates an instance: %v, want forbidden", user, err)
		}
		if _, err := instances.Patch(ctx, "a", types.MergePatchType, []byte(`{"status":{"busy":2}}`), metav1.PatchOptions{}, "status"); !apierrors.IsForbidden(err) {
			t.Errorf("%s writes a status: %v, want forbidden", user, err)
		}
		if err := instances.Delete(ctx, "a", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s deletes an instance: %v, want forbidden", user, err)
		}
	}

	if err := manager.Delete(ctx, "a", *metav1.NewDeleteOptions(0)); err != nil {
		t.Error(err)
	}
	waitForDeletion(t, w, "a")
}

// TestLeasesOutliveRestarts: after a restart of etcd and the API server, records are under the
// leases that they had. An instance that missed no more than that renews its record. One that
// is dead is found out.
func TestLeasesOutliveRestarts(t *testing.T) {
	data := t.TempDir()
	var store *storagebackend.Config
	start := func() (s *registryServer, stop func()) {
		url, stopEtcd, err := framework.RunCustomEtcd(klog.FromContext(t.Context()), "restarts", []string{"--data-dir", data})
		if err != nil {
			t.Fatal(err)
		}
		if store == nil {
			store = storagebackend.NewDefaultConfig("registry", nil)
		}
		store.Transport.ServerList = []string{url}
		flags := append(framework.DefaultTestServerFlags(), "--disable-admission-plugins=ControllerRing")
		server, err := kubeapiservertesting.StartTestServer(t, nil, flags, store)
		if err != nil {
			stopEtcd()
			t.Fatal(err)
		}
		s = &registryServer{t: t, TestServer: &server}
		s.client = s.clientAs("")
		return s, func() {
			server.TearDownFn()
			stopEtcd()
		}
	}

	s, stop := start()
	created := s.create(newInstance("a"))
	dead := newInstance("b")
	dead.Spec.LeaseDurationSeconds = 2
	s.create(dead)
	if _, err := s.renew(created); err != nil {
		t.Error(err)
	}
	lease := s.lease("a")
	stop()

	s, stop = start()
	defer stop()
	if got := s.lease("a"); got != lease {
		t.Errorf("after the restart it is under lease %x, want %x", got, lease)
	}
	renewed, err := s.renew(created)
	if err != nil || renewed.ResourceVersion != created.ResourceVersion {
		t.Errorf("a renewal after the restart gave %+v, %v", renewed, err)
	}
	err = wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, wait.ForeverTestTimeout, true, func(ctx context.Context) (bool, error) {
		_, err := s.instances().Get(ctx, "b", metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	if err != nil {
		t.Error("a record that nobody renews is still there")
	}
}

// TestRegistryGateOff: with the feature gate ControllerRing off, the group is not served.
func TestRegistryGateOff(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ControllerRing, false)
	s := startRegistryServer(t)
	groups, err := s.client.Discovery().ServerGroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range groups.Groups {
		if group.Name == shardingv1alpha1.GroupName {
			t.Errorf("discovery has %s", group.Name)
		}
	}
	if _, err := s.instances().List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a list gave %v, want not found", err)
	}
}

// TestRegistryTurnedOff: --runtime-config turns the group off like any other.
func TestRegistryTurnedOff(t *testing.T) {
	flags := append(framework.DefaultTestServerFlags(), "--runtime-config=sharding.k8s.io/v1alpha1=false")
	server := kubeapiservertesting.StartTestServerOrDie(t, nil, flags, framework.SharedEtcd())
	t.Cleanup(server.TearDownFn)
	client, err := kubernetes.NewForConfig(server.ClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.ShardingV1alpha1().ControllerInstances().List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a list gave %v, want not found", err)
	}
}
