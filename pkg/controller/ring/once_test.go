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
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/ring/fence"
)

// shutAfter is a gate that is open for that many calls of Serves.
type shutAfter struct{ looks int }

func (g *shutAfter) Enter(int64) (func(), bool) { return func() {}, true }
func (g *shutAfter) ServesAll() bool            { return false }
func (g *shutAfter) Serves(int64) bool {
	g.looks--
	return g.looks >= 0
}

// TestCreateOnce loses creations, or the answers to them.
func TestCreateOnce(t *testing.T) {
	lost := errors.New("unexpected EOF")
	refusal := apierrors.NewForbidden(v1.Resource("pods"), "", errors.New("quota"))
	// As a webhook may say of something else.
	exists := apierrors.NewAlreadyExists(v1.Resource("things"), "")
	failure := apierrors.NewInternalError(errors.New("etcd"))
	type answer struct {
		// stored is set if the pod is stored, whatever the answer.
		stored bool
		err    error
	}
	for name, tc := range map[string]struct {
		answers []answer
		looks   int
		// others is set if another controller's pod has the first name.
		others bool
		// created is the number of pods in the end.
		created int
		err     error
	}{
		"answered":                     {answers: []answer{{stored: true}}, created: 1},
		"stored, the answer lost":      {answers: []answer{{stored: true, err: lost}}, looks: 9, created: 1},
		"the request lost":             {answers: []answer{{err: lost}, {err: lost}, {stored: true}}, looks: 9, created: 1},
		"lost twice, stored once":      {answers: []answer{{stored: true, err: lost}, {err: lost}}, looks: 9, created: 1},
		"refused":                      {answers: []answer{{err: refusal}}, err: refusal},
		"lost, then refused":           {answers: []answer{{err: lost}, {err: refusal}}, looks: 9, err: refusal},
		"stored, lost, then refused":   {answers: []answer{{stored: true, err: lost}, {err: refusal}}, looks: 9, created: 1},
		"stored, and the server fails": {answers: []answer{{stored: true, err: failure}}, created: 1},
		"the server fails":             {answers: []answer{{err: failure}}, err: failure},
		"the gate shuts":               {answers: []answer{{err: lost}, {err: lost}}, looks: 1, err: lost},
		"a name that is another's":     {others: true, created: 1},
		"a pod that came and went":     {answers: []answer{{err: lost}, {err: exists}, {err: exists}, {stored: true}}, looks: 9, created: 1},
		"something else that exists":   {answers: []answer{{err: exists}, {err: exists}, {err: exists}, {err: exists}}, looks: 9, err: exists},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			attempts := 0
			client.PrependReactor("create", "pods", func(action core.Action) (bool, runtime.Object, error) {
				pod := action.(core.CreateAction).GetObject().(*v1.Pod)
				attempts++
				if tc.others && attempts == 1 {
					other := pod.DeepCopy()
					other.OwnerReferences[0].UID = "other"
					if err := client.Tracker().Create(v1.SchemeGroupVersion.WithResource("pods"), other, pod.Namespace); err != nil {
						t.Fatal(err)
					}
				}
				if attempts > len(tc.answers) {
					return false, nil, nil
				}
				a := tc.answers[attempts-1]
				if a.stored {
					if err := client.Tracker().Create(v1.SchemeGroupVersion.WithResource("pods"), pod, pod.Namespace); err != nil {
						return true, nil, err
					}
				}
				return true, pod, a.err
			})
			isController := true
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", GenerateName: "rs-", OwnerReferences: []metav1.OwnerReference{{UID: "rs", Controller: &isController}},
			}}
			created, err := once{Interface: client, gate: &shutAfter{tc.looks}}.CoreV1().Pods("ns").Create(context.Background(), pod, metav1.CreateOptions{})
			if !errors.Is(err, tc.err) || fmt.Sprint(err) != fmt.Sprint(tc.err) {
				t.Errorf("error %v, want %v", err, tc.err)
			}
			list, listErr := client.CoreV1().Pods("ns").List(context.Background(), metav1.ListOptions{})
			if listErr != nil {
				t.Fatal(listErr)
			}
			n := 0
			for _, p := range list.Items {
				if metav1.IsControlledBy(&p, &metav1.ObjectMeta{UID: "rs"}) {
					n++
					if err == nil && p.Name != created.Name {
						t.Errorf("created %s, but Create returned %s", p.Name, created.Name)
					}
				}
			}
			if n != tc.created {
				t.Errorf("%d pods, want %d", n, tc.created)
			}
			if pod.Name != "" {
				t.Error("the caller's pod was changed")
			}
		})
	}
}

// TestDeleteOnce loses deletions, or the answers to them.
func TestDeleteOnce(t *testing.T) {
	lost := errors.New("unexpected EOF")
	refusal := apierrors.NewForbidden(v1.Resource("pods"), "", errors.New("just started"))
	failure := apierrors.NewInternalError(errors.New("etcd"))
	fenced := apierrors.NewConflict(v1.Resource("pods"), "", errors.New("another owns it"))
	fenced.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: fence.CauseFenced}}
	type answer struct {
		// stored is set if the pod is deleted, whatever the answer.
		stored bool
		err    error
	}
	for name, tc := range map[string]struct {
		answers []answer
		looks   int
		// unread is set if the controller does not read the pod, told if its cache loses the pod with
		// its deletion, and anew if another of the name comes then.
		unread, told, anew bool
		requests           int
		err                func(error) bool
	}{
		"answered":                            {answers: []answer{{stored: true}}, requests: 1},
		"deleted, the answer lost":            {answers: []answer{{stored: true, err: lost}}, looks: 9, requests: 2},
		"the request lost":                    {answers: []answer{{err: lost}, {err: lost}}, looks: 9, requests: 3},
		"deleted, lost, and the cache tells":  {answers: []answer{{stored: true, err: lost}}, looks: 9, told: true, requests: 2, err: apierrors.IsNotFound},
		"deleted, lost, then refused":         {answers: []answer{{stored: true, err: lost}, {err: refusal}}, looks: 9, requests: 3},
		"deleted, and the server fails":       {answers: []answer{{stored: true, err: failure}}, looks: 9, requests: 2},
		"deleted, lost, and one made anew":    {answers: []answer{{stored: true, err: lost}}, looks: 9, anew: true, requests: 2, err: apierrors.IsConflict},
		"refused":                             {answers: []answer{{err: refusal}}, requests: 1, err: apierrors.IsForbidden},
		"fenced":                              {answers: []answer{{err: lost}, {err: fenced}}, looks: 9, requests: 2, err: fence.IsFenced},
		"gone":                                {answers: []answer{{err: apierrors.NewNotFound(v1.Resource("pods"), "")}}, requests: 1, err: apierrors.IsNotFound},
		"the server fails all the time":       {answers: slices.Repeat([]answer{{err: failure}}, 99), looks: 99, requests: deleteOnceRefused, err: apierrors.IsInternalError},
		"the gate shuts":                      {answers: []answer{{err: lost}, {err: lost}}, looks: 1, requests: 2, err: func(err error) bool { return errors.Is(err, lost) }},
		"one that the controller has no idea": {answers: []answer{{err: lost}}, unread: true, requests: 1, err: func(err error) bool { return errors.Is(err, lost) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				isController := true
				pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
					Namespace: "ns", Name: "rs-1", UID: "1", OwnerReferences: []metav1.OwnerReference{{UID: "rs", Controller: &isController}},
				}}
				pods := cache.NewStore(cache.MetaNamespaceKeyFunc)
				if !tc.unread {
					_ = pods.Add(pod)
				}
				there, requests := types.UID("1"), 0
				client := fake.NewClientset()
				client.PrependReactor("delete", "pods", func(action core.Action) (bool, runtime.Object, error) {
					requests++
					a := answer{stored: true}
					if requests <= len(tc.answers) {
						a = tc.answers[requests-1]
					}
					precondition := action.(core.DeleteAction).GetDeleteOptions().Preconditions
					switch {
					case !a.stored:
						return true, nil, a.err
					case there == "":
						return true, nil, apierrors.NewNotFound(v1.Resource("pods"), "rs-1")
					case precondition != nil && *precondition.UID != there:
						return true, nil, apierrors.NewConflict(v1.Resource("pods"), "rs-1", errors.New("UID"))
					}
					there = ""
					if tc.told {
						_ = pods.Delete(pod)
					}
					if tc.anew {
						there = "2"
					}
					return true, nil, a.err
				})
				err := once{client, &shutAfter{tc.looks}, pods, sharding.KeyPathController}.CoreV1().Pods("ns").Delete(context.Background(), "rs-1", metav1.DeleteOptions{})
				if tc.err == nil && err != nil || tc.err != nil && !tc.err(err) {
					t.Errorf("unexpected outcome: %v", err)
				}
				if requests != tc.requests {
					t.Errorf("%d requests, want %d", requests, tc.requests)
				}
				if tc.anew && there != "2" {
					t.Error("another of the name was deleted")
				}
			})
		})
	}
}
