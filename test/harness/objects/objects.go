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

// Package objects makes and creates what loads consist of.
package objects

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Create creates objects one after the other, in a namespace or, if that is "", outside of all.
// Each becomes what the API server has made of it.
func Create(ctx context.Context, client kubernetes.Interface, namespace string, objects ...runtime.Object) error {
	clients := map[string]rest.Interface{
		apps.GroupName: client.AppsV1().RESTClient(), autoscaling.GroupName: client.AutoscalingV2().RESTClient(),
		batch.GroupName: client.BatchV1().RESTClient(), coordination.GroupName: client.CoordinationV1().RESTClient(),
		v1.GroupName: client.CoreV1().RESTClient(), policy.GroupName: client.PolicyV1().RESTClient(),
		storage.GroupName: client.StorageV1().RESTClient(),
	}
	for _, object := range objects {
		kinds, _, err := scheme.Scheme.ObjectKinds(object)
		if err != nil {
			return err
		}
		resource, _ := meta.UnsafeGuessKindToResource(kinds[0])
		created, err := clients[resource.Group].Post().UseProtobufAsDefault().
			NamespaceIfScoped(namespace, namespace != "").Resource(resource.Resource).Body(object).Do(ctx).Get()
		if err != nil {
			return err
		}
		reflect.ValueOf(object).Elem().Set(reflect.ValueOf(created).Elem())
	}
	return nil
}

// CreateWithPods creates a ReplicaSet and all the pods that it wants, so that no controller has to.
func CreateWithPods(ctx context.Context, client kubernetes.Interface, namespace string, set *apps.ReplicaSet) error {
	if err := Create(ctx, client, namespace, set); err != nil {
		return err
	}
	for n := range *set.Spec.Replicas {
		if err := Create(ctx, client, namespace, PodOf(set, int(n))); err != nil {
			return err
		}
	}
	return nil
}

// Named returns the metadata of an object with that name.
func Named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// Namespace returns a namespace.
func Namespace(name string) *v1.Namespace { return &v1.Namespace{ObjectMeta: Named(name)} }

// Pods returns a template of pods with these labels, which only have to exist.
func Pods(labels map[string]string) v1.PodTemplateSpec {
	return v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "image"}}},
	}
}

// Pod returns a pod by a template.
func Pod(name string, template v1.PodTemplateSpec) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	pod.Name = name
	return pod
}

// PodOf returns a pod of a ReplicaSet that exists, with the number n below 100,000 in its name.
func PodOf(set *apps.ReplicaSet, n int) *v1.Pod {
	pod := Pod(fmt.Sprintf("%s-%05d", set.Name, n), set.Spec.Template)
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, apps.SchemeGroupVersion.WithKind("ReplicaSet"))}
	return pod
}

// Containers returns two containers that make pods large: each has so many variables, of about 100
// bytes, which have the text of in their values.
func Containers(of string, variables int) (containers []v1.Container) {
	for c := range 2 {
		container := v1.Container{Name: fmt.Sprintf("container-%d", c), Image: "registry.example.com/some/team/image:v1.2.3"}
		for e := range variables {
			container.Env = append(container.Env, v1.EnvVar{Name: fmt.Sprintf("VARIABLE_NUMBER_%d", e), Value: fmt.Sprintf("value %d of %s: %s", e, of, strings.Repeat("x", 30))})
		}
		containers = append(containers, container)
	}
	return containers
}

// Selector selects what has these labels.
func Selector(labels map[string]string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: labels}
}

// ReplicaSet returns a ReplicaSet of the pods with the template's labels.
func ReplicaSet(name string, replicas int32, template v1.PodTemplateSpec) *apps.ReplicaSet {
	return &apps.ReplicaSet{ObjectMeta: Named(name), Spec: apps.ReplicaSetSpec{Replicas: &replicas, Selector: Selector(template.Labels), Template: template}}
}

// ReplicationController returns a ReplicationController of the pods with the template's labels.
func ReplicationController(name string, replicas int32, template v1.PodTemplateSpec) *v1.ReplicationController {
	return &v1.ReplicationController{ObjectMeta: Named(name), Spec: v1.ReplicationControllerSpec{Replicas: &replicas, Selector: template.Labels, Template: &template}}
}

// Deployment returns a Deployment of the pods with the template's labels.
func Deployment(name string, replicas int32, template v1.PodTemplateSpec) *apps.Deployment {
	return &apps.Deployment{ObjectMeta: Named(name), Spec: apps.DeploymentSpec{Replicas: &replicas, Selector: Selector(template.Labels), Template: template}}
}

// StatefulSet returns a StatefulSet of the pods with the template's labels, all of which come and
// go at once.
func StatefulSet(name string, replicas int32, template v1.PodTemplateSpec) *apps.StatefulSet {
	return &apps.StatefulSet{ObjectMeta: Named(name), Spec: apps.StatefulSetSpec{
		Replicas: &replicas, Selector: Selector(template.Labels), Template: template, PodManagementPolicy: apps.ParallelPodManagement,
	}}
}

// DaemonSet returns a DaemonSet of the pods with the template's labels, which no taint keeps from a
// Node.
func DaemonSet(name string, template v1.PodTemplateSpec) *apps.DaemonSet {
	template.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
	return &apps.DaemonSet{ObjectMeta: Named(name), Spec: apps.DaemonSetSpec{Selector: Selector(template.Labels), Template: template}}
}

// Service returns a Service of the pods with these labels.
func Service(name string, labels map[string]string) *v1.Service {
	return &v1.Service{ObjectMeta: Named(name), Spec: v1.ServiceSpec{Selector: labels, Ports: []v1.ServicePort{{Port: 80}}}}
}
