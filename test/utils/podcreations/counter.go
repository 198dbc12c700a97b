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

// Package podcreations counts the pods that were ever created, including pods that were
// created in excess and deleted again.
package podcreations

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/kubernetes/test/harness/objects"
	"k8s.io/kubernetes/test/harness/shared"
)

// Counter counts pod creations since its start, by the controller of the pod.
type Counter struct {
	client kubernetes.Interface
	watch  *watchtools.RetryWatcher
	state  *shared.State[*created]
}

// created are the pods that were.
type created struct {
	byOwner map[types.UID]sets.Set[types.UID]
	names   sets.Set[string]
}

// Start begins to count, and goes on until ctx ends or Stop is called. It uses a single
// watch, which misses no creation.
func Start(ctx context.Context, client kubernetes.Interface) (*Counter, error) {
	list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	w, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().Pods(metav1.NamespaceAll).Watch(ctx, options)
		},
	})
	if err != nil {
		return nil, err
	}
	c := &Counter{client: client, watch: w, state: shared.New(&created{map[types.UID]sets.Set[types.UID]{}, sets.New[string]()})}
	go func() {
		for event := range w.ResultChan() {
			c.state.Change(func(created *created) error { return created.take(event) })
		}
		c.state.Fail(fmt.Errorf("the watch that counts pod creations has ended"))
	}()
	return c, nil
}

// Stop ends the counting.
func (c *Counter) Stop() { c.watch.Stop() }

func (c *created) take(event watch.Event) error {
	pod, ok := event.Object.(*v1.Pod)
	if !ok {
		return fmt.Errorf("the watch that counts pod creations sent %s %v", event.Type, event.Object)
	}
	if event.Type != watch.Added {
		return nil
	}
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
		if c.byOwner[ref.UID] == nil {
			c.byOwner[ref.UID] = sets.New[types.UID]()
		}
		c.byOwner[ref.UID].Insert(pod.UID)
	}
	c.names.Insert(pod.Name)
	return nil
}

// UpToNow returns once every creation before this call is counted. It creates a pod in
// the namespace default, and waits until the watch has delivered that.
func (c *Counter) UpToNow(ctx context.Context) error {
	mark := objects.Pod("", objects.Pods(nil))
	mark.GenerateName = "mark-"
	if err := objects.Create(ctx, c.client, metav1.NamespaceDefault, mark); err != nil {
		return err
	}
	return c.state.Await(ctx, "the watch that counts pod creations", func(c *created) bool { return c.names.Has(mark.Name) })
}

// Of returns how many pods were created for that controller.
func (c *Counter) Of(owner types.UID) (n int) {
	c.state.See(func(c *created) { n = c.byOwner[owner].Len() })
	return n
}
