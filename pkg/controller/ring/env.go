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
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/apps"
	"k8s.io/client-go/informers/autoscaling"
	"k8s.io/client-go/informers/batch"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/discovery"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/informers/policy"
	"k8s.io/client-go/informers/scheduling"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/rangewatch"
	"k8s.io/client-go/tools/ring/guard"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
)

// Env is what a controller on a ring is built from.
type Env struct {
	// Gate is what the controller's work passes.
	Gate Gate
	// Client is for the controller's requests. It creates each pod once, and
	// deletes each that the controller reads once.
	Client kubernetes.Interface
	// Informers has the informers that the catalogue lists for the controller. Their handlers
	// are told of the keys that the gate is open for, as a rangewatch.Filter does, or of
	// everything if the catalogue has the resource whole.
	Informers informers.SharedInformerFactory
	// Unread has an informer of every other resource, for a constructor that wants one
	// although the controller does without: it is empty, and never runs.
	Unread informers.SharedInformerFactory

	name     string
	informed map[reflect.Type]*informed
	// unlisted are the types that the controller has asked Informers for, and the catalogue
	// does not list.
	unlisted []string
	subjects *guard.Subjects
	// beside adds subjects that are told when an informer that the controller reads is behind.
	beside func(*guard.Subjects)
}

// informed is an informer as one controller sees it.
type informed struct {
	cache.SharedIndexInformer
	// filter is nil for a resource that is held whole.
	filter *rangewatch.Filter
	taken  bool
}

// NewEnv returns what the controller that the catalogue describes is built from: client sends
// its requests, and its informers are among those of its ring.
func NewEnv(ctx context.Context, described catalogue.Controller, shared *Informers, gate Gate, client kubernetes.Interface) (*Env, error) {
	env := &Env{
		Gate:     gate,
		name:     described.Name,
		informed: map[reflect.Type]*informed{},
	}
	requests := once{Interface: client, gate: gate}
	var reads []*readers
	for _, read := range described.Reads {
		if read.Feature != "" && !utilfeature.DefaultFeatureGate.Enabled(featuregate.Feature(read.Feature)) {
			continue
		}
		informer, source, err := shared.of(ctx, read)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", described.Name, err)
		}
		reads = append(reads, shared.readers[read])
		seen := &informed{SharedIndexInformer: ByUID(informer)}
		if source != nil {
			seen.filter = source.NewFilter()
			seen.SharedIndexInformer = seen.filter.Informer(seen.SharedIndexInformer)
		}
		path, _ := sharding.ParseKeyPath(read.Path) // Whole is worked on by own keys
		if _, ok := resources[read.Resource].object.(*v1.Pod); ok {
			requests.pods, requests.path = informer.GetStore(), path
		}
		if read.Resource == described.Workloads {
			env.subjects = guard.NewSubjects(gate, informer.GetIndexer(), path)
			if err := env.subjects.HearOf(seen); err != nil {
				return nil, fmt.Errorf("%s: %w", described.Name, err)
			}
			seen.SharedIndexInformer = env.subjects.Informer(seen.SharedIndexInformer)
		}
		env.informed[reflect.TypeOf(resources[read.Resource].object)] = seen
	}
	env.Client = requests
	if env.subjects == nil {
		return nil, fmt.Errorf("%s: the catalogue of rings does not list its own workloads, %s, among what it reads", described.Name, described.Workloads)
	}
	env.beside = func(s *guard.Subjects) {
		shared.subjects = append(shared.subjects, s)
		for _, r := range reads {
			r.subjects = append(r.subjects, s)
		}
	}
	env.beside(env.subjects)
	env.Informers = factory{informerFor: env.informerFor}
	env.Unread = factory{informerFor: newUnread}
	return env, nil
}

// Enter takes what the item of that name stands for through the gate, for a controller with
// Config.Late. It returns false if the controller may not work on it now: when it may, it is queued
// again. Either way the controller has the item until it is Done.
func (e *Env) Enter(name string) bool { return e.subjects.Enter(name) }

// Has says whether the caches have the object with that name and UID, of those that the controller
// works on. The lister does not show it while another of that name is worked on.
func (e *Env) Has(name cache.ObjectName, uid types.UID) bool {
	return e.subjects.Has(name.String(), uid)
}

func (e *Env) informerFor(object runtime.Object) cache.SharedIndexInformer {
	seen, ok := e.informed[reflect.TypeOf(object)]
	if !ok {
		e.unlisted = append(e.unlisted, fmt.Sprintf("%T", object))
		return newUnread(object)
	}
	seen.taken = true
	return seen
}

// check says whether the controller has taken the informers that the catalogue lists for it,
// and no other.
func (e *Env) check() error {
	var errs []error
	for _, t := range e.unlisted {
		errs = append(errs, fmt.Errorf("%s reads %s, which the catalogue of rings does not list for it", e.name, t))
	}
	for t, seen := range e.informed {
		if !seen.taken {
			errs = append(errs, fmt.Errorf("%s does not read %s, which the catalogue of rings lists for it", e.name, t))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return slices.Compare([]byte(a.Error()), []byte(b.Error())) })
	return errors.Join(errs...)
}

// factory gives out informers of one's own. It has the API groups of the catalogue.
type factory struct {
	informers.SharedInformerFactory
	informerFor func(runtime.Object) cache.SharedIndexInformer
}

// InformerFor implements informers.SharedInformerFactory.
func (f factory) InformerFor(object runtime.Object, _ internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	return f.informerFor(object)
}

// Apps implements informers.SharedInformerFactory.
func (f factory) Apps() apps.Interface { return apps.New(f, metav1.NamespaceAll, nil) }

// Autoscaling implements informers.SharedInformerFactory.
func (f factory) Autoscaling() autoscaling.Interface {
	return autoscaling.New(f, metav1.NamespaceAll, nil)
}

// Batch implements informers.SharedInformerFactory.
func (f factory) Batch() batch.Interface { return batch.New(f, metav1.NamespaceAll, nil) }

// Core implements informers.SharedInformerFactory.
func (f factory) Core() core.Interface { return core.New(f, metav1.NamespaceAll, nil) }

// Discovery implements informers.SharedInformerFactory.
func (f factory) Discovery() discovery.Interface { return discovery.New(f, metav1.NamespaceAll, nil) }

// Policy implements informers.SharedInformerFactory.
func (f factory) Policy() policy.Interface { return policy.New(f, metav1.NamespaceAll, nil) }

// Scheduling implements informers.SharedInformerFactory.
func (f factory) Scheduling() scheduling.Interface {
	return scheduling.New(f, metav1.NamespaceAll, nil)
}

// unread is an informer that is empty and never runs, so that nobody waits for it.
type unread struct{ cache.SharedIndexInformer }

func newUnread(object runtime.Object) cache.SharedIndexInformer {
	return unread{cache.NewSharedIndexInformer(&cache.ListWatch{}, object, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})}
}

// HasSynced implements cache.SharedInformer.
func (unread) HasSynced() bool { return true }
