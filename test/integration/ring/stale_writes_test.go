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
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	admission "k8s.io/api/admission/v1"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/test/integration/framework"
	"k8s.io/utils/ptr"
)

// tries is how often each of the stale writes is made.
const tries = 50

// doorman is a validating webhook for pods that are labelled held. While the door is shut it
// holds every request.
type doorman struct {
	held chan struct{}

	lock sync.Mutex
	door chan struct{}
	seen int
}

// shut holds all further requests until open is called.
func (d *doorman) shut() (open func()) {
	d.lock.Lock()
	defer d.lock.Unlock()
	door := make(chan struct{})
	d.door = door
	return sync.OnceFunc(func() { close(door) })
}

func (d *doorman) calls() int {
	d.lock.Lock()
	defer d.lock.Unlock()
	return d.seen
}

func (d *doorman) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var review admission.AdmissionReview
	if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	d.lock.Lock()
	d.seen++
	door := d.door
	d.lock.Unlock()
	if door != nil {
		select {
		case <-door:
		default:
			d.held <- struct{}{}
			<-door
		}
	}
	review.Response = &admission.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	_ = json.NewEncoder(w).Encode(review)
}

// startDoorman starts a doorman, and waits until the API server asks it.
func (s *fenceServer) startDoorman(t *testing.T) *doorman {
	ctx := t.Context()
	d := &doorman{held: make(chan struct{})}
	server := httptest.NewUnstartedServer(d)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	_, err := s.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, &admissionregistration.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "doorman"},
		Webhooks: []admissionregistration.ValidatingWebhook{{
			Name: "doorman.example.com",
			ClientConfig: admissionregistration.WebhookClientConfig{
				URL:      ptr.To(server.URL),
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules: []admissionregistration.RuleWithOperations{{
				Operations: []admissionregistration.OperationType{admissionregistration.OperationAll},
				Rule:       admissionregistration.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods", "pods/*"}},
			}},
			ObjectSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{"held": "true"}},
			SideEffects:             ptr.To(admissionregistration.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
			TimeoutSeconds:          ptr.To[int32](30),
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, wait.ForeverTestTimeout, true, func(ctx context.Context) (bool, error) {
		_, err := s.client.CoreV1().Pods(s.namespace).Create(ctx, s.heldPod("probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return d.calls() > 0, err
	})
	if err != nil {
		t.Fatal("the API server does not ask the webhook: ", err)
	}
	return d
}

func (s *fenceServer) heldPod(round string) *v1.Pod {
	pod := newPod(controllerIn(-1, lowEnd))
	pod.Labels = map[string]string{"held": "true", "round": round}
	return pod
}

// answer is that of the API server to a request whose sender no longer waits for it.
type answer struct {
	request string
	status  int
	body    []byte
}

// cutOff returns a client in the name of w's replicaset-controller whose connections are cut
// when cut is closed. The API server does not notice, as behind a load balancer, and its
// answers go to answers.
func (s *fenceServer) cutOff(t *testing.T, w *worker, cut <-chan struct{}, answers chan<- answer) kubernetes.Interface {
	identity := w.identity
	identity.Controller = replicaSetController
	config := restclient.CopyConfig(s.ClientConfig)
	config.QPS = -1
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			late := req.Clone(context.WithoutCancel(req.Context()))
			if req.Body != nil {
				body, err := io.ReadAll(req.Body)
				if err != nil {
					return nil, err
				}
				late.Body = io.NopCloser(bytes.NewReader(body))
			}
			go func() {
				got := answer{request: req.Method + " " + req.URL.Path}
				resp, err := withHeader{next, identity.String()}.RoundTrip(late)
				if err != nil {
					got.body = []byte(err.Error())
				} else {
					got.status = resp.StatusCode
					got.body, _ = io.ReadAll(resp.Body)
					_ = resp.Body.Close()
				}
				answers <- got
			}()
			<-cut
			return nil, errors.New("the connection is cut")
		})
	})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// testStaleWrites has an instance that owns everything send writes of all kinds through an
// API server, and holds them there between admission and storage. Meanwhile lose takes from it
// what it owns, through s. What arrives then must leave no trace.
func (s *fenceServer) testStaleWrites(through *fenceServer, d *doorman, name string, lose func(owner *worker, try int) (successor *worker)) {
	t, ctx := s.t, s.t.Context()
	pods := s.client.CoreV1().Pods(s.namespace)
	for try := range tries {
		round := fmt.Sprintf("%s-%d", name, try)
		owner := s.owns(t, "owner", highEnd)
		snapshot := func() (versions []string) {
			list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "round=" + round})
			if err != nil {
				t.Fatal(err)
			}
			for _, pod := range list.Items {
				versions = append(versions, pod.Name+" "+pod.ResourceVersion)
			}
			return versions
		}
		var there []*v1.Pod
		for range 5 {
			pod, err := pods.Create(ctx, s.heldPod(round), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			there = append(there, pod)
		}
		before := snapshot()

		open, cut, answers := d.shut(), make(chan struct{}), make(chan answer, 6)
		late := through.cutOff(t, owner, cut, answers).CoreV1().Pods(s.namespace)
		there[0].Annotations = map[string]string{"late": "true"}
		there[2].Status.Phase = v1.PodFailed
		writes := []func() error{
			func() error { _, err := late.Create(ctx, s.heldPod(round), metav1.CreateOptions{}); return err },
			func() error { _, err := late.Update(ctx, there[0], metav1.UpdateOptions{}); return err },
			func() error {
				_, err := late.Patch(ctx, there[1].Name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"late":"true"}}}`), metav1.PatchOptions{})
				return err
			},
			func() error { _, err := late.UpdateStatus(ctx, there[2], metav1.UpdateOptions{}); return err },
			func() error { return late.Delete(ctx, there[3].Name, *metav1.NewDeleteOptions(0)) },
			func() error {
				return late.DeleteCollection(ctx, *metav1.NewDeleteOptions(0), metav1.ListOptions{FieldSelector: "metadata.name=" + there[4].Name})
			},
		}
		var sent sync.WaitGroup
		for _, write := range writes {
			sent.Go(func() {
				if write() == nil {
					t.Error("a connection that was cut gave an answer")
				}
			})
		}
		for range writes {
			<-d.held
		}
		close(cut)
		sent.Wait()
		successor := lose(owner, try)
		worked, err := s.createPod(successor.writes, controllerIn(-1, lowEnd))
		s.wantPassed("the successor works", err)
		open()
		for range writes {
			if got := <-answers; got.status != http.StatusConflict || !bytes.Contains(got.body, []byte(fence.CauseFenced)) {
				t.Errorf("try %d: %s was answered with %d %s, want 409 from the fence", try, got.request, got.status, got.body)
			}
		}
		if after := snapshot(); !slices.Equal(after, before) {
			t.Errorf("try %d: there are pods %q, want them as they were, %q", try, after, before)
		}

		s.must(pods.DeleteCollection(ctx, *metav1.NewDeleteOptions(0), metav1.ListOptions{LabelSelector: "round=" + round}))
		if worked != nil {
			s.must(pods.Delete(ctx, worked.Name, *metav1.NewDeleteOptions(0)))
		}
		s.must(s.instances().DeleteCollection(ctx, *metav1.NewDeleteOptions(0), metav1.ListOptions{}))
	}
}

// TestAWriteThatIsHeldUntilItsInstanceHasLostTheObjectIsNotStored: whatever comes between the
// admission of a write and its storage.
func TestAWriteThatIsHeldUntilItsInstanceHasLostTheObjectIsNotStored(t *testing.T) {
	s := startFenceServer(t)
	d := s.startDoorman(t)
	t.Run("its record expires", func(t *testing.T) {
		s := s.on(t)
		s.testStaleWrites(s, d, "expired", func(*worker, int) *worker {
			if _, err := s.EtcdClient.Revoke(t.Context(), s.lease("owner")); err != nil {
				t.Fatal(err)
			}
			return s.owns(t, "successor", highEnd)
		})
	})
	t.Run("its record is deleted", func(t *testing.T) {
		s := s.on(t)
		s.testStaleWrites(s, d, "deleted", s.deleteOwner)
	})
	t.Run("it gives the key away", func(t *testing.T) {
		s := s.on(t)
		s.testStaleWrites(s, d, "given", s.giveAway)
	})
	t.Run("it gives the key away and gets it back", func(t *testing.T) {
		s := s.on(t)
		s.testStaleWrites(s, d, "regained", func(owner *worker, try int) *worker {
			s.giveAway(owner, try).give("receiver", 0)
			return owner
		})
	})
}

// deleteOwner deletes the record of the owner. Its successor has a name of its own or the
// owner's.
func (s *fenceServer) deleteOwner(_ *worker, try int) *worker {
	s.must(s.instances().Delete(s.t.Context(), "owner", *metav1.NewDeleteOptions(0)))
	return s.owns(s.t, []string{"successor", "owner"}[try%2], highEnd)
}

// giveAway has the owner give the lower half away.
func (s *fenceServer) giveAway(owner *worker, _ int) *worker {
	receiver := s.register(s.t, newRecord("receiver"))
	owner.give("receiver", lowEnd)
	return receiver
}

// The write is at one API server, and all else happens at another.
func TestAWriteThatIsHeldAtAnotherAPIServerIsNotStored(t *testing.T) {
	storage := framework.SharedEtcd()
	held, s := startFenceServerOn(t, storage), startFenceServerOn(t, storage)
	s.namespace = framework.CreateNamespaceOrDie(s.client, "fence", t).Name
	held.namespace = s.namespace
	d := held.startDoorman(t)
	t.Run("its record is deleted", func(t *testing.T) {
		s := s.on(t)
		s.testStaleWrites(held, d, "deleted", s.deleteOwner)
	})
	t.Run("it gives the key away", func(t *testing.T) {
		s := s.on(t)
		s.testStaleWrites(held, d, "given", s.giveAway)
	})
}

// Pods in an etcd of their own cannot be compared with the registry in one transaction: each
// write reads the registry just before it is stored.
func TestAWriteThatIsHeldIsNotStoredInAnotherEtcdEither(t *testing.T) {
	url, stop, err := framework.RunCustomEtcd(klog.Background(), "pods-etcd", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	s := startFenceServer(t, "--etcd-servers-overrides=/pods#"+url)
	d := s.startDoorman(t)
	t.Run("its record is deleted", func(t *testing.T) {
		s := s.on(t)
		s.testStaleWrites(s, d, "deleted", s.deleteOwner)
	})
	t.Run("it gives the key away", func(t *testing.T) {
		s := s.on(t)
		s.testStaleWrites(s, d, "given", s.giveAway)
	})
	t.Run("reads", func(t *testing.T) {
		s := s.on(t)
		owner := s.owns(t, "owner", highEnd)
		_, err := s.createPod(owner.writes, controllerIn(-1, highEnd))
		s.wantPassed("the first", err)
		before := s.metric(t, quorumReads)
		for range 10 {
			_, err := s.createPod(owner.writes, controllerIn(-1, highEnd))
			s.wantPassed("create", err)
		}
		if n := s.metric(t, quorumReads) - before; n < 10 {
			t.Errorf("the registry was read %d times for 10 writes to another etcd, want once for each", n)
		}
	})
}
