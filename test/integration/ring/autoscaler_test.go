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
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/integration/framework"
	"k8s.io/utils/ptr"
)

// hangingMetrics is an API of external metrics that says what it has and never answers for one.
type hangingMetrics struct {
	lock sync.Mutex
	// asked counts the requests by namespace.
	asked map[string]int
}

// ServeHTTP implements http.Handler.
func (m *hangingMetrics) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	const prefix = "/apis/external.metrics.k8s.io/v1beta1"
	rest, ok := strings.CutPrefix(req.URL.Path, prefix+"/namespaces/")
	if !ok {
		w.Header().Set("Content-Type", "application/json")
		if req.URL.Path == prefix {
			fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"external.metrics.k8s.io/v1beta1","resources":[]}`)
		} else {
			http.NotFound(w, req)
		}
		return
	}
	namespace, _, _ := strings.Cut(rest, "/")
	m.lock.Lock()
	m.asked[namespace]++
	m.lock.Unlock()
	<-req.Context().Done()
}

func (m *hangingMetrics) count(namespace string) int {
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.asked[namespace]
}

// serveMetrics has the API server of r pass requests for external metrics on to metrics.
func (r *ringTest) serveMetrics(metrics http.Handler) {
	r.Helper()
	server := httptest.NewTLSServer(metrics)
	r.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	address, err := url.Parse(server.URL)
	if err != nil {
		r.Fatal(err)
	}
	port, err := strconv.ParseInt(address.Port(), 10, 32)
	if err != nil {
		r.Fatal(err)
	}
	if _, err := r.client.CoreV1().Services(metav1.NamespaceDefault).Create(r.Context(), &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "metrics"},
		Spec:       v1.ServiceSpec{Type: v1.ServiceTypeExternalName, ExternalName: "localhost", Ports: []v1.ServicePort{{Port: int32(port)}}},
	}, metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", r.kubeconfig)
	if err != nil {
		r.Fatal(err)
	}
	client, err := aggregator.NewForConfig(config)
	if err != nil {
		r.Fatal(err)
	}
	const name = "v1beta1.external.metrics.k8s.io"
	if _, err := client.ApiregistrationV1().APIServices().Create(r.Context(), &apiregistration.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: apiregistration.APIServiceSpec{
			Group: "external.metrics.k8s.io", Version: "v1beta1", GroupPriorityMinimum: 100, VersionPriority: 100, InsecureSkipTLSVerify: true,
			Service: &apiregistration.ServiceReference{Namespace: metav1.NamespaceDefault, Name: "metrics", Port: ptr.To(int32(port))},
		},
	}, metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
	r.eventually(func(ctx context.Context) error {
		service, err := client.ApiregistrationV1().APIServices().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range service.Status.Conditions {
			if condition.Type == apiregistration.Available && condition.Status == apiregistration.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("APIService %s says %+v", name, service.Status.Conditions)
	})
}

// createAutoscaler creates an autoscaler by an external metric, with the Deployment that it scales.
func (r *ringTest) createAutoscaler(namespace string) {
	r.Helper()
	labels := map[string]string{"app": "app"}
	if _, err := r.client.AppsV1().Deployments(namespace).Create(r.Context(), &apps.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "app"},
		Spec: apps.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: v1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "image"}}},
		}},
	}, metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
	if _, err := r.client.AutoscalingV2().HorizontalPodAutoscalers(namespace).Create(r.Context(), &autoscaling.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "app"},
		Spec: autoscaling.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscaling.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "app"}, MaxReplicas: 9,
			Metrics: []autoscaling.MetricSpec{{Type: autoscaling.ExternalMetricSourceType, External: &autoscaling.ExternalMetricSource{
				Metric: autoscaling.MetricIdentifier{Name: "load"}, Target: autoscaling.MetricTarget{Type: autoscaling.ValueMetricType, Value: ptr.To(resource.MustParse("1"))},
			}}},
		},
	}, metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
}

// Half of the namespaces change hands at once, though an autoscaler in each waits for a metric. The
// API server would wait for a minute, and a donor for half of one.
func TestAMetricThatIsNotToldKeepsNoRange(t *testing.T) {
	r := newRingTest(t)
	metrics := &hangingMetrics{asked: map[string]int{}}
	r.serveMetrics(metrics)
	var namespaces []string
	for i := range 2 {
		ns := framework.CreateNamespaceOrDie(r.client, fmt.Sprintf("metrics-%d", i), t)
		namespaces = append(namespaces, ns.Name)
		r.createAutoscaler(ns.Name)
	}
	r.start("--controllers=" + catalogue.HorizontalPodAutoscalerController)
	asked := func(least int) {
		t.Helper()
		r.eventually(func(context.Context) error {
			total := 0
			for _, ns := range namespaces {
				n := metrics.count(ns)
				if n == 0 {
					return fmt.Errorf("nobody has asked for a metric of %s", ns)
				}
				total += n
			}
			if total < least {
				return fmt.Errorf("metrics were asked for %d times, want %d", total, least)
			}
			return nil
		})
	}
	asked(2)
	r.start("--controllers=" + catalogue.HorizontalPodAutoscalerController)
	r.eventually(func(ctx context.Context) error {
		return harness.Settled(ctx, r.client, catalogue.NamespacesRing, 2)
	})
	// The new owner asks again.
	asked(3)
	events, err := r.client.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=CalledOff"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		t.Errorf("a handover was called off: %s", e.Message)
	}
}
