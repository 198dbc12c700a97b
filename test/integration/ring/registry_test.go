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
	"path"
	"slices"
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
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	shardingclient "k8s.io/client-go/kubernetes/typed/sharding/v1alpha1"
	restclient "k8s.io/client-go/rest"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
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

func startRegistryServer(t *testing.T) *registryServer {
	flags := append(framework.DefaultTestServerFlags(), "--authorization-mode=RBAC")
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

func newInstance(name string) *shardingv1alpha1.ControllerInstance {
	return &shardingv1alpha1.ControllerInstance{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: shardingv1alpha1.ControllerInstanceSpec{
			ControllerName:       "replicaset-controller",
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

// heartbeat renews the record as the instance does.
func (s *registryServer) heartbeat(name string) {
	s.t.Helper()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"renewTime": metav1.NowMicro()}})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.instances().Patch(s.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		s.t.Fatal(err)
	}
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
	t.Run("preconditions", func(t *testing.T) { s.on(t).testPreconditions() })
	t.Run("selectors", func(t *testing.T) { s.on(t).testSelectors() })
	t.Run("leases", func(t *testing.T) { s.on(t).testLeases() })
	t.Run("expiry", func(t *testing.T) { s.on(t).testExpiry() })
	t.Run("renewal", func(t *testing.T) { s.on(t).testRenewal() })
	t.Run("table", func(t *testing.T) { s.on(t).testTable() })
	t.Run("rbac", func(t *testing.T) { s.on(t).testRBAC() })
}

// on returns the same server for a part of the test, which starts without instances.
func (s *registryServer) on(t *testing.T) *registryServer {
	t.Helper()
	part := *s
	part.t = t
	if err := part.instances().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	return &part
}

// testWrites: spec and status change separately, and only a change of the spec increments
// the generation.
func (s *registryServer) testWrites() {
	t, ctx := s.t, s.t.Context()
	instance := newInstance("a")
	instance.Status.Phase = shardingv1alpha1.InstanceActive
	created := s.create(instance)
	if !apiequality.Semantic.DeepEqual(created.Spec, instance.Spec) || created.Status.Phase != "" || created.Generation != 1 {
		t.Errorf("created %+v, want the spec as it was sent, no status, and generation 1", created)
	}

	change := created.DeepCopy()
	change.Status = shardingv1alpha1.ControllerInstanceStatus{
		Phase:     shardingv1alpha1.InstanceActive,
		Cached:    []shardingv1alpha1.HashKeyRange{{First: 0, Last: 10}, {First: 100, Last: math.MaxInt64}},
		Workloads: 3,
		Busy:      1,
		RenewTime: ptr.To(metav1.NewMicroTime(time.Unix(1_700_000_000, 1000))),
	}
	change.Spec.HashKey = ptr.To[int64](7)
	reported, err := s.instances().UpdateStatus(ctx, change, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !apiequality.Semantic.DeepEqual(reported.Status, change.Status) || !apiequality.Semantic.DeepEqual(reported.Spec, created.Spec) || reported.Generation != 1 {
		t.Errorf("an update of the status gave %+v, want that status, the spec of before, and generation 1", reported)
	}

	change = reported.DeepCopy()
	change.Spec.HashKey, change.Spec.NextHashKey, change.Spec.Donor = ptr.To[int64](math.MaxInt64), ptr.To[int64](0), "b"
	change.Status = shardingv1alpha1.ControllerInstanceStatus{}
	updated, err := s.instances().Update(ctx, change, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !apiequality.Semantic.DeepEqual(updated.Spec, change.Spec) || !apiequality.Semantic.DeepEqual(updated.Status, reported.Status) || updated.Generation != 2 {
		t.Errorf("an update of the spec gave %+v, want that spec, the status of before, and generation 2", updated)
	}

	if _, err := s.instances().Update(ctx, reported, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update with an old resource version gave %v, want a conflict", err)
	}
	if _, err := s.instances().UpdateStatus(ctx, reported, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a heartbeat with an old resource version gave %v, want a conflict", err)
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
	instance.Spec = shardingv1alpha1.ControllerInstanceSpec{HashKey: ptr.To[int64](-1), NextHashKey: ptr.To[int64](-2), Donor: "b"}
	_, err := s.instances().Create(ctx, instance, metav1.CreateOptions{})
	wantInvalid("create", err, "spec.controllerName", "spec.holderIdentity", "spec.leaseDurationSeconds", "spec.hashKey", "spec.nextHashKey", "spec.donor")

	_, err = s.instances().Patch(ctx, "a", types.MergePatchType, []byte(`{"spec":{"controllerName":"job-controller","holderIdentity":"host2"}}`), metav1.PatchOptions{})
	wantInvalid("update", err, "spec.controllerName", "spec.holderIdentity")

	_, err = s.instances().Patch(ctx, "a", types.MergePatchType, []byte(`{"status":{"phase":"Dozing","cached":[{"first":9,"last":8}],"workloads":-1,"busy":-1}}`), metav1.PatchOptions{}, "status")
	wantInvalid("status", err, "status.phase", "status.cached[0].last", "status.workloads", "status.busy")
}

// testPreconditions: a write of a spec that tests UID and generation, as members send it, is
// let in whatever heartbeats there were, and refused once the spec has changed.
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
	s.heartbeat("a")
	if err := grant(decidedOn.UID); err != nil {
		t.Errorf("after a heartbeat: %v", err)
	}
	got, err := s.instances().Get(ctx, "a", metav1.GetOptions{})
	if err != nil || got.Spec.HashKey == nil || *got.Spec.HashKey != highest || got.Generation != decidedOn.Generation+1 {
		t.Errorf("got %+v of generation %d, %v", got.Spec, got.Generation, err)
	}
	wantRefused("a spec that has changed", grant(decidedOn.UID))
}

// testSelectors: clients can list and watch the instances of one controller only.
func (s *registryServer) testSelectors() {
	t, ctx := s.t, s.t.Context()
	s.create(newInstance("a"))
	other := newInstance("b")
	other.Spec.ControllerName = "job-controller"
	s.create(other)

	options := metav1.ListOptions{FieldSelector: "spec.controllerName=job-controller"}
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

// testLeases: each object has its own etcd lease, which every write renews.
func (s *registryServer) testLeases() {
	t, ctx := s.t, s.t.Context()
	owner := map[clientv3.LeaseID]string{}
	last := map[string]clientv3.LeaseID{}
	renewed := func(what string, names ...string) {
		t.Helper()
		for _, name := range names {
			lease := s.lease(name)
			if other, ok := owner[lease]; ok {
				t.Errorf("%s: %s is stored under lease %x, which was that of %s", what, name, lease, other)
			}
			owner[lease], last[name] = name, lease
		}
	}
	s.create(newInstance("a"))
	s.create(newInstance("b"))
	renewed("creation", "a", "b")
	s.heartbeat("a")
	s.heartbeat("b")
	renewed("heartbeat", "a", "b")

	patch := func(name, patch string) {
		t.Helper()
		if _, err := s.instances().Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "somebody-else"}); err != nil {
			t.Fatal(err)
		}
	}
	patch("a", `{"spec":{"nextHashKey":5}}`)
	renewed("spec by somebody else", "a")
	patch("a", `{"metadata":{"labels":{"zone":"a"},"finalizers":["example.com/hold"]}}`)
	renewed("metadata by somebody else", "a")
	if err := s.instances().Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	renewed("deletion held by a finalizer", "a")
	if lease := s.lease("b"); lease != last["b"] {
		t.Errorf("writes of a renewed the lease of b")
	}
	patch("a", `{"metadata":{"finalizers":null}}`)
}

// testExpiry: a record that is not renewed disappears. A watch reports that with the last
// state of the object.
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
	instance.Spec.LeaseDurationSeconds = 2
	created := s.create(instance)
	updated, err := s.instances().Patch(ctx, "a", types.MergePatchType, []byte(`{"spec":{"nextHashKey":5}}`), metav1.PatchOptions{FieldManager: "donor"})
	if err != nil {
		t.Fatal(err)
	}

	deleted := waitForDeletion(t, w, "a")
	if deleted.UID != created.UID || !apiequality.Semantic.DeepEqual(deleted.Spec, updated.Spec) {
		t.Errorf("the event has %+v, want the object as it was last: %+v", deleted, updated)
	}
	if deleted.ResourceVersion == updated.ResourceVersion {
		t.Errorf("the event has resource version %s, that of the last write, want that of the expiry", deleted.ResourceVersion)
	}
	if _, err := s.instances().Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the event: %v, want not found", err)
	}
}

// testRenewal: heartbeats keep a record alive after the lease that it was created under
// has expired.
func (s *registryServer) testRenewal() {
	t, ctx := s.t, s.t.Context()
	instance := newInstance("a")
	instance.Spec.LeaseDurationSeconds = 6
	created := s.create(instance)
	first := s.lease("a")
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, wait.ForeverTestTimeout, true, func(ctx context.Context) (bool, error) {
		s.heartbeat("a")
		left, err := s.EtcdClient.TimeToLive(ctx, first)
		return err == nil && left.TTL < 0, err
	})
	if err != nil {
		t.Fatalf("the first lease did not run out: %v", err)
	}
	got, err := s.instances().Get(ctx, "a", metav1.GetOptions{})
	if err != nil || got.UID != created.UID {
		t.Errorf("got %+v (%v), want the object alive", got, err)
	}
}

func (s *registryServer) testTable() {
	t, ctx := s.t, s.t.Context()
	for name, key := range map[string]*int64{"a": ptr.To[int64](1<<62 - 1), "b": ptr.To[int64](math.MaxInt64), "c": nil} {
		instance := newInstance(name)
		instance.Labels = map[string]string{"name": name}
		instance.Spec.HashKey = key
		s.create(instance)
	}
	if _, err := s.instances().Patch(ctx, "b", types.MergePatchType, []byte(`{"status":{"phase":"Active","workloads":12}}`), metav1.PatchOptions{}, "status"); err != nil {
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
		// Omit the fifth cell, which is the age, and those of the wide form.
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
	if want := []string{"Name", "Controller", "Phase", "Range", "Workloads", "Age"}; !slices.Equal(columns, want) {
		t.Errorf("columns: %q, want %q", columns, want)
	}
	if len(all.Rows) != 3 {
		t.Fatalf("got %d rows, want 3", len(all.Rows))
	}
	wantCells("list", all.Rows[0], "a", "replicaset-controller", "<none>", "[0000000000000000, 3fffffffffffffff]", float64(0))
	wantCells("list", all.Rows[1], "b", "replicaset-controller", "Active", "(3fffffffffffffff, 7fffffffffffffff]", float64(12))
	wantCells("list", all.Rows[2], "c", "replicaset-controller", "<none>", "-", float64(0))

	wantCells("one", table("/b", "").Rows[0], "b", "replicaset-controller", "Active", "≤7fffffffffffffff", float64(12))
	wantCells("part of a ring", table("", "name=b").Rows[0], "b", "replicaset-controller", "Active", "≤7fffffffffffffff", float64(12))
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
	created.Spec.HashKey = ptr.To[int64](math.MaxInt64)
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

	if err := manager.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	waitForDeletion(t, w, "a")
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
