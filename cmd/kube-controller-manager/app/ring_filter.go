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

package app

import (
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/apps"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/rangewatch"
)

// filteredInformers are the informers of a ring as one of its controllers sees them: its
// event handlers are told of the keys for which its door is open.
type filteredInformers struct {
	informers.SharedInformerFactory
	filters map[reflect.Type]*rangewatch.Filter
	// used are the filters that informers were given out with.
	used map[*rangewatch.Filter]bool
}

func newFilteredInformers(shared informers.SharedInformerFactory) *filteredInformers {
	return &filteredInformers{SharedInformerFactory: shared, filters: map[reflect.Type]*rangewatch.Filter{}, used: map[*rangewatch.Filter]bool{}}
}

// add has the handlers of objects of that type, whose informer source feeds, pass a filter.
func (f *filteredInformers) add(object runtime.Object, source *rangewatch.Source) {
	f.filters[reflect.TypeOf(object)] = source.NewFilter()
}

// InformerFor implements informers.SharedInformerFactory.
func (f *filteredInformers) InformerFor(object runtime.Object, newInformer internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	informer := f.SharedInformerFactory.InformerFor(object, newInformer)
	if filter := f.filters[reflect.TypeOf(object)]; filter != nil {
		f.used[filter] = true
		return filter.Informer(informer)
	}
	return informer
}

// bypassed returns the types whose informers were not taken from here, or not at all: those of an
// API group that has no method below come from the embedded factory, without a filter.
func (f *filteredInformers) bypassed() []string {
	var types []string
	for of, filter := range f.filters {
		if !f.used[filter] {
			types = append(types, of.String())
		}
	}
	slices.Sort(types)
	return types
}

// Apps implements informers.SharedInformerFactory.
func (f *filteredInformers) Apps() apps.Interface { return apps.New(f, metav1.NamespaceAll, nil) }

// Core implements informers.SharedInformerFactory.
func (f *filteredInformers) Core() core.Interface { return core.New(f, metav1.NamespaceAll, nil) }

// filteredController opens the filters of a controller's handlers with its door.
type filteredController struct {
	ringController
	informers *filteredInformers
}

// Prepare implements member.Controller.
func (c filteredController) Prepare(ranges hashkey.Ranges) {
	for _, filter := range c.informers.filters {
		filter.Open(ranges)
	}
	c.ringController.Prepare(ranges)
}

// Released implements member.Controller.
func (c filteredController) Released(ranges hashkey.Ranges) {
	c.ringController.Released(ranges)
	for _, filter := range c.informers.filters {
		filter.Shut(ranges)
	}
}
