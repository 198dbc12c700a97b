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
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
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
			created, err := createOnce{client, &shutAfter{tc.looks}}.CoreV1().Pods("ns").Create(context.Background(), pod, metav1.CreateOptions{})
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
