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

package controllerinstance

import (
	"context"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/controllerring"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/sharding"
	"k8s.io/kubernetes/pkg/apis/sharding/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

type strategy struct {
	rest.DeclarativeValidation
	names.NameGenerator
}

// Strategy holds the rules for creating ControllerInstances and for updating their spec or
// metadata.
var Strategy = strategy{rest.DeclarativeValidation{Scheme: legacyscheme.Scheme}, names.SimpleNameGenerator}

var (
	_ = rest.ResetFieldsStrategy(Strategy)
	_ = rest.RESTGracefulDeleteStrategy(Strategy)
)

// NamespaceScoped returns false: a ring spans the cluster.
func (strategy) NamespaceScoped() bool { return false }

// GetResetFields returns the fields that clients cannot set on this endpoint.
func (strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{
		"sharding.k8s.io/v1alpha1": fieldpath.NewSet(fieldpath.MakePathOrDie("status")),
	}
}

// PrepareForCreate clears the status: the instance reports it later.
func (strategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	instance := obj.(*sharding.ControllerInstance)
	instance.Status = sharding.ControllerInstanceStatus{}
	instance.Generation = 1
}

// PrepareForUpdate keeps the status, and raises the generation if the spec changes. A next key that
// somebody else than an instance of a ring sets is pinned. Where the boundary is pinned already, it
// stays so until it gets there: a move may be called off.
func (strategy) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	instance, oldInstance := obj.(*sharding.ControllerInstance), old.(*sharding.ControllerInstance)
	instance.Status = oldInstance.Status
	_, byInstance := controllerring.FromContext(ctx)
	next, oldNext := instance.Spec.NextHashKey, oldInstance.Spec.NextHashKey
	pinned := instance.Spec.PinnedHashKey != nil && ptr.Equal(instance.Spec.PinnedHashKey, oldInstance.Spec.HashKey)
	switch {
	case next != nil && !ptr.Equal(next, oldNext) && !byInstance && !pinned:
		instance.Spec.PinnedHashKey = ptr.To(*next)
	case oldNext != nil && ptr.Equal(instance.Spec.HashKey, oldNext) && pinned:
		instance.Spec.PinnedHashKey = ptr.To(*oldNext)
	}
	if !apiequality.Semantic.DeepEqual(instance.Spec, oldInstance.Spec) {
		instance.Generation = oldInstance.Generation + 1
	}
}

// Validate validates a new ControllerInstance.
func (strategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return validation.ValidateControllerInstance(obj.(*sharding.ControllerInstance))
}

// WarningsOnCreate returns no warnings.
func (strategy) WarningsOnCreate(ctx context.Context, obj runtime.Object) []string { return nil }

// Canonicalize changes nothing.
func (strategy) Canonicalize(obj runtime.Object) {}

// AllowCreateOnUpdate returns false: an instance whose record is gone has lost its range, and
// must join again as a new one.
func (strategy) AllowCreateOnUpdate(ctx context.Context) bool { return false }

// ValidateUpdate validates a change of the spec or the metadata. What others have written into the
// metadata keeps no instance from its write.
func (strategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	instance, oldInstance := obj.(*sharding.ControllerInstance), old.(*sharding.ControllerInstance)
	errs := validation.ValidateControllerInstanceUpdate(instance, oldInstance)
	if _, byInstance := controllerring.FromContext(ctx); !byInstance {
		errs = append(errs, validation.ValidateControllerInstanceMetadataUpdate(instance, oldInstance)...)
	}
	return errs
}

// WarningsOnUpdate returns no warnings.
func (strategy) WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string { return nil }

// AllowUnconditionalUpdate returns false: every write carries the resource version that it was
// decided on.
func (strategy) AllowUnconditionalUpdate(ctx context.Context) bool { return false }

// CheckGracefulDelete makes the delete of an instance that owns a range a request to leave:
// its record is marked, for as long as its lease, whatever grace period other than 0 was
// asked for. The instance drains, and deletes the record itself. An instance that owns
// nothing is deleted at once, as is any with a grace period of 0.
func (strategy) CheckGracefulDelete(ctx context.Context, obj runtime.Object, options *metav1.DeleteOptions) bool {
	spec := &obj.(*sharding.ControllerInstance).Spec
	if spec.HashKey == nil || options.GracePeriodSeconds != nil && *options.GracePeriodSeconds == 0 {
		return false
	}
	options.GracePeriodSeconds = ptr.To(int64(spec.LeaseDurationSeconds))
	return true
}

type statusStrategy struct {
	strategy
}

// StatusStrategy holds the rules for updating the status of ControllerInstances.
var StatusStrategy = statusStrategy{Strategy}

var _ = rest.ResetFieldsStrategy(StatusStrategy)

// GetResetFields returns the fields that clients cannot set on this endpoint.
func (statusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{
		"sharding.k8s.io/v1alpha1": fieldpath.NewSet(fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("metadata")),
	}
}

// PrepareForUpdate keeps everything but the status, and sets what no client can: since when the
// phase is what it is, and whether a presence has ended since the last change.
func (statusStrategy) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	instance, oldInstance := obj.(*sharding.ControllerInstance), old.(*sharding.ControllerInstance)
	metav1.ResetObjectMetaForStatus(&instance.ObjectMeta, &oldInstance.ObjectMeta)
	instance.Spec = oldInstance.Spec
	instance.Status.PhaseSince = oldInstance.Status.PhaseSince
	if instance.Status.Phase != oldInstance.Status.Phase {
		instance.Status.PhaseSince = ptr.To(metav1.Now())
	}
	instance.Status.PresenceEnded = oldInstance.Status.PresenceEnded
	if !apiequality.Semantic.DeepEqual(instance.Status, oldInstance.Status) {
		// The instance lives.
		instance.Status.PresenceEnded = nil
	}
}

// ValidateUpdate validates a change of the status.
func (statusStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateControllerInstanceStatusUpdate(obj.(*sharding.ControllerInstance), old.(*sharding.ControllerInstance))
}

// GetAttrs returns the labels of a ControllerInstance, and the fields that a selector may
// name: metadata.name and spec.ring. It returns an error for any other type.
func GetAttrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	instance, ok := obj.(*sharding.ControllerInstance)
	if !ok {
		return nil, nil, fmt.Errorf("%T is not a ControllerInstance", obj)
	}
	selectable := generic.AddObjectMetaFieldsSet(fields.Set{"spec.ring": instance.Spec.Ring}, &instance.ObjectMeta, false)
	return instance.Labels, selectable, nil
}

// Match returns a predicate for the ControllerInstances that match both selectors.
func Match(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
	return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: GetAttrs}
}
