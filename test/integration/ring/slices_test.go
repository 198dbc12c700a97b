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
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/pkg/ringtable"
	"k8s.io/kubernetes/test/harness"
)

// startSlices starts n controller managers that run the EndpointSlice controller, and waits until
// they are all Active.
func (r *ringTest) startSlices(n int) {
	r.Helper()
	for range n {
		r.start("--controllers=" + catalogue.EndpointSliceController)
	}
	r.expectSlicesRing(n)
}

func (r *ringTest) expectSlicesRing(n int) {
	r.Helper()
	r.eventually(func(ctx context.Context) error {
		return harness.Settled(ctx, r.client, catalogue.NamespacesRing, n)
	})
}

func (r *ringTest) createNamespace(name string) {
	r.Helper()
	if _, err := r.client.CoreV1().Namespaces().Create(r.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
}

func (r *ringTest) createService(namespace, name string) *v1.Service {
	r.Helper()
	service, err := r.client.CoreV1().Services(namespace).Create(r.Context(), &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []v1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		r.Fatal(err)
	}
	return service
}

// createEndpoint creates a ready pod of all Services that createService creates.
func (r *ringTest) createEndpoint(namespace string) {
	r.Helper()
	if _, err := r.client.CoreV1().Nodes().Create(r.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
	pod, err := r.client.CoreV1().Pods(namespace).Create(r.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"app": "web"}},
		Spec:       v1.PodSpec{NodeName: "node", Containers: []v1.Container{{Name: "c", Image: "image"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		r.Fatal(err)
	}
	pod.Status = v1.PodStatus{
		Phase: v1.PodRunning, PodIP: "10.1.1.1", PodIPs: []v1.PodIP{{IP: "10.1.1.1"}},
		Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}},
	}
	if _, err := r.client.CoreV1().Pods(namespace).UpdateStatus(r.Context(), pod, metav1.UpdateOptions{}); err != nil {
		r.Fatal(err)
	}
}

// expectSlice waits until a slice of the Service is as it should be, and returns it.
func (r *ringTest) expectSlice(service *v1.Service, what string, is func(*discovery.EndpointSlice) bool) discovery.EndpointSlice {
	r.Helper()
	var found discovery.EndpointSlice
	r.eventually(func(ctx context.Context) error {
		list, err := r.client.DiscoveryV1().EndpointSlices(service.Namespace).List(ctx, metav1.ListOptions{LabelSelector: discovery.LabelServiceName + "=" + service.Name})
		if err != nil {
			return err
		}
		i := slices.IndexFunc(list.Items, func(s discovery.EndpointSlice) bool { return metav1.IsControlledBy(&s, service) && is(&s) })
		if i < 0 {
			return fmt.Errorf("among %d slices of the Service none is %s", len(list.Items), what)
		}
		found = list.Items[i]
		return nil
	})
	return found
}

// A slice that somebody deletes is made again, whoever owns the namespace, whoever made the slice,
// and however often the namespace has moved.
func TestADeletedSliceIsMadeAgain(t *testing.T) {
	r := newRingTest(t)
	r.startSlices(2)
	ring, err := ringtable.Get(t.Context(), r.client, catalogue.NamespacesRing)
	if err != nil {
		t.Fatal(err)
	}
	low, high := ring.Instances[0], ring.Instances[1]
	var ns string
	var key int64
	// The boundary of low moves beside the key of a namespace of high's.
	for i := 0; ns == "" || key <= int64(low.Owned[0].End) || !high.Owned.Contains(key); i++ {
		ns = fmt.Sprintf("slices-%d", i)
		key = hashkey.OfNamespace(ns)
	}
	r.createNamespace(ns)
	service := r.createService(ns, "web")
	r.createEndpoint(ns)
	full := func(s *discovery.EndpointSlice) bool { return len(s.Endpoints) == 1 }
	slice := r.expectSlice(service, "full", full)
	for i := range 4 {
		r.move(low.Name, key-int64(i%2))
		r.expectSlicesRing(2)
		// Who has made this one has looked at the other Service before, and written nothing.
		r.expectSlice(r.createService(ns, fmt.Sprintf("later-%d", i)), "there", full)
		if err := r.client.DiscoveryV1().EndpointSlices(ns).Delete(t.Context(), slice.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		slice = r.expectSlice(service, fmt.Sprintf("made again after %d moves", i+1), func(s *discovery.EndpointSlice) bool { return full(s) && s.UID != slice.UID })
	}
}

// A Service that is made anew under its name has a slice of its own, though its predecessor's is
// there still, which the garbage collector deletes.
func TestAServiceMadeAnewHasASliceOfItsOwn(t *testing.T) {
	r := newRingTest(t)
	r.startSlices(1)
	r.createNamespace("anew")
	empty := func(s *discovery.EndpointSlice) bool { return len(s.Endpoints) == 0 }
	var last types.UID
	for range 3 {
		service := r.createService("anew", "web")
		slice := r.expectSlice(service, "of the new Service", func(s *discovery.EndpointSlice) bool { return empty(s) && s.UID != last })
		last = slice.UID
		if err := r.client.CoreV1().Services("anew").Delete(t.Context(), service.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}
