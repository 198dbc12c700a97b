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

package controllerring

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/controllerring"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/identity"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/sharding"
	"k8s.io/utils/clock"
)

// PluginName is the name of the admission plugin.
const PluginName = "ControllerRing"

// workloads has what each ring controller works on. Objects of that resource are
// governed by their own key, all others by that of their controller.
var workloads = map[string]schema.GroupResource{
	"replicaset-controller": apps.Resource("replicasets"),
}

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) {
		return newPlugin(), nil
	})
}

type plugin struct {
	*admission.Handler
	enabled bool
	client  kubernetes.Interface
	drained <-chan struct{}

	registry *registry
	start    sync.Once
}

var (
	_ admission.ValidationInterface          = &plugin{}
	_ initializer.WantsFeatures              = &plugin{}
	_ initializer.WantsExternalKubeClientSet = &plugin{}
	_ initializer.WantsDrainedNotification   = &plugin{}
)

func newPlugin() *plugin {
	registerMetrics()
	return &plugin{
		Handler:  admission.NewHandler(admission.Create, admission.Update, admission.Delete),
		registry: newRegistry(clock.RealClock{}),
	}
}

// InspectFeatureGates implements initializer.WantsFeatures.
func (p *plugin) InspectFeatureGates(gates featuregate.FeatureGate) {
	p.enabled = gates.Enabled(features.ControllerRing)
}

// SetExternalKubeClientSet implements initializer.WantsExternalKubeClientSet.
func (p *plugin) SetExternalKubeClientSet(client kubernetes.Interface) { p.client = client }

// SetDrainedNotification implements initializer.WantsDrainedNotification.
func (p *plugin) SetDrainedNotification(drained <-chan struct{}) { p.drained = drained }

// ValidateInitialization implements admission.InitializationValidator.
func (p *plugin) ValidateInitialization() error {
	if p.client == nil || p.drained == nil {
		return errors.New("missing client or drained notification")
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !p.enabled {
		return nil
	}
	resource := a.GetResource().GroupResource()
	if resource == sharding.Resource("controllerinstances") {
		p.follow()
		return p.validateMove(ctx, a)
	}
	instance, named := controllerring.FromContext(ctx)
	if !named || resource.Resource == "events" && (resource.Group == "" || resource.Group == "events.k8s.io") {
		return nil
	}
	p.follow()
	if view, controller, alive := p.registry.trusted(instance); alive && judge(view, controller, instance, a) == nil {
		return nil
	}
	quorumReads.WithContext(ctx).Inc()
	views, err := p.registry.read(ctx, p.client.ShardingV1alpha1().ControllerInstances())
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("ControllerInstance %s cannot be looked up, so its write is not let in: %w", instance.Name, err))
	}
	view, controller := find(views, instance.Name)
	if refusal := judge(view, controller, instance, a); refusal != nil {
		refusals.WithContext(ctx).WithLabelValues(refusal.reason).Inc()
		conflict := apierrors.NewConflict(resource, a.GetName(), refusal)
		conflict.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: ring.CauseFenced, Message: refusal.message}}
		return conflict
	}
	return nil
}

// follow follows the registry from the first write to it, or by one of its
// instances, on: an API server without rings has nothing to follow.
func (p *plugin) follow() {
	p.start.Do(func() { p.registry.follow(p.client.ShardingV1alpha1().ControllerInstances(), p.drained) })
}

// refusal says why a write is not let in.
type refusal struct{ reason, message string }

func (r *refusal) Error() string { return r.message }

// judge returns nil if the instance may make the write in that view of its
// controller's ring.
func judge(view *ring.View, controller string, instance identity.Identity, a admission.Attributes) *refusal {
	record, ok := view.Get(instance.Name)
	if !ok {
		return &refusal{"gone", fmt.Sprintf("ControllerInstance %s (UID %s) is gone; another instance may work on the object now", instance.Name, instance.UID)}
	}
	if record.UID != instance.UID {
		return &refusal{"replaced", fmt.Sprintf("ControllerInstance %s has UID %s, the write comes from its predecessor with UID %s", instance.Name, record.UID, instance.UID)}
	}
	keys, n := governing(controller, a)
	if n == 0 {
		return nil
	}
	owned := view.Owned(instance.Name)
	for _, key := range keys[:n] {
		if owned.Contains(key) {
			continue
		}
		owner, ok := view.Owner(key)
		if !ok {
			owner.Name = "nobody"
		}
		return &refusal{"not_owner", fmt.Sprintf("hash key %016x, which governs the object, belongs to %s; ControllerInstance %s owns %s", key, owner.Name, instance.Name, ranges(owned))}
	}
	return nil
}

// governing returns the keys, n of them, that the instance must own to make the
// write.
func governing(controller string, a admission.Attributes) (keys [2]int64, n int) {
	workload, known := workloads[controller]
	if !known {
		// What that controller works on is not known, so neither is whose key counts.
		return keys, 0
	}
	own := a.GetResource().GroupResource() == workload
	for _, object := range [...]runtime.Object{a.GetOldObject(), a.GetObject()} {
		if object == nil {
			continue
		}
		accessor, err := meta.Accessor(object)
		if err != nil {
			continue // such as the options of a deletion: no metadata, no key
		}
		key, ok := metav1.HashKeyOf(accessor), true
		if !own {
			key, ok = metav1.HashKeyOfController(accessor)
		}
		if ok {
			keys[n] = key
			n++
		}
	}
	return keys, n
}
