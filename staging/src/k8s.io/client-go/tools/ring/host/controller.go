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

package host

import (
	"context"
	"fmt"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/ring/guard"
	"k8s.io/client-go/util/workqueue"
)

// controller is a controller of the Host, as its instance on the ring meets it.
type controller struct {
	Controller
	host     *Host
	subjects *guard.Subjects
	// open is what its door may be open for. The Host's lock guards it.
	open hashkey.Ranges
}

func (h *Host) newController(described Controller) (*controller, error) {
	if described.Name == "" || described.Works == nil {
		return nil, fmt.Errorf("controller %q needs Name and Works", described.Name)
	}
	if err := h.addRead(Read{described.Works, sharding.HashKeyPath}, true); err != nil {
		return nil, err
	}
	i := h.read(described.Works)
	if err := described.checkWorks(i); err != nil {
		return nil, err
	}
	by, writes := sharding.ControllerHashKeyPath, shardingv1alpha1.GoverningKeyHome
	if i.By == sharding.NamespaceHashKeyPath {
		by, writes = sharding.NamespaceHashKeyPath, shardingv1alpha1.GoverningKeyNamespace
	}
	if described.Writes == nil {
		described.Writes = []Write{{Group: "*", Resource: "*", By: writes}}
	}
	for _, owned := range described.Owns {
		if err := h.addRead(Read{owned, by}, true); err != nil {
			return nil, err
		}
		if err := described.checkOwns(h.read(owned), i.By, by); err != nil {
			return nil, err
		}
	}
	path, _ := sharding.ParseKeyPath(i.By)
	// The informer brings its own store.
	none := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	c := &controller{Controller: described, host: h, subjects: guard.NewSubjects(h.gate.For(described.Name), none, path)}
	i.subjects = c.subjects
	return c, nil
}

// NewQueue returns a function that makes the queue of a controller of h, behind its gate: who gets
// an item works on that object until Done. What the gate keeps out is queued again when it opens.
// Each controller has one queue, without priorities. The function fits as NewQueue of
// controller-runtime's controller.Options; it panics if h has no controller of that name.
func NewQueue[T Item](h *Host) func(controller string, limiter workqueue.TypedRateLimiter[T]) workqueue.TypedRateLimitingInterface[T] {
	return func(name string, limiter workqueue.TypedRateLimiter[T]) workqueue.TypedRateLimitingInterface[T] {
		for _, c := range h.controllers {
			if c.Name != name {
				continue
			}
			if c.subjects.Queue != nil {
				panic(fmt.Sprintf("coding error: a second queue of %s was asked for", name))
			}
			inner := workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[T]{Name: name})
			c.subjects.Queue = func(name string) {
				if object, err := cache.ParseObjectName(name); err == nil {
					inner.Add(T{types.NamespacedName(object)})
				}
			}
			h.asked("the queue of " + name)
			nameOf := func(item T) string {
				return cache.ObjectName(struct{ types.NamespacedName }(item).NamespacedName).String()
			}
			return guard.Queue[T]{TypedRateLimitingInterface: inner, Subjects: c.subjects, Name: nameOf}
		}
		panic(fmt.Sprintf("coding error: %q is no controller of the ring's Host; name it as Config.Controllers does", name))
	}
}

// Item stands for an object in a queue, as controller-runtime's Request does.
type Item interface {
	comparable
	~struct{ types.NamespacedName }
}

// Prepare implements member.Controller.
func (c *controller) Prepare(ranges hashkey.Ranges) {
	c.host.filtering.Lock()
	defer c.host.filtering.Unlock()
	c.host.setOpen(c, func(open hashkey.Ranges) hashkey.Ranges { return open.Union(ranges) })
	for _, i := range c.host.reads {
		if i.filter != nil {
			i.filter.Open(ranges)
		}
	}
}

// Acquired implements member.Controller.
func (c *controller) Acquired(ctx context.Context, ranges hashkey.Ranges) {
	c.subjects.QueueAll(ctx, ranges)
}

// Released implements member.Controller.
func (c *controller) Released(ranges hashkey.Ranges) {
	c.host.filtering.Lock()
	defer c.host.filtering.Unlock()
	// Handlers of other controllers hear by the same filters.
	open := c.host.setOpen(c, func(open hashkey.Ranges) hashkey.Ranges { return open.Minus(ranges) })
	shut := ranges.Minus(open)
	for _, i := range c.host.reads {
		if i.filter != nil {
			i.filter.Shut(shut)
		}
	}
	c.subjects.Release(ranges)
}

// setOpen changes what the door of one controller may be open for, and returns what that of any may
// be.
func (h *Host) setOpen(c *controller, change func(hashkey.Ranges) hashkey.Ranges) (all hashkey.Ranges) {
	h.lock.Lock()
	defer h.lock.Unlock()
	c.open = change(c.open)
	for _, other := range h.controllers {
		all = all.Union(other.open)
	}
	return all
}
