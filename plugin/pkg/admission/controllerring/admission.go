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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/controllerring"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/apis/sharding"
	"k8s.io/utils/ptr"
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
	enabled    bool
	client     kubernetes.Interface
	authorizer authorizer.Authorizer
}

var (
	_ admission.ValidationInterface          = &plugin{}
	_ initializer.WantsFeatures              = &plugin{}
	_ initializer.WantsExternalKubeClientSet = &plugin{}
	_ initializer.WantsAuthorizer            = &plugin{}
)

func newPlugin() *plugin {
	return &plugin{Handler: admission.NewHandler(admission.Create, admission.Update, admission.Delete)}
}

// InspectFeatureGates implements initializer.WantsFeatures.
func (p *plugin) InspectFeatureGates(gates featuregate.FeatureGate) {
	p.enabled = gates.Enabled(features.ControllerRing)
}

// SetExternalKubeClientSet implements initializer.WantsExternalKubeClientSet.
func (p *plugin) SetExternalKubeClientSet(client kubernetes.Interface) { p.client = client }

// SetAuthorizer implements initializer.WantsAuthorizer.
func (p *plugin) SetAuthorizer(a authorizer.Authorizer) { p.authorizer = a }

// ValidateInitialization implements admission.InitializationValidator.
func (p *plugin) ValidateInitialization() error {
	if p.client == nil || p.authorizer == nil {
		return errors.New("missing client or authorizer")
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !p.enabled || a.GetResource().GroupResource() != sharding.Resource("controllerinstances") {
		return nil
	}
	instance, _ := a.GetObject().(*sharding.ControllerInstance)
	if a.GetOperation() == admission.Create {
		if instance == nil {
			return unknownRecord(a)
		}
		return p.validateCreate(ctx, a, instance)
	}
	// The ring of a record never changes, and a delete comes with the stored record alone.
	before, ok := a.GetOldObject().(*sharding.ControllerInstance)
	if !ok {
		return unknownRecord(a)
	}
	if err := p.validateRights(ctx, a, before.Spec.Ring); err != nil {
		return err
	}
	if a.GetOperation() != admission.Update || a.GetSubresource() != "" {
		return nil
	}
	if instance == nil {
		return unknownRecord(a)
	}
	if _, named := controllerring.FromContext(ctx); !named {
		switch {
		case !ptr.Equal(instance.Spec.HashKey, before.Spec.HashKey):
			return admission.NewForbidden(a, errors.New("spec.hashKey is written by the instances of the ring only; to move the end of the range, set spec.nextHashKey"))
		case instance.Spec.Donor != before.Spec.Donor:
			return admission.NewForbidden(a, errors.New("spec.donor is written by the instances of the ring only"))
		}
	}
	return p.validateMove(ctx, before, instance)
}

// unknownRecord refuses a write of which the plugin is not told what record it is for. The API
// server sends none; if it did, nobody's rights could be checked.
func unknownRecord(a admission.Attributes) error {
	return apierrors.NewInternalError(fmt.Errorf("the ring of ControllerInstance %q is not known: it came as %T, before as %T", a.GetName(), a.GetObject(), a.GetOldObject()))
}

// validateRights lets those change and delete records of the ring who write in the name of its
// instances, or may work on it or steer it.
func (p *plugin) validateRights(ctx context.Context, a admission.Attributes, ring string) error {
	who := a.GetUserInfo()
	if a.GetSubresource() == "status" {
		allowed, err := controllerring.MayWriteStatus(ctx, p.authorizer, who, ring)
		if allowed || err != nil {
			return err
		}
		return admission.NewForbidden(a, fmt.Errorf("user %q may not write the status of records of ring %q, which is what its instances report: it needs the verb %q on %s.%s %q",
			who.GetName(), ring, fence.Verb, fence.Resource, sharding.GroupName, ring))
	}
	allowed, err := controllerring.MayWriteRecords(ctx, p.authorizer, who, ring)
	if allowed || err != nil {
		return err
	}
	return admission.NewForbidden(a, fmt.Errorf("user %q may not write records of ring %q: it needs the verb %q or %q on %s.%s %q",
		who.GetName(), ring, fence.Verb, controllerring.SteerVerb, fence.Resource, sharding.GroupName, ring))
}

// validateCreate lets those who may work on a ring create records that own nothing.
func (p *plugin) validateCreate(ctx context.Context, a admission.Attributes, instance *sharding.ControllerInstance) error {
	if instance.Spec.HashKey != nil {
		return apierrors.NewInvalid(sharding.Kind("ControllerInstance"), instance.Name, field.ErrorList{
			field.Forbidden(field.NewPath("spec", "hashKey"), "a new instance owns nothing; it asks a donor for a range"),
		})
	}
	return controllerring.Authorize(ctx, p.authorizer, a.GetUserInfo(), instance.Spec.Ring)
}
