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
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/tools/ring"
	"k8s.io/kubernetes/pkg/apis/sharding"
)

// validateMove refuses to move the upper end of an instance's range to where its
// neighbours do not leave it. What a donor names for a newcomer, which owns no
// range yet, is the donor's affair.
func (p *plugin) validateMove(ctx context.Context, a admission.Attributes) error {
	if a.GetOperation() != admission.Update || a.GetSubresource() != "" {
		return nil
	}
	instance, ok := a.GetObject().(*sharding.ControllerInstance)
	if !ok {
		return nil
	}
	before, ok := a.GetOldObject().(*sharding.ControllerInstance)
	if !ok {
		return nil
	}
	next := instance.Spec.NextHashKey
	if next == nil || before.Spec.HashKey == nil || before.Spec.NextHashKey != nil && *before.Spec.NextHashKey == *next {
		return nil
	}
	views, err := p.registry.read(ctx, p.client.ShardingV1alpha1().ControllerInstances())
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("the neighbours of ControllerInstance %s cannot be looked up: %w", instance.Name, err))
	}
	view, _ := find(views, instance.Name)
	if message := refuseMove(view, instance.Name, *next); message != "" {
		return apierrors.NewInvalid(sharding.Kind("ControllerInstance"), instance.Name, field.ErrorList{
			field.Invalid(field.NewPath("spec", "nextHashKey"), *next, message),
		})
	}
	return nil
}

// refuseMove says why the upper end of the instance's range cannot be moved to
// next, nothing if it can.
func refuseMove(view *ring.View, name string, next int64) string {
	self, ok := view.Get(name)
	if !ok || view.Owned(name).Empty() {
		return "must be unset: the instance owns no range in its ring"
	}
	predecessor, successor, ok := view.Neighbours(name)
	if !ok {
		return "must be unset: the instance owns all hash keys, there is no other to move any to or from"
	}
	after, before := *predecessor.Key, *successor.Key
	if next != *self.Key && next != before && hashkey.Between(after, before).Contains(next) {
		return ""
	}
	seam := ""
	if after >= before {
		seam = " (going on from the highest hash key to 0)"
	}
	return fmt.Sprintf("must lie in (%d, %d), in hexadecimal (%016x, %016x)%s, between the hash keys of its neighbours %s and %s, and must not be hashKey itself, %d",
		after, before, after, before, seam, predecessor.Name, successor.Name, *self.Key)
}

// ranges returns what an instance owns for people to read.
func ranges(owned hashkey.Ranges) string {
	if owned.Empty() {
		return "nothing"
	}
	return owned.String()
}
