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

package statefulset

import (
	"context"
	"sync"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	ringtesting "k8s.io/kubernetes/pkg/controller/ring/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// What an earlier StatefulSet of that name has left behind is in the way until it is gone, and then
// the new one is queued.
func TestAStatefulSetHearsOfItsPredecessorsDependents(t *testing.T) {
	meta := func(name string, owner types.UID) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: "1"}
		if owner != "" {
			m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&metav1.ObjectMeta{Name: "web", UID: owner}, controllerKind)}
		}
		return m
	}
	for _, tc := range []struct {
		name        string
		removeAgain func(context.Context, *fake.Clientset) error
	}{
		{name: "a pod", removeAgain: func(ctx context.Context, c *fake.Clientset) error {
			pod := &v1.Pod{ObjectMeta: meta("web-0", "old")}
			if _, err := c.CoreV1().Pods("ns").Create(ctx, pod, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
			return c.CoreV1().Pods("ns").Delete(ctx, "web-0", metav1.DeleteOptions{})
		}},
		{name: "a revision", removeAgain: func(ctx context.Context, c *fake.Clientset) error {
			revision := &apps.ControllerRevision{ObjectMeta: meta("web-1", "old")}
			if _, err := c.AppsV1().ControllerRevisions("ns").Create(ctx, revision, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
			return c.AppsV1().ControllerRevisions("ns").Delete(ctx, "web-1", metav1.DeleteOptions{})
		}},
		{name: "a claim", removeAgain: func(ctx context.Context, c *fake.Clientset) error {
			claim := &v1.PersistentVolumeClaim{ObjectMeta: meta("data-web-0", "")}
			if _, err := c.CoreV1().PersistentVolumeClaims("ns").Create(ctx, claim, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
			return c.CoreV1().PersistentVolumeClaims("ns").Delete(ctx, "data-web-0", metav1.DeleteOptions{})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, ctx := ktesting.NewTestContext(t)
			ctx, cancel := context.WithCancel(ctx)
			client := ringtesting.NewClient(
				&apps.StatefulSet{
					ObjectMeta: meta("web", ""),
					Spec:       apps.StatefulSetSpec{VolumeClaimTemplates: []v1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}},
				},
				&v1.PersistentVolumeClaim{ObjectMeta: meta("data-web-0", "")},
				&v1.Pod{ObjectMeta: meta("web-0", "old")},
				&apps.ControllerRevision{ObjectMeta: meta("web-1", "old")},
			)
			env, informers := ringtesting.NewEnv(t, ctx, catalogue.StatefulSetController, &ringtesting.Gate{}, client)
			ssc := newOnRing(ctx, env)
			if _, err := ssc.putOnRing(env); err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			defer wg.Wait()
			defer cancel()
			wg.Go(func() { informers.Run(ctx) })
			for _, source := range informers.Sources {
				source.SetRanges(hashkey.All())
				if err := source.WaitFor(ctx, hashkey.All()); err != nil {
					t.Fatal(err)
				}
			}
			// The watch of a fake client, which may begin later, has nothing from before.
			if err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
				if err := tc.removeAgain(ctx, client); err != nil {
					return false, err
				}
				return ssc.queue.Len() == 1, nil
			}); err != nil {
				t.Errorf("waiting until the new StatefulSet is queued: %v", err)
			}
		})
	}
}

func TestWhichClaimsAreAStatefulSets(t *testing.T) {
	set := &apps.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	set.Spec.VolumeClaimTemplates = []v1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}, {ObjectMeta: metav1.ObjectMeta{Name: "logs"}}}
	for name, want := range map[string]bool{
		"data-web-0": true, "logs-web-12": true,
		"data-web-": false, "data-web-00": false, "data-web-x": false, "data-web2-0": false, "tmp-web-0": false, "data-web": false, "": false,
	} {
		if claims(set, name) != want {
			t.Errorf("%q is one: %v, want %v", name, !want, want)
		}
	}
}
