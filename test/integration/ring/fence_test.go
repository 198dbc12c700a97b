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
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	flowcontrol "k8s.io/api/flowcontrol/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	audit "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	shardingclient "k8s.io/client-go/kubernetes/typed/sharding/v1alpha1"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/ring/fence"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	kubeapiservertesting "k8s.io/kubernetes/cmd/kube-apiserver/app/testing"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/test/integration/framework"
	"k8s.io/utils/ptr"
)

// The keys of two instances that share all hash keys in the tests of the fence.
const (
	lowEnd  = math.MaxInt64 / 2
	highEnd = math.MaxInt64
)

// controllerIn returns a controller reference to a ReplicaSet with a key in (after, upTo].
func controllerIn(after, upTo int64) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "set", Controller: ptr.To(true),
		UID: uidIn(hashkey.Between(after, upTo)[0]),
	}
}

func newPod(owners ...metav1.OwnerReference) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-", OwnerReferences: owners},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "image"}}},
	}
}

// withHeader sends requests with that value of fence.Header.
type withHeader struct {
	next  http.RoundTripper
	value string
}

func (h withHeader) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set(fence.Header, h.value)
	return h.next.RoundTrip(req)
}

// roundTripper is a function that sends requests.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// fenceServer is a kube-apiserver with RBAC and a namespace.
type fenceServer struct {
	*registryServer
	namespace string
	// owners are those that owns has returned.
	owners []*worker
}

func startFenceServer(t testing.TB, flags ...string) *fenceServer {
	s := startFenceServerOn(t, framework.SharedEtcd(), flags...)
	s.namespace = framework.CreateNamespaceOrDie(s.client, "fence", t).Name
	return s
}

// startFenceServerOn starts one without a namespace on storage that other servers may share.
func startFenceServerOn(t testing.TB, storage *storagebackend.Config, flags ...string) *fenceServer {
	flags = append(append(framework.DefaultTestServerFlags(), "--disable-admission-plugins=ServiceAccount", "--authorization-mode=RBAC"), flags...)
	server := kubeapiservertesting.StartTestServerOrDie(t, nil, flags, storage)
	t.Cleanup(server.TearDownFn)
	s := &fenceServer{registryServer: &registryServer{TestServer: server}}
	s.client = s.as(t, "")
	return s
}

// as returns a client whose requests have that value of fence.Header, none if it is empty.
func (s *fenceServer) as(t testing.TB, header string) kubernetes.Interface {
	t.Helper()
	if header == "" {
		return s.with(t, "", nil)
	}
	return s.with(t, "", func() string { return header })
}

// with returns a client for the user of that name, or for an unrestricted one, whose requests
// have that header.
func (s *fenceServer) with(t testing.TB, user string, header func() string) kubernetes.Interface {
	t.Helper()
	config := restclient.CopyConfig(s.ClientConfig)
	config.QPS = -1
	config.Impersonate.UserName = user
	if header != nil {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) { return withHeader{next, header()}.RoundTrip(req) })
		})
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// on begins a part of the test, which starts without instances.
func (s *fenceServer) on(t *testing.T) *fenceServer {
	t.Helper()
	return &fenceServer{registryServer: s.registryServer.on(t), namespace: s.namespace}
}

// worker is an instance that sends requests as a real one does.
type worker struct {
	t        testing.TB
	identity fence.Identity
	// writes sends the requests of its replicaset-controller, registry its own.
	writes   kubernetes.Interface
	registry shardingclient.ControllerInstanceInterface
}

const replicaSetController = catalogue.ReplicaSetController

// newRecord returns the record of an instance as a controller manager creates it, but for its
// ring and name.
func newRecord(name string) *shardingv1alpha1.ControllerInstance {
	workloads, _ := catalogue.RingNamed(catalogue.WorkloadsRing)
	instance := newInstance(name)
	instance.Spec.Controllers = workloads.ControllerNames()
	instance.Spec.Governs = workloads.Governs()
	return instance
}

// register creates the record, and returns the instance.
func (s *fenceServer) register(t testing.TB, record *shardingv1alpha1.ControllerInstance) *worker {
	t.Helper()
	created, err := s.instances().Create(t.Context(), record, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{t: t, identity: fence.Identity{Ring: created.Spec.Ring, Name: created.Name, UID: created.UID}}
	w.writes = s.with(t, "", func() string {
		identity := w.identity
		identity.Controller = replicaSetController
		return identity.String()
	})
	w.registry = s.with(t, "", func() string { return w.identity.String() }).ShardingV1alpha1().ControllerInstances()
	return w
}

// owns registers an instance that has that key: it takes the key where nobody on its ring owns one,
// or else gets it from an owner.
func (s *fenceServer) owns(t testing.TB, name string, key int64) *worker {
	t.Helper()
	return s.ownsAs(t, newRecord(name), key)
}

func (s *fenceServer) ownsAs(t testing.TB, record *shardingv1alpha1.ControllerInstance, key int64) *worker {
	t.Helper()
	w := s.register(t, record)
	list, err := s.instances().List(t.Context(), metav1.ListOptions{FieldSelector: "spec.ring=" + record.Spec.Ring})
	w.must(err)
	donor := slices.IndexFunc(s.owners, func(owner *worker) bool {
		return slices.ContainsFunc(list.Items, func(i shardingv1alpha1.ControllerInstance) bool {
			return i.UID == owner.identity.UID && i.Spec.HashKey != nil
		})
	})
	if donor < 0 {
		w.must(w.setKey(w.identity.Name, key))
	} else {
		s.owners[donor].give(w.identity.Name, key)
	}
	s.owners = append(s.owners, w)
	return w
}

func (w *worker) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// setKey writes the hash key of a record in the name of w, and closes the handover.
func (w *worker) setKey(name string, key int64) error {
	_, err := w.registry.Patch(w.t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"hashKey":%d,"nextHashKey":null}}`, key), metav1.PatchOptions{})
	return err
}

// report writes the status of w: its epoch, and that it gives nothing, or a key.
func (w *worker) report(gives string) {
	w.t.Helper()
	patch := fmt.Appendf(nil, `{"status":{"epoch":%d,"gives":%s}}`, w.identity.Epoch, gives)
	_, err := w.registry.Patch(w.t.Context(), w.identity.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	w.must(err)
}

// announce raises the epoch of w, and says what it gives.
func (w *worker) announce(to string, key int64) {
	w.t.Helper()
	w.identity.Epoch++
	w.report(fmt.Sprintf(`{"to":%q,"hashKey":%d}`, to, key))
}

// give is what a donor does: it says what it gives, and grants it.
func (w *worker) give(to string, key int64) {
	w.t.Helper()
	w.announce(to, key)
	w.must(w.setKey(to, key))
	w.report("null")
}

func (s *fenceServer) createPod(client kubernetes.Interface, owners ...metav1.OwnerReference) (*v1.Pod, error) {
	return client.CoreV1().Pods(s.namespace).Create(s.t.Context(), newPod(owners...), metav1.CreateOptions{})
}

func (s *fenceServer) wantRefused(what string, err error, message string) {
	s.t.Helper()
	if !fence.IsFenced(err) || !apierrors.IsConflict(err) || !strings.Contains(err.Error(), message) {
		s.t.Errorf("%s: got %v, want a conflict by the fence with %q", what, err, message)
	}
}

func (s *fenceServer) wantPassed(what string, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Errorf("%s: %v", what, err)
	}
}

// metric returns the sum of a counter of this process over its labels.
func (s *fenceServer) metric(t testing.TB, name string) int {
	t.Helper()
	total := 0
	for _, sample := range scrape(t.Context(), t, s.client)[name] {
		total += int(sample.Value)
	}
	return total
}

const (
	quorumReads = "apiserver_controller_ring_fence_quorum_reads_total"
	judgedAnew  = "apiserver_controller_ring_fence_judged_anew_total"
)

func TestFence(t *testing.T) {
	s := startFenceServer(t)
	t.Run("writes", func(t *testing.T) { s.on(t).testFencedWrites() })
	t.Run("other ways", func(t *testing.T) { s.on(t).testFencedOtherWays() })
	t.Run("own key", func(t *testing.T) { s.on(t).testFencedOwnKey() })
	t.Run("identity", func(t *testing.T) { s.on(t).testFencedIdentity() })
	t.Run("not covered", func(t *testing.T) { s.on(t).testNotCovered() })
	t.Run("epoch", func(t *testing.T) { s.on(t).testEpoch() })
	t.Run("no identity", func(t *testing.T) { s.on(t).testUnnamedWrites() })
	t.Run("rights", func(t *testing.T) { s.on(t).testRights() })
	t.Run("rights by ring", func(t *testing.T) { s.on(t).testRightsByRing() })
	t.Run("fields", func(t *testing.T) { s.on(t).testFieldsBySteering() })
	t.Run("grants", func(t *testing.T) { s.on(t).testGrants() })
	t.Run("at once after a grant", func(t *testing.T) { s.on(t).testWriteAtOnceAfterGrant() })
	t.Run("expiry", func(t *testing.T) { s.on(t).testWriteAfterExpiry() })
	t.Run("view", func(t *testing.T) { s.on(t).testViewSuffices() })
	t.Run("records", func(t *testing.T) { s.on(t).testRecords() })
	t.Run("lever", func(t *testing.T) { s.on(t).testLever() })
	t.Run("priority", func(t *testing.T) { s.on(t).testPriority() })
}

// testFencedWrites: the governing key of a pod is its controller's, whichever way the pod
// is written.
func (s *fenceServer) testFencedWrites() {
	t, ctx := s.t, s.t.Context()
	a, b := s.owns(t, "a", lowEnd).writes, s.owns(t, "b", highEnd).writes
	low, high := controllerIn(-1, lowEnd), controllerIn(lowEnd, highEnd)
	pods := func(client kubernetes.Interface) interface {
		Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*v1.Pod, error)
		Delete(context.Context, string, metav1.DeleteOptions) error
		UpdateStatus(context.Context, *v1.Pod, metav1.UpdateOptions) (*v1.Pod, error)
	} {
		return client.CoreV1().Pods(s.namespace)
	}
	belongs := fmt.Sprintf("hash key %016x, which governs the object, belongs to a; ControllerInstance b owns", hashkey.OfUID(low.UID))

	_, err := s.createPod(b, low)
	s.wantRefused("create by another", err, belongs)
	pod, err := s.createPod(a, low)
	s.wantPassed("create by the owner", err)
	if list, err := s.client.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) != 1 {
		t.Errorf("after one refusal and one creation there are %d pods (%v), want 1", len(list.Items), err)
	}

	label := []byte(`{"metadata":{"labels":{"by":"me"}}}`)
	_, err = pods(b).Patch(ctx, pod.Name, types.MergePatchType, label, metav1.PatchOptions{})
	s.wantRefused("patch by another", err, belongs)
	_, err = pods(a).Patch(ctx, pod.Name, types.MergePatchType, label, metav1.PatchOptions{})
	s.wantPassed("patch by the owner", err)
	status := pod.DeepCopy()
	status.ResourceVersion = ""
	status.Status.Phase = v1.PodFailed
	_, err = pods(b).UpdateStatus(ctx, status, metav1.UpdateOptions{})
	s.wantRefused("status by another", err, belongs)
	_, err = pods(a).UpdateStatus(ctx, status, metav1.UpdateOptions{})
	s.wantPassed("status by the owner", err)

	release := []byte(fmt.Sprintf(`{"metadata":{"uid":%q,"ownerReferences":[{"$patch":"delete","uid":%q}]}}`, pod.UID, low.UID))
	_, err = pods(b).Patch(ctx, pod.Name, types.StrategicMergePatchType, release, metav1.PatchOptions{})
	s.wantRefused("release by another", err, belongs)
	_, err = pods(a).Patch(ctx, pod.Name, types.StrategicMergePatchType, release, metav1.PatchOptions{})
	s.wantPassed("release by the owner", err)

	_, err = pods(b).Patch(ctx, pod.Name, types.MergePatchType, label, metav1.PatchOptions{})
	s.wantPassed("patch of a pod without controller", err)
	adopt := func(owner metav1.OwnerReference) []byte {
		return []byte(fmt.Sprintf(`{"metadata":{"uid":%q,"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"set","controller":true,"uid":%q}]}}`, pod.UID, owner.UID))
	}
	_, err = pods(a).Patch(ctx, pod.Name, types.StrategicMergePatchType, adopt(high), metav1.PatchOptions{})
	s.wantRefused("adoption for another's ReplicaSet", err, "belongs to b")
	_, err = pods(b).Patch(ctx, pod.Name, types.StrategicMergePatchType, adopt(high), metav1.PatchOptions{})
	s.wantPassed("adoption", err)

	transfer := []byte(fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"set","controller":true,"uid":%q}]}}`, low.UID))
	for _, client := range []kubernetes.Interface{a, b} {
		_, err = pods(client).Patch(ctx, pod.Name, types.MergePatchType, transfer, metav1.PatchOptions{})
		s.wantRefused("from one owner's ReplicaSet to the other's", err, "belongs to")
	}

	s.wantRefused("delete by another", pods(a).Delete(ctx, pod.Name, metav1.DeleteOptions{}), "belongs to b")
	s.wantPassed("delete by the owner", pods(b).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
}

// testFencedOwnKey: the governing key of a ReplicaSet is its own, not that of the
// Deployment that controls it.
func (s *fenceServer) testFencedOwnKey() {
	t, ctx := s.t, s.t.Context()
	a, b := s.owns(t, "a", lowEnd).writes, s.owns(t, "b", highEnd).writes
	labels := map[string]string{"app": "x"}
	for seen := map[bool]bool{}; len(seen) < 2; {
		set, err := s.client.AppsV1().ReplicaSets(s.namespace).Create(ctx, &apps.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "set-"},
			Spec:       apps.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: newPod().Spec}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		inLow := metav1.HashKeyOf(set) <= lowEnd
		// Its Deployment's key lies in the other half.
		deployment := controllerIn(-1, lowEnd)
		owner, other := b, a
		if inLow {
			deployment = controllerIn(lowEnd, highEnd)
			owner, other = a, b
		}
		deployment.Kind = "Deployment"
		set.OwnerReferences = []metav1.OwnerReference{deployment}
		if set, err = s.client.AppsV1().ReplicaSets(s.namespace).Update(ctx, set, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		set.Status.ObservedGeneration = 1
		_, err = other.AppsV1().ReplicaSets(s.namespace).UpdateStatus(ctx, set, metav1.UpdateOptions{})
		s.wantRefused("status by another", err, "which governs the object, belongs to")
		_, err = owner.AppsV1().ReplicaSets(s.namespace).UpdateStatus(ctx, set, metav1.UpdateOptions{})
		s.wantPassed("status by the owner", err)
		seen[inLow] = true
	}
}

// testFencedOtherWays: a write that carries no owner reference is judged by the object that it
// changes.
func (s *fenceServer) testFencedOtherWays() {
	t, ctx := s.t, s.t.Context()
	a, b := s.owns(t, "a", lowEnd).writes, s.owns(t, "b", highEnd).writes
	low := controllerIn(-1, lowEnd)
	bind := func(client kubernetes.Interface, pod string) error {
		return client.CoreV1().Pods(s.namespace).Bind(ctx, &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod}, Target: v1.ObjectReference{Kind: "Node", Name: "node"}}, metav1.CreateOptions{})
	}
	evict := func(client kubernetes.Interface, pod string) error {
		return client.PolicyV1().Evictions(s.namespace).Evict(ctx, &policy.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: s.namespace}})
	}
	deleteAll := func(client kubernetes.Interface, pod string) error {
		return client.CoreV1().Pods(s.namespace).DeleteCollection(ctx, *metav1.NewDeleteOptions(0), metav1.ListOptions{FieldSelector: "metadata.name=" + pod})
	}
	for what, write := range map[string]func(kubernetes.Interface, string) error{"binding": bind, "eviction": evict, "delete collection": deleteAll} {
		pod, err := s.createPod(a, low)
		s.wantPassed("create", err)
		s.wantRefused(what+" by another", write(b, pod.Name), "belongs to a")
		s.wantPassed(what+" by the owner", write(a, pod.Name))
	}
}

// testNotCovered: what no line of spec.governs covers is refused, though the instance owns all
// keys.
func (s *fenceServer) testNotCovered() {
	t := s.t
	record := newRecord("a")
	record.Spec.Governs = []shardingv1alpha1.Governs{{Controller: replicaSetController, Resource: "configmaps", By: shardingv1alpha1.GoverningKeyOwn}}
	a := s.ownsAs(t, record, highEnd)
	const unknown = `ControllerInstance a does not say which hash key governs what controller "replicaset-controller" writes to pods`
	_, err := s.createPod(a.writes, controllerIn(-1, highEnd))
	s.wantRefused("with a controller", err, unknown)
	_, err = s.createPod(a.writes)
	s.wantRefused("without a controller", err, unknown)

	stranger := s.owns(t, "b", lowEnd).identity
	for controller, message := range map[string]string{
		"somebody-elses": `what controller "somebody-elses" writes to pods`,
		"":               `what controller "" writes to pods`,
	} {
		stranger.Controller = controller
		_, err = s.createPod(s.as(t, stranger.String()))
		s.wantRefused("controller "+controller, err, message)
	}
	stranger.Ring, stranger.Controller = "another", replicaSetController
	_, err = s.createPod(s.as(t, stranger.String()))
	s.wantRefused("another ring", err, `ControllerInstance b is on ring "test"; the write names it on ring "another"`)
}

// testEpoch: what was sent before the instance gave keys away is refused from then on.
func (s *fenceServer) testEpoch() {
	t := s.t
	a := s.owns(t, "a", highEnd)
	before := a.identity
	before.Controller = replicaSetController
	earlier := s.as(t, before.String())
	_, err := s.createPod(earlier, controllerIn(-1, highEnd))
	s.wantPassed("before", err)
	a.announce("b", lowEnd)
	_, err = s.createPod(earlier, controllerIn(-1, highEnd))
	s.wantRefused("sent before, arrived after", err, fmt.Sprintf("ControllerInstance a is in epoch %d; the write is of epoch %d", a.identity.Epoch, before.Epoch))
	_, err = s.createPod(a.writes, controllerIn(-1, highEnd))
	s.wantPassed("sent after", err)
	a.identity.Epoch++
	_, err = s.createPod(a.writes, controllerIn(-1, highEnd))
	s.wantPassed("sent before the registry had the epoch", err)
}

// testFencedIdentity: an instance that is gone, or was replaced by another of the same
// name, cannot change what a ring protects. An incomplete name is refused.
func (s *fenceServer) testFencedIdentity() {
	t, ctx := s.t, s.t.Context()
	identity := s.owns(t, "a", highEnd).identity
	identity.Controller = replicaSetController
	reference := controllerIn(-1, highEnd)
	gone, other := identity, identity
	gone.Name, other.UID = "nobody", "another"
	nobody := s.as(t, gone.String())
	_, err := s.createPod(nobody, reference)
	s.wantRefused("an instance that is gone", err, fmt.Sprintf("ControllerInstance nobody (UID %s) is gone; another instance may work on the object now", identity.UID))
	_, err = s.createPod(nobody)
	s.wantRefused("an instance that is gone, a pod without controller", err, "is gone")
	_, err = s.createPod(s.as(t, other.String()), reference)
	s.wantRefused("another instance", err, fmt.Sprintf("ControllerInstance a has UID %s", identity.UID))

	_, err = nobody.CoreV1().Events(s.namespace).Create(ctx, &v1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "event-"},
		InvolvedObject: v1.ObjectReference{Kind: "ReplicaSet", Namespace: s.namespace, Name: "set"},
		Reason:         "FailedCreate",
	}, metav1.CreateOptions{})
	s.wantPassed("an event of an instance that is gone", err)

	for _, header := range []string{"a", "workloads/a", "//" + string(identity.UID), "a/b/c"} {
		if _, err := s.createPod(s.as(t, header), reference); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "want RING/NAME/UID/EPOCH/CONTROLLER of its ControllerInstance") {
			t.Errorf("header %q: got %v, want a bad request that says what is wanted", header, err)
		}
	}
}

// testUnnamedWrites: the fence ignores requests that name no instance.
func (s *fenceServer) testUnnamedWrites() {
	s.owns(s.t, "a", lowEnd)
	before := s.metric(s.t, quorumReads)
	pod, err := s.createPod(s.client, controllerIn(lowEnd, highEnd))
	s.wantPassed("create", err)
	s.wantPassed("delete", s.client.CoreV1().Pods(s.namespace).Delete(s.t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	if n := s.metric(s.t, quorumReads) - before; n != 0 {
		s.t.Errorf("the registry was read %d times for them", n)
	}
}

// testRights: only who may work on a ring writes in the name of its instances. Anybody else
// gets 403, and nothing is read for that. Reads ignore the header.
func (s *fenceServer) testRights() {
	t, ctx := s.t, s.t.Context()
	record := newRecord("workloads-a")
	record.Spec.Ring = catalogue.WorkloadsRing
	a := s.ownsAs(t, record, highEnd)
	identity := a.identity
	identity.Controller = replicaSetController
	stranger := s.with(t, "stranger", identity.String)
	s.allow("stranger", rbac.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"pods"}})
	const forbidden = `rings.sharding.k8s.io "workloads" is forbidden: User "stranger" cannot work resource "rings" in API group "sharding.k8s.io" at the cluster scope`
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, wait.ForeverTestTimeout, true, func(context.Context) (bool, error) {
		_, err := s.createPod(stranger, controllerIn(-1, highEnd))
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), forbidden), nil
	})
	if err != nil {
		_, err := s.createPod(stranger, controllerIn(-1, highEnd))
		t.Errorf("a user who may not work on the ring: %v, want 403 with %q", err, forbidden)
	}
	// A name that the API server has not seen would make it read, if it got so far.
	identity.Name = "nobody"
	before := s.metric(t, quorumReads)
	for range 20 {
		if _, err := s.createPod(stranger, controllerIn(-1, highEnd)); !apierrors.IsForbidden(err) {
			t.Errorf("a bogus header: %v, want 403", err)
		}
	}
	if n := s.metric(t, quorumReads) - before; n != 0 {
		t.Errorf("the registry was read %d times for 20 requests that are forbidden", n)
	}
	if _, err := stranger.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("a list with the header: %v", err)
	}

	for _, user := range []string{"system:kube-controller-manager", "system:serviceaccount:kube-system:replicaset-controller"} {
		s.allow(user, rbac.PolicyRule{Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{"pods"}})
		client := s.with(t, user, func() string { i := a.identity; i.Controller = replicaSetController; return i.String() })
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, wait.ForeverTestTimeout, true, func(context.Context) (bool, error) {
			_, err := s.createPod(client, controllerIn(-1, highEnd))
			return err == nil, nil
		})
		if err != nil {
			_, err := s.createPod(client, controllerIn(-1, highEnd))
			t.Errorf("%s: %v", user, err)
		}
	}
}

// TestTheAuditLogNamesTheInstance: of a write in an instance's name, allowed or refused by the
// fence, and of no other.
func TestTheAuditLogNamesTheInstance(t *testing.T) {
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(`{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],"rules":[{"level":"Metadata","verbs":["create"],"resources":[{"resources":["pods"]}]},{"level":"None"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startFenceServer(t, "--audit-policy-file="+policy, "--audit-log-path="+log, "--audit-log-mode=blocking").on(t)
	a, b := s.owns(t, "a", lowEnd), s.owns(t, "b", highEnd)
	_, err := s.createPod(a.writes, controllerIn(-1, lowEnd))
	s.wantPassed("create by the owner", err)
	_, err = s.createPod(b.writes, controllerIn(-1, lowEnd))
	s.wantRefused("create by another", err, "belongs to a")
	_, err = s.createPod(s.client, controllerIn(-1, lowEnd))
	s.wantPassed("create in no name", err)

	content, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(content)) {
		var event audit.Event
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%d %s", event.ResponseStatus.Code, event.Annotations["sharding.k8s.io/controller-instance"]))
	}
	name := func(w *worker) string {
		return fmt.Sprintf("%s/%s/%s/%d/%s", testRing, w.identity.Name, w.identity.UID, w.identity.Epoch, replicaSetController)
	}
	if want := []string{"201 " + name(a), "409 " + name(b), "201 "}; !slices.Equal(got, want) {
		t.Errorf("the audit log says %q, want %q", got, want)
	}
}

// testGrants: a hash key changes only if the record of the instance that writes it says that
// it gives exactly this.
func (s *fenceServer) testGrants() {
	t, ctx := s.t, s.t.Context()
	a, b := s.owns(t, "a", highEnd), s.register(t, newRecord("b"))
	const notGiven = "the record of ControllerInstance a does not say in status.gives that it gives hash key 3fffffffffffffff to b"
	s.wantRefused("given nothing", a.setKey("b", lowEnd), notGiven)
	a.announce("b", lowEnd+1)
	s.wantRefused("given another key", a.setKey("b", lowEnd), notGiven)
	a.announce("c", lowEnd)
	s.wantRefused("given to another", a.setKey("b", lowEnd), notGiven)
	a.announce("b", lowEnd)
	earlier := *a
	earlier.identity.Epoch--
	a.report("null")
	s.wantRefused("given no more", a.setKey("b", lowEnd), notGiven)
	a.announce("b", lowEnd)
	const notFirst = `ControllerInstance a owns hash keys of ring "test", so ControllerInstance b cannot take one for itself; ask an owner for a part of its range`
	for _, key := range []int64{lowEnd, highEnd} {
		s.wantRefused("taken", b.setKey("b", key), notFirst)
	}
	s.wantPassed("given", a.setKey("b", lowEnd))

	s.wantRefused("own, given to another", a.setKey("a", lowEnd+1), "does not say in status.gives that it gives hash key 4000000000000000 to a")
	a.announce("a", lowEnd+1)
	s.wantPassed("own, moved down", a.setKey("a", lowEnd+1))

	// What an instance names or takes back in another's spec needs it alive, and no more.
	split := func(w *worker, patch string) error {
		_, err := w.registry.Patch(ctx, "c", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	c := s.register(t, newRecord("c"))
	s.wantPassed("split", split(a, `{"spec":{"nextHashKey":5}}`))
	a.announce("c", 5)
	s.must(s.instances().Delete(ctx, "a", *metav1.NewDeleteOptions(0)))
	s.wantRefused("given by the dead", a.setKey("c", 5), "ControllerInstance a (UID")
	s.wantRefused("called off by the dead", split(a, `{"spec":{"nextHashKey":null}}`), "ControllerInstance a (UID")
	s.wantPassed("called off", split(c, `{"spec":{"nextHashKey":null}}`))

	other := newRecord("d")
	other.Spec.Ring = "another"
	s.register(t, other)
	b.announce("d", 5)
	s.wantRefused("given to another ring", b.setKey("d", 5), `ControllerInstance d is on ring "another", not on ring "test"`)
}

func (s *fenceServer) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// testWriteAtOnceAfterGrant: a new owner is never refused because the API server has not
// seen its new key yet.
func (s *fenceServer) testWriteAtOnceAfterGrant() {
	t, ctx := s.t, s.t.Context()
	b := s.owns(t, "b", highEnd)
	a := s.owns(t, "a", 1000)
	between := controllerIn(1000, lowEnd)
	for range 20 {
		for _, move := range []struct {
			donor, receiver *worker
			key             int64
		}{{b, a, lowEnd}, {a, b, 1000}} {
			move.donor.announce("a", move.key)
			move.donor.must(move.donor.setKey("a", move.key))
			pod, err := s.createPod(move.receiver.writes, between)
			s.wantPassed("create at once after the grant", err)
			if err == nil {
				s.wantPassed("delete", move.receiver.writes.CoreV1().Pods(s.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
			}
		}
	}
}

// testWriteAfterExpiry: from the revision at which its record expires, an instance cannot
// write.
func (s *fenceServer) testWriteAfterExpiry() {
	t, ctx := s.t, s.t.Context()
	s.owns(t, "b", highEnd)
	list, err := s.instances().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.instances().Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	paused := newRecord("a")
	// Long enough to register, own and create.
	paused.Spec.LeaseDurationSeconds = 10
	a := s.ownsAs(t, paused, lowEnd)
	reference := controllerIn(-1, lowEnd)
	_, err = s.createPod(a.writes, reference)
	s.wantPassed("create before expiry", err)
	waitForDeletion(t, w, "a")
	_, err = s.createPod(a.writes, reference)
	s.wantRefused("create after expiry", err, "ControllerInstance a (UID")
}

// testViewSuffices: writes do not read the registry, nor are they judged anew, once the
// API server has seen the instance's record as it is.
func (s *fenceServer) testViewSuffices() {
	t, ctx := s.t, s.t.Context()
	client := s.owns(t, "a", highEnd).writes
	reads := func(writes int) int {
		before := s.metric(t, quorumReads)
		for range writes {
			_, err := s.createPod(client, controllerIn(-1, highEnd))
			s.wantPassed("create", err)
		}
		return s.metric(t, quorumReads) - before
	}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, wait.ForeverTestTimeout, true, func(context.Context) (bool, error) { return reads(1) == 0, nil })
	if err != nil {
		t.Fatal("each write of an instance reads the registry")
	}
	if n := reads(20); n != 0 {
		t.Errorf("storage was read %d times for 20 writes", n)
	}
}

// testRecords: who is not an instance can neither write hash keys nor create records on a
// ring that they may not work on.
func (s *fenceServer) testRecords() {
	t, ctx := s.t, s.t.Context()
	s.owns(t, "a", highEnd)
	patch := func(client kubernetes.Interface, patch string) error {
		_, err := client.ShardingV1alpha1().ControllerInstances().Patch(ctx, "a", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	const wanted = "spec.hashKey is written by the instances of the ring only; to move the end of the range, set spec.nextHashKey"
	for _, change := range []string{`{"spec":{"hashKey":5}}`, `{"spec":{"hashKey":null}}`} {
		if err := patch(s.client, change); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), wanted) {
			t.Errorf("%s: %v, want 403 with %q", change, err, wanted)
		}
	}
	s.wantPassed("label", patch(s.client, `{"metadata":{"labels":{"x":"y"}}}`))

	owning := newRecord("b")
	owning.Spec.HashKey = ptr.To[shardingv1alpha1.HashKey](5)
	if _, err := s.instances().Create(ctx, owning, metav1.CreateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "a new instance owns nothing") {
		t.Errorf("a new record with a hash key: %v, want it refused as invalid", err)
	}
	manager := s.with(t, "system:kube-controller-manager", nil).ShardingV1alpha1().ControllerInstances()
	own := newRecord("workloads-b")
	own.Spec.Ring = catalogue.WorkloadsRing
	if _, err := manager.Create(ctx, own, metav1.CreateOptions{}); err != nil {
		t.Errorf("kube-controller-manager joins its ring: %v", err)
	}
	other := newRecord("c")
	other.Spec.Ring = "another"
	const forbidden = `rings.sharding.k8s.io "another" is forbidden: User "system:kube-controller-manager" cannot work resource "rings"`
	if _, err := manager.Create(ctx, other, metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), forbidden) {
		t.Errorf("kube-controller-manager joins another ring: %v, want 403 with %q", err, forbidden)
	}
}

// testLever: an administrator can move the end of a range between the neighbouring keys.
func (s *fenceServer) testLever() {
	t, ctx := s.t, s.t.Context()
	move := func(name string, to int64) error {
		_, err := s.instances().Patch(ctx, name, types.MergePatchType, []byte(fmt.Sprintf(`{"spec":{"nextHashKey":%d}}`, to)), metav1.PatchOptions{})
		return err
	}
	refused := func(name string, to int64, message string) {
		t.Helper()
		if err := move(name, to); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.nextHashKey") || !strings.Contains(err.Error(), message) {
			t.Errorf("move of %s to %d: got %v, want it refused as invalid with %q", name, to, err, message)
		}
	}
	c := s.owns(t, "c", 3000)
	refused("c", 500, "there is no boundary to move")
	s.owns(t, "a", 1000)
	s.owns(t, "b", 2000)
	s.register(t, newRecord("joining"))

	between := "must lie between 00000000000003e8 and 0000000000000bb8, the hash keys of the neighbours a and c, and must not be 00000000000007d0, the present one"
	for _, to := range []int64{0, 1000, 3000, 3001, math.MaxInt64} {
		refused("b", to, between)
	}
	seam := "must lie between 0000000000000bb8 and 00000000000007d0 (going on from the highest hash key to the lowest), the hash keys of the neighbours c and b"
	for _, to := range []int64{2000, 2500, 3000} {
		refused("a", to, seam)
	}
	for name, keys := range map[string][]int64{"a": {0, 999, 1001, 1999, 3001, math.MaxInt64}, "b": {1001, 1999, 2001, 2999}, "joining": {1500, 1000}} {
		for _, to := range keys {
			if err := move(name, to); err != nil {
				t.Errorf("move of %s to %d: %v", name, to, err)
			}
		}
	}
	// A nextHashKey that is already set is not checked again.
	if _, err := s.instances().Patch(ctx, "b", types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	// The move completes.
	c.announce("b", 2999)
	if err := c.setKey("b", 2999); err != nil {
		t.Error(err)
	}
}

// testPriority: requests of kube-controller-manager to the registry have the priority of
// leader election, and renewals a flow of their own.
func (s *fenceServer) testPriority() {
	t, ctx := s.t, s.t.Context()
	schema := func(name string) *flowcontrol.FlowSchema {
		t.Helper()
		got, err := s.client.FlowcontrolV1().FlowSchemas().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for _, name := range []string{"system-controller-ring", "system-controller-ring-renewals"} {
		if got := schema(name).Spec.PriorityLevelConfiguration.Name; got != "leader-election" {
			t.Errorf("%s has priority level %s, want leader-election", name, got)
		}
	}
	s.owns(t, "a", highEnd)
	for user, want := range map[string]string{
		"system:kube-controller-manager":                    "system-controller-ring",
		"system:serviceaccount:kube-system:controller-ring": "system-controller-ring",
		"system:kube-scheduler":                             "kube-scheduler",
	} {
		config := restclient.CopyConfig(s.ClientConfig)
		config.Impersonate = restclient.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
		var flow flowOf
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { flow.next = next; return &flow })
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		registry := client.ShardingV1alpha1().RESTClient()
		renewals := want
		if want == "system-controller-ring" {
			renewals = "system-controller-ring-renewals"
		}
		for what, request := range map[string]*restclient.Request{
			"list":    registry.Get().Resource("controllerinstances"),
			"get":     registry.Get().Resource("controllerinstances").Name("a"),
			"create":  registry.Post().Resource("controllerinstances").Body([]byte(`{}`)),
			"renewal": registry.Patch(types.MergePatchType).Resource("controllerinstances").Name("a").SubResource("status").Body([]byte(`{}`)),
			"delete":  registry.Delete().Resource("controllerinstances").Name("nobody"),
		} {
			want := want
			if what == "renewal" {
				want = renewals
			}
			// The result does not matter here. The response names the flow.
			err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, wait.ForeverTestTimeout, true, func(ctx context.Context) (bool, error) {
				request.Do(ctx)
				return flow.schema == string(schema(want).UID), nil
			})
			if err != nil {
				t.Errorf("%s by %s is not in the flow %s", what, user, want)
			}
		}
	}
}

// flowOf records the UID of the flow schema of the last request.
type flowOf struct {
	next   http.RoundTripper
	schema string
}

func (f *flowOf) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := f.next.RoundTrip(req)
	if err == nil {
		f.schema = resp.Header.Get(flowcontrol.ResponseHeaderMatchedFlowSchemaUID)
	}
	return resp, err
}

// heldWrites is a proxy between a controller manager and the API server. It holds the
// creation of a pod until release, even if the sender is gone by then.
type heldWrites struct {
	*httputil.ReverseProxy
	transport http.RoundTripper
	// held receives a value when a creation has arrived, release lets it pass, and
	// answered receives the API server's response.
	held     chan struct{}
	release  chan struct{}
	answered chan *http.Response
}

func (h *heldWrites) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodPost || !strings.HasSuffix(req.URL.Path, "/pods") {
		return h.transport.RoundTrip(req)
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	h.held <- struct{}{}
	<-h.release
	late := req.Clone(context.WithoutCancel(req.Context()))
	late.Body = io.NopCloser(bytes.NewReader(body))
	resp, err := h.transport.RoundTrip(late)
	h.answered <- resp
	return nil, errors.Join(err, errors.New("the sender is long gone"))
}

// TestWriteThatArrivesAfterTakeover: a creation that was sent in time is refused if it
// reaches the API server once the sender's range has another owner.
func TestWriteThatArrivesAfterTakeover(t *testing.T) {
	r := newRingTest(t)
	ns := framework.CreateNamespaceOrDie(r.client, "late", t)
	kubeconfig, err := clientcmd.LoadFromFile(r.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", r.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := restclient.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	held := &heldWrites{
		ReverseProxy: httputil.NewSingleHostReverseProxy(target), transport: transport,
		held: make(chan struct{}, 1), release: make(chan struct{}), answered: make(chan *http.Response, 1),
	}
	held.Transport = held
	held.FlushInterval = -1
	held.ErrorLog = log.New(io.Discard, "", 0)
	proxy := httptest.NewServer(held)
	t.Cleanup(proxy.Close)
	kubeconfig.Clusters["test"] = &clientcmdapi.Cluster{Server: proxy.URL}
	throughProxy := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfig, throughProxy); err != nil {
		t.Fatal(err)
	}

	first := r.start("--kubeconfig=" + throughProxy)
	r.expectRing(1)
	sets := r.createReplicaSets(ns.Name, 1, 1)
	<-held.held
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.expectRing(0)
	r.start()
	r.expectRing(1)
	r.expectFilled(sets, 1)

	close(held.release)
	resp := <-held.answered
	if resp == nil {
		t.Fatal("the API server did not answer")
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusConflict || !bytes.Contains(body, []byte(fence.CauseFenced)) || !bytes.Contains(body, []byte("is gone; another instance may work on the object now")) {
		t.Errorf("the late creation was answered with %d %q, want 409 from the fence", resp.StatusCode, body)
	}
	r.expectFilled(sets, 1)
}

// TestFenceGateOff: with the feature gate ControllerRing off, the header is ignored and
// the ring's flow schema does not exist.
func TestFenceGateOff(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ControllerRing, false)
	s := startFenceServer(t)
	for _, header := range []string{"nonsense", "workloads/nobody/uid/0/replicaset-controller"} {
		if _, err := s.as(t, header).CoreV1().Pods(s.namespace).Create(t.Context(), newPod(controllerIn(-1, highEnd)), metav1.CreateOptions{}); err != nil {
			t.Errorf("header %q: %v", header, err)
		}
	}
	if _, err := s.client.FlowcontrolV1().FlowSchemas().Get(t.Context(), "system-controller-ring", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the flow schema of the ring: %v, want not found", err)
	}
}
