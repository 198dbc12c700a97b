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

package e2e_ring

import (
	"context"
	"sync"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// podCreations counts the pods that were ever created, by their controller. It
// follows one watch from before the first of them, which misses none: what is
// left in the end would not show a pod that was created in excess and deleted.
type podCreations struct {
	lock    sync.Mutex
	byOwner map[types.UID]sets.Set[types.UID]
	names   sets.Set[string]
	failed  error
}

func countPodCreations(ctx context.Context) *podCreations {
	c := &podCreations{byOwner: map[types.UID]sets.Set[types.UID]{}, names: sets.New[string]()}
	list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gomega.Expect(list.Items).To(gomega.BeEmpty(), "the watch must start before the first pod")
	w, err := watchtools.NewRetryWatcherWithContext(context.WithoutCancel(ctx), list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().Pods(metav1.NamespaceAll).Watch(ctx, options)
		},
	})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(w.Stop)
	go func() {
		for event := range w.ResultChan() {
			pod, ok := event.Object.(*v1.Pod)
			c.lock.Lock()
			switch {
			case event.Type == watch.Error || !ok:
				c.failed = context.Canceled
			case event.Type == watch.Added:
				if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
					if c.byOwner[ref.UID] == nil {
						c.byOwner[ref.UID] = sets.New[types.UID]()
					}
					c.byOwner[ref.UID].Insert(pod.UID)
				}
				c.names.Insert(pod.Name)
			}
			c.lock.Unlock()
		}
	}()
	return c
}

// expectUpTo waits until everything that has happened by now is counted: a pod of
// its own, created now, has come through the watch.
func (c *podCreations) expectUpTo(ctx context.Context) {
	ginkgo.GinkgoHelper()
	mark, err := client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "mark-"},
		Spec:       podTemplate(nil).Spec,
	}, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gomega.Eventually(ctx, func(g gomega.Gomega) {
		c.lock.Lock()
		defer c.lock.Unlock()
		g.Expect(c.failed).NotTo(gomega.HaveOccurred(), "the watch that counts creations has broken")
		g.Expect(c.names.Has(mark.Name)).To(gomega.BeTrue())
	}).WithTimeout(soon).WithPolling(poll).Should(gomega.Succeed())
}

// of returns how many pods were ever created for that controller.
func (c *podCreations) of(owner types.UID) int {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.byOwner[owner].Len()
}
