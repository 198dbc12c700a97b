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
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	flowcontrol "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/ring/fence"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	kubeapiservertesting "k8s.io/kubernetes/cmd/kube-apiserver/app/testing"
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

// fenceServer is a kube-apiserver with a namespace.
type fenceServer struct {
	*registryServer
	namespace string
}

func startFenceServer(t testing.TB) *fenceServer {
	flags := append(framework.DefaultTestServerFlags(), "--disable-admission-plugins=ServiceAccount")
	server := kubeapiservertesting.StartTestServerOrDie(t, nil, flags, framework.SharedEtcd())
	t.Cleanup(server.TearDownFn)
	s := &fenceServer{registryServer: &registryServer{TestServer: server}}
	s.client = s.as(t, "")
	s.namespace = framework.CreateNamespaceOrDie(s.client, "fence", t).Name
	return s
}

// as returns a client whose requests name an instance.
func (s *fenceServer) as(t testing.TB, header string) kubernetes.Interface {
	t.Helper()
	config := restclient.CopyConfig(s.ClientConfig)
	config.QPS = -1
	if header != "" {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return withHeader{next, header} })
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func identityOf(name string, uid types.UID) string {
	return fence.Identity{Name: name, UID: uid}.String()
}

// on begins a part of the test, which starts without instances.
func (s *fenceServer) on(t *testing.T) *fenceServer {
	t.Helper()
	return &fenceServer{registryServer: s.registryServer.on(t), namespace: s.namespace}
}

// owns registers an instance with that key, and returns a client whose requests name it.
func (s *fenceServer) owns(name string, key int64) (kubernetes.Interface, types.UID) {
	s.t.Helper()
	instance := newInstance(name)
	instance.Spec.HashKey = &key
	uid := s.create(instance).UID
	return s.as(s.t, identityOf(name, uid)), uid
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

const quorumReads = "apiserver_controller_ring_fence_quorum_reads_total"

func TestFence(t *testing.T) {
	s := startFenceServer(t)
	t.Run("writes", func(t *testing.T) { s.on(t).testFencedWrites() })
	t.Run("own key", func(t *testing.T) { s.on(t).testFencedOwnKey() })
	t.Run("identity", func(t *testing.T) { s.on(t).testFencedIdentity() })
	t.Run("unknown controller", func(t *testing.T) { s.on(t).testUnknownController() })
	t.Run("no identity", func(t *testing.T) { s.on(t).testUnnamedWrites() })
	t.Run("grant", func(t *testing.T) { s.on(t).testWriteAtOnceAfterGrant() })
	t.Run("expiry", func(t *testing.T) { s.on(t).testWriteAfterExpiry() })
	t.Run("view", func(t *testing.T) { s.on(t).testViewSuffices() })
	t.Run("lever", func(t *testing.T) { s.on(t).testLever() })
	t.Run("priority", func(t *testing.T) { s.on(t).testPriority() })
}

// testFencedWrites: the governing key of a pod is its controller's, whichever way the pod
// is written.
func (s *fenceServer) testFencedWrites() {
	t, ctx := s.t, s.t.Context()
	a, _ := s.owns("a", lowEnd)
	b, _ := s.owns("b", highEnd)
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
	a, _ := s.owns("a", lowEnd)
	b, _ := s.owns("b", highEnd)
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

// testUnknownController: nobody knows what governs the writes of a controller that is not in
// the catalogue of rings, so none passes, though its instance owns all keys. It takes a read
// of the registry only until the API server has seen the instance.
func (s *fenceServer) testUnknownController() {
	t := s.t
	instance := newInstance("a")
	instance.Spec.ControllerName, instance.Spec.HashKey = "somebody-elses", ptr.To[int64](highEnd)
	client := s.as(t, identityOf("a", s.create(instance).UID))
	const unknown = `no hash key is known to govern what controller "somebody-elses" writes to pods`
	_, err := s.createPod(client, controllerIn(-1, highEnd))
	s.wantRefused("with a controller", err, unknown)
	_, err = s.createPod(client)
	s.wantRefused("without a controller", err, unknown)
}

// testFencedIdentity: an instance that is gone, or was replaced by another of the same
// name, cannot change what a ring protects. An incomplete name is refused.
func (s *fenceServer) testFencedIdentity() {
	t, ctx := s.t, s.t.Context()
	_, uid := s.owns("a", highEnd)
	reference := controllerIn(-1, highEnd)
	nobody := s.as(t, identityOf("nobody", uid))
	_, err := s.createPod(nobody, reference)
	s.wantRefused("an instance that is gone", err, fmt.Sprintf("ControllerInstance nobody (UID %s) is gone; another instance may work on the object now", uid))
	_, err = s.createPod(nobody)
	s.wantRefused("an instance that is gone, a pod without controller", err, "is gone")
	_, err = s.createPod(s.as(t, identityOf("a", "another")), reference)
	s.wantRefused("another instance", err, fmt.Sprintf("ControllerInstance a has UID %s", uid))

	_, err = nobody.CoreV1().Events(s.namespace).Create(ctx, &v1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "event-"},
		InvolvedObject: v1.ObjectReference{Kind: "ReplicaSet", Namespace: s.namespace, Name: "set"},
		Reason:         "FailedCreate",
	}, metav1.CreateOptions{})
	s.wantPassed("an event of an instance that is gone", err)

	for _, header := range []string{"a", "a/", "/" + string(uid), "a/b/c"} {
		if _, err := s.createPod(s.as(t, header), reference); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "want NAME/UID of its ControllerInstance") {
			t.Errorf("header %q: got %v, want a bad request that says what is wanted", header, err)
		}
	}
}

// testUnnamedWrites: the fence ignores requests that name no instance.
func (s *fenceServer) testUnnamedWrites() {
	s.owns("a", lowEnd)
	before := s.metric(s.t, quorumReads)
	pod, err := s.createPod(s.client, controllerIn(lowEnd, highEnd))
	s.wantPassed("create", err)
	s.wantPassed("delete", s.client.CoreV1().Pods(s.namespace).Delete(s.t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	if n := s.metric(s.t, quorumReads) - before; n != 0 {
		s.t.Errorf("the registry was read %d times for them", n)
	}
}

// testWriteAtOnceAfterGrant: a new owner is never refused because the API server has not
// seen its new key yet.
func (s *fenceServer) testWriteAtOnceAfterGrant() {
	t, ctx := s.t, s.t.Context()
	a, _ := s.owns("a", 1000)
	b, _ := s.owns("b", highEnd)
	between := controllerIn(1000, lowEnd)
	for range 20 {
		for _, move := range []struct {
			key int64
			to  kubernetes.Interface
		}{{lowEnd, a}, {1000, b}} {
			if _, err := s.instances().Patch(ctx, "a", types.MergePatchType, []byte(fmt.Sprintf(`{"spec":{"hashKey":%d}}`, move.key)), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			pod, err := s.createPod(move.to, between)
			s.wantPassed("create at once after the grant", err)
			if err == nil {
				s.wantPassed("delete", move.to.CoreV1().Pods(s.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
			}
		}
	}
}

// testWriteAfterExpiry: from the revision at which its record expires, even an instance
// that was trusted a moment ago cannot write.
func (s *fenceServer) testWriteAfterExpiry() {
	t, ctx := s.t, s.t.Context()
	s.owns("b", highEnd)
	list, err := s.instances().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.instances().Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	paused := newInstance("a")
	paused.Spec.LeaseDurationSeconds = 3
	paused.Spec.HashKey = ptr.To[int64](lowEnd)
	client := s.as(t, identityOf("a", s.create(paused).UID))
	reference := controllerIn(-1, lowEnd)
	// Wait until it is trusted without reading storage. Only then does this test something.
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, wait.ForeverTestTimeout, true, func(ctx context.Context) (bool, error) {
		s.heartbeat("a")
		before := s.metric(t, quorumReads)
		_, err := s.createPod(client, reference)
		return s.metric(t, quorumReads) == before, err
	})
	if err != nil {
		t.Fatal(err)
	}
	waitForDeletion(t, w, "a")
	_, err = s.createPod(client, reference)
	s.wantRefused("create after expiry", err, "ControllerInstance a (UID")
}

// testViewSuffices: while an instance is known to be alive, its writes do not read the
// registry from storage.
func (s *fenceServer) testViewSuffices() {
	t, ctx := s.t, s.t.Context()
	client, _ := s.owns("a", highEnd)
	reference := controllerIn(-1, highEnd)
	reads := func(writes int) int {
		before := s.metric(t, quorumReads)
		for range writes {
			_, err := s.createPod(client, reference)
			s.wantPassed("create", err)
		}
		return s.metric(t, quorumReads) - before
	}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, wait.ForeverTestTimeout, true, func(context.Context) (bool, error) {
		s.heartbeat("a")
		return reads(1) == 0, nil
	})
	if err != nil {
		t.Fatal("an instance that renews its record is never trusted")
	}
	if n := reads(20); n != 0 {
		t.Errorf("storage was read %d times for 20 writes of an instance that is known to be alive", n)
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
	s.owns("a", 1000)
	refused("a", 500, "there is no boundary to move")
	s.owns("b", 2000)
	s.owns("c", 3000)
	s.create(newInstance("joining"))

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
	if _, err := s.instances().Patch(ctx, "b", types.MergePatchType, []byte(`{"spec":{"hashKey":2999,"nextHashKey":null}}`), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
}

// testPriority: requests of kube-controller-manager to the registry have the priority of
// leader election.
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
	if got := schema("system-controller-ring").Spec.PriorityLevelConfiguration.Name; got != "leader-election" {
		t.Errorf("the ring has priority level %s, want leader-election", got)
	}
	s.owns("a", highEnd)
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
		for what, request := range map[string]*restclient.Request{
			"list":      registry.Get().Resource("controllerinstances"),
			"get":       registry.Get().Resource("controllerinstances").Name("a"),
			"create":    registry.Post().Resource("controllerinstances").Body([]byte(`{}`)),
			"heartbeat": registry.Patch(types.MergePatchType).Resource("controllerinstances").Name("a").SubResource("status").Body([]byte(`{}`)),
			"delete":    registry.Delete().Resource("controllerinstances").Name("nobody"),
		} {
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
	for _, header := range []string{"nonsense", identityOf("nobody", "uid")} {
		if _, err := s.as(t, header).CoreV1().Pods(s.namespace).Create(t.Context(), newPod(controllerIn(-1, highEnd)), metav1.CreateOptions{}); err != nil {
			t.Errorf("header %q: %v", header, err)
		}
	}
	if _, err := s.client.FlowcontrolV1().FlowSchemas().Get(t.Context(), "system-controller-ring", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the flow schema of the ring: %v, want not found", err)
	}
}
