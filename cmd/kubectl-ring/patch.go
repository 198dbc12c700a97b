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

package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/ring"
)

// specFields are fields of a spec by their names, and what they are to be; nil: unset.
type specFields map[string]any

// writeSpec sets fields of the instance's spec, if the registration is the one that was read. With
// asRead the whole spec must be as it was read. News in the status may have come meanwhile.
func writeSpec(ctx context.Context, client kubernetes.Interface, record ring.Record, fields specFields, asRead bool, options metav1.PatchOptions) error {
	type operation map[string]any
	patch := []operation{{"op": "test", "path": "/metadata/uid", "value": record.UID}}
	if asRead {
		patch = append(patch, operation{"op": "test", "path": "/metadata/generation", "value": record.Generation})
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		patch = append(patch, operation{"op": "add", "path": "/spec/" + field, "value": fields[field]})
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	// A server that does not know a field would drop it, and say that all is well.
	options.FieldValidation = metav1.FieldValidationStrict
	_, err = client.ShardingV1alpha1().ControllerInstances().Patch(ctx, record.Name, types.JSONPatchType, body, options)
	return err
}

// isGone says whether a write failed because the registration that it was for has ended.
func isGone(err error) bool {
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		return false
	}
	// A JSON patch whose test fails is invalid, but for no field.
	details := status.ErrStatus.Details
	return apierrors.IsNotFound(err) || apierrors.IsInvalid(err) && (details == nil || len(details.Causes) == 0)
}
