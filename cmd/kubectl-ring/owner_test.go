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
	"math"
	"strings"
	"testing"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/utils/ptr"
)

// of has the controllers and the lines of a ring of the catalogue.
func of(i *shardingv1alpha1.ControllerInstance) *shardingv1alpha1.ControllerInstance {
	r, _ := catalogue.RingNamed(i.Spec.Ring)
	i.Spec.Controllers, i.Spec.Governs, i.Status.Controllers = r.ControllerNames(), r.Governs(), nil
	for _, name := range i.Spec.Controllers {
		i.Status.Controllers = append(i.Status.Controllers, shardingv1alpha1.ControllerState{Name: name, Working: true})
	}
	return i
}

func object(kind, namespace, name string, controller *metav1.OwnerReference) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	u.SetUID("uid-1")
	if controller != nil {
		u.SetOwnerReferences([]metav1.OwnerReference{*controller})
	}
	return u
}

func TestOwner(t *testing.T) {
	low, high := of(worker("low", "workloads", 1<<62-1)), of(worker("high", "workloads", math.MaxInt64))
	spaces := of(worker("spaces", "namespaces", math.MaxInt64))
	claims := of(worker("claims", "claims", math.MaxInt64))
	custom := worker("custom", "machines", math.MaxInt64)
	custom.Spec.Controllers = []string{"machine-controller"}
	custom.Spec.Governs = []shardingv1alpha1.Governs{{Controller: "*", Group: "example.com", Resource: "machines", By: shardingv1alpha1.GoverningKeyOwn}}
	custom.Status.Controllers[0].Name = "machine-controller"
	client := fake.NewClientset(low, high, spaces, claims, custom)

	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: "apps", Version: "v1"}, {Group: "batch", Version: "v1"}})
	for kind, scope := range map[string]meta.RESTScope{"ReplicaSet": meta.RESTScopeNamespace, "Deployment": meta.RESTScopeNamespace, "Job": meta.RESTScopeNamespace} {
		group := "apps"
		if kind == "Job" {
			group = "batch"
		}
		mapper.Add(schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}, scope)
	}
	ref := func(version, kind string) *metav1.OwnerReference {
		return &metav1.OwnerReference{APIVersion: version, Kind: kind, Name: "o", UID: "owner-0", Controller: ptr.To(true)}
	}
	ownerKey := hashkey.Format(hashkey.OfUID("owner-0")) // low's
	volume := object("PersistentVolume", "", "v", nil)
	volume.SetAPIVersion("v1")
	volume.Object["spec"] = map[string]any{"claimRef": map[string]any{"uid": "c"}}
	own := hashkey.Format(hashkey.OfUID("uid-1"))
	for name, tc := range map[string]struct {
		object    *unstructured.Unstructured
		of        schema.GroupResource
		want, not []string
	}{
		"a ReplicaSet of a Deployment": {object("ReplicaSet", "shop", "web", ref("apps/v1", "Deployment")), schema.GroupResource{Group: "apps", Resource: "replicasets"}, []string{
			"replicasets.apps web in namespace shop:\n",
			"workloads    " + ownerKey + "   controller   low",
			"   deployment-controller\n",
			own + "   itself ",
			"   replicaset-controller\n",
			hashkey.Format(hashkey.OfNamespace("shop")) + "   namespace    spaces     host-spaces ",
			"   open   ",
		}, []string{"job-controller", "claims", "machine"}},
		"a pod of a Job": {object("Pod", "shop", "p", ref("batch/v1", "Job")), schema.GroupResource{Resource: "pods"}, []string{ownerKey + "   home ", "   job-controller\n"}, []string{"replicaset-controller", "itself"}},
		// It may be one that has lost its Job.
		"a pod of its own": {object("Pod", "shop", "p", nil), schema.GroupResource{Resource: "pods"}, []string{"namespace   spaces", own + "   home ", "   job-controller\n"}, []string{"controller   low", "controller   high"}},
		"a volume": {volume, schema.GroupResource{Resource: "persistentvolumes"}, []string{
			hashkey.Format(hashkey.OfUID("c")) + "   claim    claims     host-claims   Active   -       open   persistentvolume-expander-controller\n",
			own + "   itself   claims     host-claims   Active   -       open   persistentvolume-protection-controller\n",
		}, []string{"workloads"}},
		"a machine":              {object("Machine", "shop", "m", nil), schema.GroupResource{Group: "example.com", Resource: "machines"}, []string{"machines   " + own + "   itself   custom ", "machine-controller"}, nil},
		"what no ring works on":  {object("Secret", "shop", "s", nil), schema.GroupResource{Resource: "secrets"}, []string{"No ring works on secrets s in namespace shop"}, nil},
		"of an unknown resource": {object("Pod", "", "p", ref("example.com/v1", "Thing")), schema.GroupResource{Resource: "pods"}, []string{"No ring works on pods p:"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := owner(t.Context(), client, mapper, tc.object, tc.of, &out); err != nil {
				t.Fatal(err)
			}
			for _, want := range tc.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, out.String())
				}
			}
			for _, not := range tc.not {
				if strings.Contains(out.String(), not) {
					t.Errorf("%q in\n%s", not, out.String())
				}
			}
		})
	}
}

func TestOwnerSaysWhetherTheGateIsOpen(t *testing.T) {
	gates := map[string]struct {
		change func(*shardingv1alpha1.ControllerInstance)
		want   string
	}{
		"open":              {func(*shardingv1alpha1.ControllerInstance) {}, "open "},
		"nobody":            {func(i *shardingv1alpha1.ControllerInstance) { i.Spec.HashKey = nil }, "shut: nobody owns the key"},
		"caches not filled": {func(i *shardingv1alpha1.ControllerInstance) { i.Status.Cached = nil }, "shut: its caches do not hold the key yet"},
		"leaving":           {func(i *shardingv1alpha1.ControllerInstance) { i.Status.Phase = shardingv1alpha1.InstanceLeaving }, "shut, or soon: the key changes hands"},
		"about to cease": {func(i *shardingv1alpha1.ControllerInstance) {
			for n := range i.Status.Controllers {
				i.Status.Controllers[n].Reason = "the leader runs it"
			}
		}, "shut: see kubectl ring status"},
		"locked":  {func(i *shardingv1alpha1.ControllerInstance) { i.Status.Phase = shardingv1alpha1.InstanceLocked }, "shut: the instance is Locked"},
		"waiting": {func(i *shardingv1alpha1.ControllerInstance) { i.Status.Controllers = nil }, "shut: see kubectl ring status"},
		"for an hour": {func(i *shardingv1alpha1.ControllerInstance) {
			i.Status.PhaseSince = &metav1.Time{Time: time.Now().Add(-time.Hour)}
		}, "   Active   60m     open "},
	}
	for name, tc := range gates {
		t.Run(name, func(t *testing.T) {
			i := of(worker("a", "workloads", math.MaxInt64))
			tc.change(i)
			var out strings.Builder
			rs := object("ReplicaSet", "shop", "web", nil)
			if err := owner(t.Context(), fake.NewClientset(i), meta.NewDefaultRESTMapper(nil), rs, schema.GroupResource{Group: "apps", Resource: "replicasets"}, &out); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), tc.want) {
				t.Errorf("no %q in\n%s", tc.want, out.String())
			}
		})
	}
}

// An instance that gives a part of its range away works on the rest.
func TestTheGateOfADonorIsShutForWhatItGivesAlone(t *testing.T) {
	key := hashkey.OfUID("uid-1")
	for name, tc := range map[string]struct {
		next int64
		want string
	}{
		"below the key": {key - 1, "   Wait    -       shut, or soon: the key changes hands "},
		"at the key":    {key, "   Wait    -       open "},
	} {
		t.Run(name, func(t *testing.T) {
			donor, receiver := of(worker("a", "workloads", math.MaxInt64)), of(worker("b", "workloads", 1))
			donor.Spec.NextHashKey, donor.Status.Phase = (*shardingv1alpha1.HashKey)(&tc.next), shardingv1alpha1.InstanceWait
			var out strings.Builder
			rs := object("ReplicaSet", "shop", "web", nil)
			if err := owner(t.Context(), fake.NewClientset(donor, receiver), meta.NewDefaultRESTMapper(nil), rs, schema.GroupResource{Group: "apps", Resource: "replicasets"}, &out); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), tc.want) {
				t.Errorf("no %q in\n%s", tc.want, out.String())
			}
		})
	}
}

func TestOwnerWhereNoInstanceIsOnTheRing(t *testing.T) {
	var out strings.Builder
	rs := object("ReplicaSet", "shop", "web", nil)
	if err := owner(t.Context(), fake.NewClientset(), meta.NewDefaultRESTMapper(nil), rs, schema.GroupResource{Group: "apps", Resource: "replicasets"}, &out); err != nil {
		t.Fatal(err)
	}
	if want := "<none>     <none>   -       -       shut, unless the leader works on it: no instance is on the ring   replicaset-controller\n"; !strings.Contains(out.String(), want) {
		t.Errorf("no %q in\n%s", want, out.String())
	}
}
