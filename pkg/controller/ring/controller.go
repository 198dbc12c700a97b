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
	"sync"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/ring/guard"
	"k8s.io/client-go/util/workqueue"
)

// Config says how a controller works. T is the type of the items in its queue.
type Config[T comparable] struct {
	// Queue is the controller's queue. New puts it behind the gate. Required.
	Queue *workqueue.TypedRateLimitingInterface[T]
	// Item returns the item that stands for the object of that name, as a store has it, and
	// Name the name for an item. Required.
	Item func(name string) T
	Name func(T) string
	// Work takes an item from the queue and works on it. It returns false when the queue has
	// been shut down. Required.
	Work func(context.Context) bool
	// Late says that the controller takes items from its queue long before it works on them. They
	// would keep the gate from being shut. So Work asks Env.Enter before each of them, and drops
	// those that may not be worked on. Default: who gets an item works on it.
	Late bool
	// Steady says that the controller compares what it reads of one resource, as a budget does
	// with pods: while an informer that it reads is behind, its store is of no single moment, and
	// the controller begins nothing. Default: it works on.
	Steady bool
	// Periodic says that the controller works on each object again and again, and puts it into the
	// queue with AddRateLimited for that. Default: with that it tries again what has failed, which
	// is tried at once when an informer has caught up.
	Periodic bool
	// Side do the same with queues of the controller that New does not put behind the gate:
	// their work passes the gate by itself, or only queues.
	Side []func(context.Context) bool
	// Run runs the controller until ctx ends, with that number of workers of its own. The
	// Controller calls it with none. Required.
	Run func(ctx context.Context, workers int)
	// Enqueue queues an object that may need work, as the controller's handler does when it is
	// added. Default: it queues all of them.
	Enqueue func(obj any)
	// Prepare is called before the gate is opened, when all informers hold what it opens for.
	// Default: there is nothing to prepare.
	Prepare func()
	// Forget forgets what the controller remembers of its work on an object. Default: it
	// remembers nothing.
	Forget func(name cache.ObjectName, uid types.UID)
	// Acquired is called when the gate has been opened for ranges, where handlers were told
	// of nothing before. Default: that all objects there are queued is enough.
	Acquired func(hashkey.Ranges)
}

// Beside puts a second queue of a controller on a ring by namespace behind its gate. Its items are
// names of namespaced objects. What the gate does not let in is forgotten; to queue it again when
// the gate opens is for Config.Acquired.
func Beside(env *Env, q *workqueue.TypedRateLimitingInterface[string]) {
	s := guard.NewSubjects(env.Gate, cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil), sharding.KeyPathNamespace)
	inner := *q
	s.Queue = inner.Add
	env.beside(s)
	*q = guard.Queue[string]{TypedRateLimitingInterface: inner, Subjects: s, Name: Named}
}

// Named are the items of a queue of names, as most controllers have it.
func Named(name string) string { return name }

// Controller is a controller on a ring: it shares its objects with others, and works on an
// object only while its gate is open for that key.
type Controller struct {
	env *Env
	// works has what each worker does: one loop for each queue.
	works    []func(context.Context) bool
	run      func(context.Context, int)
	prepare  func()
	acquired func(hashkey.Ranges)

	lock sync.Mutex
	// stops has one channel for each worker. Closing it ends the worker's loops.
	stops []chan struct{}
	wg    sync.WaitGroup
}

// New puts the controller that was built from env behind its gate. It fails if the controller
// reads other resources than the catalogue says.
func New[T comparable](env *Env, cfg Config[T]) (*Controller, error) {
	if err := env.check(); err != nil {
		return nil, err
	}
	inner, s := *cfg.Queue, env.subjects
	s.Queue = func(name string) { inner.Add(cfg.Item(name)) }
	if cfg.Forget != nil {
		s.Forget = func(name string, uid types.UID) {
			if object, err := cache.ParseObjectName(name); err == nil {
				cfg.Forget(object, uid)
			}
		}
	}
	s.Enqueue, s.Steady = cfg.Enqueue, cfg.Steady
	*cfg.Queue = guard.Queue[T]{TypedRateLimitingInterface: inner, Subjects: s, Name: cfg.Name, Late: cfg.Late, Periodic: cfg.Periodic}
	return &Controller{env: env, works: append([]func(context.Context) bool{cfg.Work}, cfg.Side...), run: cfg.Run, prepare: cfg.Prepare, acquired: cfg.Acquired}, nil
}

// Run works until ctx ends, with the number of workers that SetWorkers sets.
func (c *Controller) Run(ctx context.Context) {
	c.run(ctx, 0)
	c.wg.Wait()
}

// SetWorkers sets the number of objects that are worked on at the same time. A surplus worker
// ends after its present object, or the next if it has none. Workers end with ctx.
func (c *Controller) SetWorkers(ctx context.Context, n int) {
	c.lock.Lock()
	defer c.lock.Unlock()
	for ; len(c.stops) > n; c.stops = c.stops[:len(c.stops)-1] {
		close(c.stops[len(c.stops)-1])
	}
	for len(c.stops) < n {
		stop := make(chan struct{})
		c.stops = append(c.stops, stop)
		for _, work := range c.works {
			c.wg.Go(func() { c.worker(ctx, stop, work) })
		}
	}
}

func (c *Controller) worker(ctx context.Context, stop <-chan struct{}, work func(context.Context) bool) {
	// As the loops that stock workers run in: a panic is logged, and the records are deleted.
	defer utilruntime.HandleCrashWithContext(ctx)
	for _, informer := range c.env.informed {
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return
		}
	}
	for {
		select {
		case <-stop:
			return
		default:
		}
		if !work(ctx) {
			return
		}
	}
}

// Prepare is called before the gate is opened for ranges, which all informers hold: the
// handlers are told of what happens from now on.
func (c *Controller) Prepare(ranges hashkey.Ranges) {
	for _, informer := range c.env.informed {
		if informer.filter != nil {
			informer.filter.Open(ranges)
		}
	}
	if c.prepare != nil {
		c.prepare()
	}
}

// Acquired is called when the gate has been opened for ranges: it queues all objects there.
func (c *Controller) Acquired(ctx context.Context, ranges hashkey.Ranges) {
	c.env.subjects.QueueAll(ctx, ranges)
	if c.acquired != nil && ctx.Err() == nil {
		c.acquired(ranges)
	}
}

// Released is called when the gate has been shut for ranges and no work there is under way: it
// forgets what the controller remembers of its work. The next owner keeps its own account.
func (c *Controller) Released(ranges hashkey.Ranges) {
	for _, informer := range c.env.informed {
		if informer.filter != nil {
			informer.filter.Shut(ranges)
		}
	}
	c.env.subjects.Release(ranges)
}
