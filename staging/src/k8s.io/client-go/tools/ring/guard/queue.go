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

package guard

import (
	"k8s.io/client-go/util/workqueue"
)

// Queue is a controller's queue behind its gate: who gets an item from it, unless it is late, may
// work on the object that it stands for, until Done.
type Queue[T comparable] struct {
	// TypedRateLimitingInterface is the queue that has no gate. Required.
	workqueue.TypedRateLimitingInterface[T]
	// Subjects are the objects that the items stand for, and Name returns the name of an item's.
	// Required.
	Subjects *Subjects
	Name     func(T) string
	// Late says that the controller takes items long before it works on them: it asks
	// Subjects.Enter itself. Default: who gets an item works on it.
	Late bool
	// Periodic says that AddRateLimited does not follow a failure. Default: it does.
	Periodic bool
}

// Get implements workqueue.TypedInterface.
func (q Queue[T]) Get() (item T, shutdown bool) {
	for {
		item, shutdown = q.TypedRateLimitingInterface.Get()
		if shutdown || q.Late || q.Subjects.Enter(q.Name(item)) {
			return item, shutdown
		}
		q.Forget(item)
		q.TypedRateLimitingInterface.Done(item)
	}
}

// Done implements workqueue.TypedInterface.
func (q Queue[T]) Done(item T) {
	q.Subjects.Leave(q.Name(item))
	q.TypedRateLimitingInterface.Done(item)
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface.
func (q Queue[T]) AddRateLimited(item T) {
	if q.Periodic || q.Subjects.putOff(q.Name(item)) {
		q.TypedRateLimitingInterface.AddRateLimited(item)
	} else {
		q.TypedRateLimitingInterface.Add(item)
	}
}

// Forget implements workqueue.TypedRateLimitingInterface.
func (q Queue[T]) Forget(item T) {
	q.Subjects.settled(q.Name(item))
	q.TypedRateLimitingInterface.Forget(item)
}
