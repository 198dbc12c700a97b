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

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	policy "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/pkg/controller/daemon/util"
	"k8s.io/kubernetes/test/harness/objects"
	"k8s.io/utils/ptr"
)

const (
	// anewNamespaces is how many namespaces there are whose objects are deleted and made anew under
	// their names. Each has one object of each kind, with anewName.
	anewNamespaces = 4
	anewName       = "anew"
	// anewLabel is on all pods there, and has the resource of what they belong to.
	anewLabel    = "anew"
	anewReplicas = 2
	// slowFinalizer keeps pods that are being deleted, for a while up to slowest.
	slowFinalizer = "ringmaster.test/slow"
	slowest       = 5 * time.Second
	// anewAtOnce is how many of the objects may be missing at a time.
	anewAtOnce = 6

	// quietNamespaces is how many namespaces there are where nothing happens but that people delete
	// EndpointSlices: those of publishedService, which has pods that are ready, and those of
	// emptyService, which has none, together with the Service, which is made anew at once.
	quietNamespaces                = 8
	publishedService, emptyService = "published", "empty"
)

func anewNamespace(i int) string { return fmt.Sprintf("anew-%d", i) }

func quietNamespace(i int) string { return fmt.Sprintf("quiet-%d", i) }

// judgedAtRest says whether what is in a namespace is judged only at rest, by what a stock
// controller manager does there.
func judgedAtRest(namespace string) bool {
	return namespace == canaryNamespace || strings.HasPrefix(namespace, "anew-") || strings.HasPrefix(namespace, "quiet-")
}

// anewLoad is the state of the load that deletes objects and makes them anew.
type anewLoad struct {
	client dynamic.Interface
	// slots has room for what may be missing at a time.
	slots chan struct{}
	done  sync.WaitGroup

	lock sync.Mutex
	// missing has the objects that have yet to be made anew, by namespace and resource.
	missing map[string]bool
	// made counts those that were deleted to be made anew.
	made int
}

// anewKind is a kind of objects that are made anew.
type anewKind struct {
	resource schema.GroupVersionResource
	// make returns the object.
	make func() runtime.Object
	// orphans says that what an object leaves behind belongs to its successor.
	orphans bool
	// with is how far from it in the list that is which goes and comes with it, 0 if nothing does.
	with int
}

var anewKinds = []anewKind{
	{resource: v1.SchemeGroupVersion.WithResource("pods"), make: func() runtime.Object {
		pod := objects.Pod("", anewPod("pods"))
		pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: anewName}}}}
		return pod
	}},
	{resource: v1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), with: -1, make: func() runtime.Object {
		return &v1.PersistentVolumeClaim{Spec: claimSpec()}
	}},
	{resource: apps.SchemeGroupVersion.WithResource("deployments"), orphans: true, make: func() runtime.Object {
		return objects.Deployment("", anewReplicas, anewPod("deployments"))
	}},
	{resource: apps.SchemeGroupVersion.WithResource("replicasets"), orphans: true, make: func() runtime.Object {
		return objects.ReplicaSet("", anewReplicas, anewPod("replicasets"))
	}},
	{resource: apps.SchemeGroupVersion.WithResource("statefulsets"), orphans: true, make: func() runtime.Object {
		set := objects.StatefulSet("", anewReplicas, anewPod("statefulsets"))
		set.Spec.VolumeClaimTemplates = []v1.PersistentVolumeClaim{{ObjectMeta: objects.Named("data"), Spec: claimSpec()}}
		return set
	}},
	{resource: apps.SchemeGroupVersion.WithResource("daemonsets"), orphans: true, make: func() runtime.Object {
		pod := anewPod("daemonsets")
		terms := &v1.NodeSelector{}
		for i := range stillNodes {
			terms.NodeSelectorTerms = append(terms.NodeSelectorTerms, v1.NodeSelectorTerm{
				MatchFields: []v1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpIn, Values: []string{nodeName(i)}}},
			})
		}
		pod.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
		return objects.DaemonSet("", pod)
	}},
	{resource: batch.SchemeGroupVersion.WithResource("jobs"), make: func() runtime.Object {
		// Its pods run for as long as they may.
		pod := anewPod("jobs")
		pod.Spec.RestartPolicy = v1.RestartPolicyNever
		return &batch.Job{Spec: batch.JobSpec{Completions: ptr.To[int32](anewReplicas), Parallelism: ptr.To[int32](anewReplicas), Template: pod}}
	}},
	{resource: batch.SchemeGroupVersion.WithResource("cronjobs"), make: func() runtime.Object {
		pod := anewPod("cronjobs")
		pod.Labels[jobLabel] = "true"
		pod.Spec.RestartPolicy = v1.RestartPolicyNever
		return &batch.CronJob{Spec: batch.CronJobSpec{
			Schedule: "* * * * *", SuccessfulJobsHistoryLimit: ptr.To[int32](1),
			JobTemplate: batch.JobTemplateSpec{Spec: batch.JobSpec{BackoffLimit: ptr.To[int32](1000), Template: pod}},
		}}
	}},
	{resource: v1.SchemeGroupVersion.WithResource("services"), make: func() runtime.Object {
		return objects.Service("", map[string]string{anewLabel: "statefulsets"})
	}},
	{resource: policy.SchemeGroupVersion.WithResource("poddisruptionbudgets"), make: func() runtime.Object {
		selects := objects.Selector(map[string]string{anewLabel: "statefulsets"})
		return &policy.PodDisruptionBudget{Spec: policy.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: selects}}
	}},
	{resource: autoscaling.SchemeGroupVersion.WithResource("horizontalpodautoscalers"), make: func() runtime.Object {
		return &autoscaling.HorizontalPodAutoscaler{Spec: autoscaling.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscaling.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: anewName},
			MinReplicas:    ptr.To[int32](anewReplicas), MaxReplicas: anewReplicas,
		}}
	}},
}

// anewPod returns what pods are made of that go slowly.
func anewPod(of string) v1.PodTemplateSpec {
	pods := objects.Pods(map[string]string{anewLabel: of})
	pods.Finalizers = []string{slowFinalizer}
	return pods
}

// createAnew creates the namespaces of this load with what is in them.
func (r *run) createAnew(ctx context.Context) error {
	client, err := dynamic.NewForConfig(r.cluster.RESTConfig())
	if err != nil {
		return err
	}
	r.anew = &anewLoad{client: client, slots: make(chan struct{}, anewAtOnce), missing: map[string]bool{}}
	for i := range anewNamespaces {
		if err := r.createNamespace(ctx, anewNamespace(i)); err != nil {
			return err
		}
		for _, k := range anewKinds {
			if err := r.make(ctx, k, anewNamespace(i), ""); err != nil {
				return err
			}
		}
	}
	for i := range quietNamespaces {
		if err := r.createQuiet(ctx, quietNamespace(i)); err != nil {
			return err
		}
	}
	return nil
}

// createNamespace creates a namespace in which pods can be created.
func (r *run) createNamespace(ctx context.Context, name string) error {
	if err := objects.Create(ctx, r.client, "", objects.Namespace(name)); err != nil {
		return err
	}
	return r.cluster.AwaitServiceAccount(ctx, name)
}

func (r *run) createQuiet(ctx context.Context, namespace string) error {
	if err := r.createNamespace(ctx, namespace); err != nil {
		return err
	}
	for range anewReplicas {
		pod := objects.Pod("", anewPod(publishedService))
		pod.GenerateName = "pod-"
		if err := objects.Create(ctx, r.client, namespace, pod); err != nil {
			return err
		}
	}
	return objects.Create(ctx, r.client, namespace, quietService(publishedService), quietService(emptyService))
}

func quietService(name string) *v1.Service {
	return objects.Service(name, map[string]string{anewLabel: name})
}

// make creates an object, unless it is there already with another UID than old.
func (r *run) make(ctx context.Context, k anewKind, namespace, old string) error {
	object := k.make()
	kinds, _, err := scheme.Scheme.ObjectKinds(object)
	if err != nil {
		return err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	wanted := &unstructured.Unstructured{Object: content}
	wanted.SetGroupVersionKind(kinds[0])
	wanted.SetName(anewName)
	api := r.anew.client.Resource(k.resource).Namespace(namespace)
	_, err = api.Create(ctx, wanted, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	if there, getErr := api.Get(ctx, anewName, metav1.GetOptions{}); getErr == nil && string(there.GetUID()) != old {
		return nil
	}
	return err
}

// makeAnew deletes one of the objects and makes it anew as soon as its name is free, while what
// it has left behind goes slowly; or it deletes what controllers have made for the Service.
func (r *run) makeAnew(ctx context.Context, random *rand.Rand) {
	namespace := anewNamespace(random.IntN(anewNamespaces))
	i := random.IntN(len(anewKinds) + 1)
	if i == len(anewKinds) {
		_ = r.deleteSlices(ctx, namespace, anewName)
		_ = r.client.CoreV1().Endpoints(namespace).Delete(ctx, anewName, metav1.DeleteOptions{})
		return
	}
	kinds := []anewKind{anewKinds[i]}
	if kinds[0].with < 0 {
		kinds = append(kinds, anewKinds[i+kinds[0].with])
	}
	policies := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan}
	if !kinds[0].orphans {
		policies = policies[:2]
	}
	how := policies[random.IntN(len(policies))]
	release, ok := r.anew.take(namespace, kinds)
	if !ok {
		return
	}
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer release()
		bounded, cancel := context.WithTimeout(ctx, soon)
		defer cancel()
		old := make([]string, len(kinds))
		for i, k := range kinds {
			r.retry(bounded, func(ctx context.Context) (err error) {
				old[i], err = r.unmake(ctx, k, namespace, how)
				return err
			})
		}
		for i, k := range kinds {
			r.retry(bounded, func(ctx context.Context) error { return r.make(ctx, k, namespace, old[i]) })
		}
	}()
}

// take reserves objects, unless one of them, or too many others, are missing.
func (a *anewLoad) take(namespace string, kinds []anewKind) (release func(), ok bool) {
	a.lock.Lock()
	defer a.lock.Unlock()
	var names []string
	for _, k := range kinds {
		name := namespace + "/" + k.resource.Resource
		if a.missing[name] {
			return nil, false
		}
		names = append(names, name)
	}
	select {
	case a.slots <- struct{}{}:
	default:
		return nil, false
	}
	for _, name := range names {
		a.missing[name] = true
	}
	a.made += len(names)
	a.done.Add(1)
	return func() {
		a.lock.Lock()
		defer a.lock.Unlock()
		for _, name := range names {
			delete(a.missing, name)
		}
		<-a.slots
		a.done.Done()
	}, true
}

// unmake deletes an object, and returns its UID.
func (r *run) unmake(ctx context.Context, k anewKind, namespace string, how metav1.DeletionPropagation) (string, error) {
	api := r.anew.client.Resource(k.resource).Namespace(namespace)
	there, err := api.Get(ctx, anewName, metav1.GetOptions{})
	if err != nil {
		return "", ignoreGone(err)
	}
	uid := there.GetUID()
	return string(uid), ignoreGone(api.Delete(ctx, anewName, metav1.DeleteOptions{PropagationPolicy: &how, Preconditions: metav1.NewUIDPreconditions(string(uid))}))
}

func (r *run) deleteSlices(ctx context.Context, namespace, service string) error {
	return r.client.DiscoveryV1().EndpointSlices(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: discovery.LabelServiceName + "=" + service})
}

// disturb deletes the EndpointSlices in the namespaces where nothing else happens. Since the last
// time, some of these have changed hands.
func (r *run) disturb(ctx context.Context) error {
	for i := range quietNamespaces {
		namespace := quietNamespace(i)
		if err := r.deleteSlices(ctx, namespace, publishedService); err != nil {
			return err
		}
		if err := r.client.CoreV1().Services(namespace).Delete(ctx, emptyService, metav1.DeleteOptions{}); err != nil {
			return err
		}
		if err := objects.Create(ctx, r.client, namespace, quietService(emptyService)); err != nil {
			return err
		}
	}
	return nil
}

// runAnewPod does with a pod that goes slowly what a scheduler and a kubelet would do next.
func (r *run) runAnewPod(ctx context.Context, pod *v1.Pod) {
	if pod.DeletionTimestamp == nil {
		go r.retry(ctx, func(ctx context.Context) error { return r.runTeamPod(ctx, pod) })
		return
	}
	time.AfterFunc(rand.N(slowest), func() {
		r.retry(ctx, func(ctx context.Context) error { return r.endSlowly(ctx, pod) })
	})
}

// endSlowly ends a pod that is being deleted.
func (r *run) endSlowly(ctx context.Context, pod *v1.Pod) error {
	pods := r.client.CoreV1().Pods(pod.Namespace)
	now, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil || now.UID != pod.UID {
		return ignoreGone(err)
	}
	if i := slices.Index(now.Finalizers, slowFinalizer); i >= 0 {
		now.Finalizers = slices.Delete(now.Finalizers, i, i+1)
		if _, err := pods.Update(ctx, now, metav1.UpdateOptions{}); err != nil {
			return ignoreGone(err)
		}
	}
	return ignoreGone(pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}))
}

// targetNode returns the Node on which a pod is to run.
func targetNode(pod *v1.Pod) string {
	if name, err := util.GetTargetNodeName(pod); err == nil {
		return name
	}
	return nodeName(0)
}

// unmade lists what is not as it should be in the namespaces of this load.
func (r *run) unmade(ctx context.Context) ([]string, error) {
	var left []string
	for i := range anewNamespaces {
		ns := anewNamespace(i)
		add := func(format string, args ...any) { left = append(left, ns+": "+fmt.Sprintf(format, args...)) }
		for _, k := range anewKinds {
			o, err := r.anew.client.Resource(k.resource).Namespace(ns).Get(ctx, anewName, metav1.GetOptions{})
			if err != nil {
				if !apierrors.IsNotFound(err) {
					return nil, err
				}
				add("no %s", k.resource.Resource)
				continue
			}
			status := func(field string) int64 {
				n, _, _ := unstructured.NestedInt64(o.Object, "status", field)
				return n
			}
			observed := func() {
				if o.GetGeneration() != status("observedGeneration") {
					add("%s has generation %d, observed %d", k.resource.Resource, o.GetGeneration(), status("observedGeneration"))
				}
			}
			want := func(field string, n int64) {
				if is := status(field); is != n {
					add("%s says %s: %d, want %d", k.resource.Resource, field, is, n)
				}
			}
			if o.GetDeletionTimestamp() != nil {
				add("%s is being deleted", k.resource.Resource)
			}
			switch k.resource.Resource {
			case "deployments", "replicasets", "statefulsets":
				observed()
				want("replicas", anewReplicas)
				want("readyReplicas", anewReplicas)
			case "daemonsets":
				observed()
				want("desiredNumberScheduled", stillNodes)
				want("numberReady", stillNodes)
			case "jobs":
				want("active", anewReplicas)
				want("ready", anewReplicas)
			case "poddisruptionbudgets":
				observed()
				want("currentHealthy", anewReplicas)
			case "horizontalpodautoscalers":
				want("currentReplicas", anewReplicas)
			}
		}
		pods, err := r.client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		count := map[string]int{}
		for _, pod := range pods.Items {
			if pod.DeletionTimestamp != nil {
				add("pod %s is being deleted", pod.Name)
			}
			count[pod.Labels[anewLabel]]++
		}
		for of, want := range map[string]int{"deployments": anewReplicas, "replicasets": anewReplicas, "statefulsets": anewReplicas, "daemonsets": stillNodes, "jobs": anewReplicas, "pods": 1} {
			if count[of] != want {
				add("%d pods of %s, want %d", count[of], of, want)
			}
		}
		more, err := r.unpublished(ctx, ns, anewName, "statefulsets", anewReplicas)
		if err != nil {
			return nil, err
		}
		left = append(left, more...)
	}
	for i := range quietNamespaces {
		for service, ready := range map[string]int{publishedService: anewReplicas, emptyService: 0} {
			more, err := r.unpublished(ctx, quietNamespace(i), service, service, ready)
			if err != nil {
				return nil, err
			}
			left = append(left, more...)
		}
	}
	slices.Sort(left)
	return left, nil
}

// unpublished lists what is not as it should be in the EndpointSlices and the Endpoints of a
// Service that has so many pods, which are ready.
func (r *run) unpublished(ctx context.Context, namespace, service, label string, ready int) (left []string, err error) {
	owner, err := r.client.CoreV1().Services(namespace).Get(ctx, service, metav1.GetOptions{})
	if err != nil {
		return nil, ignoreGone(err)
	}
	pods, err := r.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: anewLabel + "=" + label})
	if err != nil {
		return nil, err
	}
	var want, in, old []string
	for _, pod := range pods.Items {
		want = append(want, pod.Status.PodIP)
	}
	published, err := r.client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discovery.LabelServiceName + "=" + service})
	if err != nil {
		return nil, err
	}
	for _, slice := range published.Items {
		if !metav1.IsControlledBy(&slice, owner) {
			old = append(old, slice.Name)
		}
		for _, e := range slice.Endpoints {
			in = append(in, e.Addresses...)
		}
	}
	name := namespace + ": Service " + service
	switch {
	case len(want) != ready || slices.Contains(want, ""):
		left = append(left, fmt.Sprintf("%s has pods at %q, want %d", name, want, ready))
	case len(published.Items) == 0:
		left = append(left, name+" has no EndpointSlice")
	case len(old) > 0:
		left = append(left, fmt.Sprintf("%s has EndpointSlices of an earlier one: %v", name, old))
	case !sameAddresses(in, want):
		left = append(left, fmt.Sprintf("%s has EndpointSlices with %q, want %q", name, in, want))
	}
	endpoints, err := r.client.CoreV1().Endpoints(namespace).Get(ctx, service, metav1.GetOptions{})
	if err != nil {
		return append(left, name+" has no Endpoints"), ignoreGone(err)
	}
	in = nil
	for _, subset := range endpoints.Subsets {
		for _, address := range subset.Addresses {
			in = append(in, address.IP)
		}
	}
	if !sameAddresses(in, want) {
		left = append(left, fmt.Sprintf("%s has Endpoints with %q, want %q", name, in, want))
	}
	return left, nil
}

// allMade waits until no object is missing because the load has yet to make it.
func (r *run) allMade(ctx context.Context) error {
	made := make(chan struct{})
	go func() {
		defer close(made)
		r.anew.done.Wait()
	}()
	select {
	case <-made:
		return nil
	case <-ctx.Done():
		r.anew.lock.Lock()
		defer r.anew.lock.Unlock()
		var left []string
		for name := range r.anew.missing {
			left = append(left, name)
		}
		return errors.Join(context.Cause(ctx), fmt.Errorf("yet to be made anew: %v", left))
	}
}
