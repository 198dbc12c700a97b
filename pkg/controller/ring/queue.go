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
	"k8s.io/client-go/util/workqueue"
)

// queue is a controller's queue behind its gate: who gets an item from it, unless it is late, may work
// on the object that it stands for, until Done.
type queue[T comparable] struct {
	workqueue.TypedRateLimitingInterface[T]
	subjects *subjects
	// name returns the name of the object that an item stands for.
	name func(T) string
	// late says that the controller itself asks whether an item may be worked on.
	late bool
	// periodic says that AddRateLimited does not follow a failure.
	periodic bool
}

// Get implements workqueue.TypedInterface.
func (q queue[T]) Get() (item T, shutdown bool) {
	for {
		item, shutdown = q.TypedRateLimitingInterface.Get()
		if shutdown || q.late || q.subjects.enter(q.name(item)) {
			return item, shutdown
		}
		q.Forget(item)
		q.TypedRateLimitingInterface.Done(item)
	}
}

// Done implements workqueue.TypedInterface.
func (q queue[T]) Done(item T) {
	q.subjects.leave(q.name(item))
	q.TypedRateLimitingInterface.Done(item)
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface.
func (q queue[T]) AddRateLimited(item T) {
	if q.periodic || q.subjects.putOff(q.name(item)) {
		q.TypedRateLimitingInterface.AddRateLimited(item)
	} else {
		q.TypedRateLimitingInterface.Add(item)
	}
}

// Forget implements workqueue.TypedRateLimitingInterface.
func (q queue[T]) Forget(item T) {
	q.subjects.settled(q.name(item))
	q.TypedRateLimitingInterface.Forget(item)
}
