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
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/controllerring"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/apis/sharding"
	catalogue "k8s.io/kubernetes/pkg/controller/ring"
	"k8s.io/utils/clock"
)

// PluginName is the name of the admission plugin.
const PluginName = "ControllerRing"

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
	if view, alive := p.registry.trusted(instance); alive {
		switch refusal := judge(view, instance, a); {
		case refusal == nil:
			return nil
		case refusal.reason == reasonUnknown:
			// The registry cannot say otherwise.
			return refuse(ctx, a, refusal)
		}
	}
	quorumReads.WithContext(ctx).Inc()
	views, err := p.registry.read(ctx, p.client.ShardingV1alpha1().ControllerInstances())
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("ControllerInstance %s cannot be looked up, so its write is refused: %w", instance.Name, err))
	}
	if refusal := judge(views.Of(instance.Name), instance, a); refusal != nil {
		return refuse(ctx, a, refusal)
	}
	return nil
}

// refuse counts the refusal and returns the answer.
func refuse(ctx context.Context, a admission.Attributes, r *refusal) error {
	refusals.WithContext(ctx).WithLabelValues(r.reason).Inc()
	conflict := apierrors.NewConflict(a.GetResource().GroupResource(), a.GetName(), r)
	conflict.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: fence.CauseFenced, Message: r.message}}
	return conflict
}

// follow starts to follow the registry, at the first write to it or by one of its
// instances: an API server without rings has nothing to follow.
func (p *plugin) follow() {
	p.start.Do(func() { p.registry.follow(p.client.ShardingV1alpha1().ControllerInstances(), p.drained) })
}

// The reasons of a refusal.
const (
	reasonGone     = "gone"
	reasonReplaced = "replaced"
	reasonNotOwner = "not_owner"
	reasonUnknown  = "unknown"
)

// refusal says why a write is not let in.
type refusal struct{ reason, message string }

func (r *refusal) Error() string { return r.message }

// judge returns nil if the instance may make the write in that view of its ring.
func judge(view *ring.View, instance fence.Identity, a admission.Attributes) *refusal {
	record, ok := view.Get(instance.Name)
	if !ok {
		return &refusal{reasonGone, fmt.Sprintf("ControllerInstance %s (UID %s) is gone; another instance may work on the object now", instance.Name, instance.UID)}
	}
	if record.UID != instance.UID {
		return &refusal{reasonReplaced, fmt.Sprintf("ControllerInstance %s has UID %s; the write comes from its predecessor with UID %s", instance.Name, record.UID, instance.UID)}
	}
	resource := a.GetResource().GroupResource()
	controller, _ := catalogue.ControllerNamed(record.Controller)
	governedBy, covered := controller.Governing(resource)
	if !covered {
		return &refusal{reasonUnknown, fmt.Sprintf("no hash key is known to govern what controller %q writes to %s, so ControllerInstance %s must not write it; the controllers that can are those of kube-controller-manager that run on a ring", record.Controller, resource, instance.Name)}
	}
	keys, n := governing(governedBy, a)
	owned := view.Owned(instance.Name)
	for _, key := range keys[:n] {
		if owned.Contains(key) {
			continue
		}
		owner, ok := view.Owner(key)
		if !ok {
			owner.Name = "nobody"
		}
		return &refusal{reasonNotOwner, fmt.Sprintf("hash key %s, which governs the object, belongs to %s; ControllerInstance %s owns %s", hashkey.Format(key), owner.Name, instance.Name, owned)}
	}
	return nil
}

// governing returns the keys, n of them, that the instance must own to make the
// write: those of the object before and after it. An object without metadata, such as
// the options of a deletion, has none.
func governing(by catalogue.GovernedBy, a admission.Attributes) (keys [2]int64, n int) {
	for _, object := range [...]runtime.Object{a.GetOldObject(), a.GetObject()} {
		if object == nil {
			continue
		}
		accessor, err := meta.Accessor(object)
		if err != nil {
			continue
		}
		if key, ok := by.KeyOf(accessor); ok {
			keys[n] = key
			n++
		}
	}
	return keys, n
}
