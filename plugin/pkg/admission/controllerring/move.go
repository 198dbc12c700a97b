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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/ring"
	"k8s.io/kubernetes/pkg/apis/sharding"
)

// validateMove refuses to move the upper end of an instance's range past its
// neighbours. What a donor names for an instance that joins, which owns no range yet,
// is not checked.
func (p *plugin) validateMove(ctx context.Context, before, instance *sharding.ControllerInstance) error {
	next := instance.Spec.NextHashKey
	if next == nil || before.Spec.HashKey == nil || before.Spec.NextHashKey != nil && *before.Spec.NextHashKey == *next {
		return nil
	}
	view, err := p.read(ctx, instance.Spec.Ring)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("the neighbours of ControllerInstance %s cannot be looked up: %w", instance.Name, err))
	}
	if err := view.CheckMove(instance.Name, *next); err != nil {
		return apierrors.NewInvalid(sharding.Kind("ControllerInstance"), instance.Name, field.ErrorList{
			field.Invalid(field.NewPath("spec", "nextHashKey"), hashkey.Format(*next), err.Error()),
		})
	}
	return nil
}

// read reads a ring with quorum.
func (p *plugin) read(ctx context.Context, name string) (*ring.View, error) {
	list, err := p.client.ShardingV1alpha1().ControllerInstances().List(ctx, metav1.ListOptions{FieldSelector: "spec.ring=" + name})
	if err != nil {
		return nil, err
	}
	views, err := ring.ReadList(list)
	if err != nil {
		return nil, err
	}
	return views.Ring(name), nil
}
