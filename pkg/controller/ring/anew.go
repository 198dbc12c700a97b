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
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

// ByUID returns informer as its handlers are to see it: they are told of an object that was made
// anew under its name as of one that is gone and one that has come, where the informer says that it
// was updated, as after a relist. Not every controller looks at UIDs, or at updates at all.
func ByUID(informer cache.SharedIndexInformer) cache.SharedIndexInformer { return anew{informer} }

type anew struct{ cache.SharedIndexInformer }

// AddEventHandler implements cache.SharedInformer.
func (i anew) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandler(byUID{h})
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (i anew) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, resyncPeriod time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(byUID{h}, resyncPeriod)
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (i anew) AddEventHandlerWithOptions(h cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithOptions(byUID{h}, options)
}

// byUID is an event handler for which objects of one name and different UIDs are different.
type byUID struct{ cache.ResourceEventHandler }

// OnUpdate implements cache.ResourceEventHandler.
func (h byUID) OnUpdate(oldObj, newObj any) {
	was, err := meta.Accessor(oldObj)
	is, errNow := meta.Accessor(newObj)
	if err != nil || errNow != nil || was.GetUID() == is.GetUID() {
		h.ResourceEventHandler.OnUpdate(oldObj, newObj)
		return
	}
	// What has not changed since its range was opened has the revision of before, and nothing but a
	// tombstone says that it has gone since.
	key, _ := cache.MetaNamespaceKeyFunc(oldObj)
	h.OnDelete(cache.DeletedFinalStateUnknown{Key: key, Obj: oldObj})
	h.OnAdd(newObj, false)
}
