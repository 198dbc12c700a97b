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

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/ring"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/pkg/ringtable"
)

// maxNames is how many names of instances an error lists.
const maxNames = 20

// Present returns the rings that have instances, those of these names if there are any, and the
// names of all that have. It fails for a name that Known does not know.
func Present(ctx context.Context, client kubernetes.Interface, names []string) (rings []*ringtable.Ring, present []string, err error) {
	all, err := ringtable.List(ctx, client)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range all {
		if len(r.Instances) == 0 {
			continue
		}
		present = append(present, r.Name)
		if len(names) == 0 || slices.Contains(names, r.Name) {
			rings = append(rings, r)
		}
	}
	return rings, present, Known(names, present)
}

// Ring returns the ring of that name, and fails if it has no instance.
func Ring(ctx context.Context, client kubernetes.Interface, name string) (*ringtable.Ring, error) {
	rings, present, err := Present(ctx, client, nil)
	if err != nil {
		return nil, err
	}
	if i := slices.Index(present, name); i >= 0 {
		return rings[i], nil
	}
	return nil, fmt.Errorf("ring %s has no instance; %s", name, WithInstances(present))
}

// Known fails for a ring that has no instance and is none of kube-controller-manager's.
func Known(names, present []string) error {
	for _, name := range names {
		if _, described := catalogue.RingNamed(name); described || slices.Contains(present, name) {
			continue
		}
		return fmt.Errorf("there is no ring %s, and no such command; %s", name, WithInstances(present))
	}
	return nil
}

// WithInstances says which rings have instances.
func WithInstances(present []string) string {
	if len(present) == 0 {
		return "no ring has instances"
	}
	return "rings with instances: " + strings.Join(present, ", ")
}

// Find returns the record of that name, and the view of its ring.
func Find(ctx context.Context, client kubernetes.Interface, name string) (ring.Record, *ring.View, error) {
	rings, err := ringtable.List(ctx, client)
	if err != nil {
		return ring.Record{}, nil, err
	}
	var names []string
	for _, r := range rings {
		if record, ok := r.View().Get(name); ok {
			return record, r.View(), nil
		}
		for _, i := range r.Instances {
			names = append(names, i.Name)
		}
	}
	if len(names) == 0 {
		return ring.Record{}, nil, fmt.Errorf("there is no ControllerInstance %q: no ring has instances", name)
	}
	more := ""
	if len(names) > maxNames {
		more = "; kubectl ring lists them"
	}
	return ring.Record{}, nil, fmt.Errorf("there is no ControllerInstance %q; there are %s%s", name, FirstOf(names, maxNames), more)
}

// FirstOf returns the first most of the names, and how many more there are, for people.
func FirstOf(names []string, most int) string {
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// IsRefused says whether a server's answer would be the same later. Other failures may end, as when
// a server restarts.
func IsRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err)
}

// Fields are fields of a spec by their names, and what they are to be; nil: unset.
type Fields map[string]any

// Write sets fields of the instance's spec, if the registration is the one that was read. With
// asRead the whole spec must be as it was read. News in the status may have come meanwhile.
func Write(ctx context.Context, client kubernetes.Interface, record ring.Record, fields Fields, asRead bool, options metav1.PatchOptions) error {
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

// Set sets fields of the instance's spec, and says what to do if it is gone.
func Set(ctx context.Context, client kubernetes.Interface, record ring.Record, fields Fields) error {
	err := Write(ctx, client, record, fields, false, metav1.PatchOptions{})
	if IsGone(err) {
		return fmt.Errorf("%s is gone meanwhile: look at the ring with kubectl ring %s, and try again (%w)", record.Name, record.Ring, err)
	}
	return err
}

// IsGone says whether a write failed because the registration that it was for has ended.
func IsGone(err error) bool {
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		return false
	}
	// A JSON patch whose test fails is invalid, but for no field.
	details := status.ErrStatus.Details
	return apierrors.IsNotFound(err) || apierrors.IsInvalid(err) && (details == nil || len(details.Causes) == 0)
}
