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

// Package controllerring tells the handling of a request which instance of a ring
// controller has sent it.
package controllerring

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/ring/fence"
)

type instanceKey struct{}

// WithInstance puts the instance that fence.Header names into the context
// of the request. A header that names none is a bad request. Requests without the
// header pass as they are, and all do with the feature gate ControllerRing off.
func WithInstance(handler http.Handler, s runtime.NegotiatedSerializer) http.Handler {
	if !utilfeature.DefaultFeatureGate.Enabled(features.ControllerRing) {
		return handler
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		values := req.Header[fence.Header]
		if len(values) == 0 {
			handler.ServeHTTP(w, req)
			return
		}
		instance, err := fence.Parse(values[0])
		if err == nil && len(values) > 1 {
			err = fmt.Errorf("%d instances are named, want one", len(values))
		}
		if err != nil {
			responsewriters.ErrorNegotiated(apierrors.NewBadRequest(fmt.Sprintf("header %s: %v", fence.Header, err)), s, schema.GroupVersion{}, w, req)
			return
		}
		handler.ServeHTTP(w, req.WithContext(NewContext(req.Context(), instance)))
	})
}

// NewContext returns ctx with the instance that has sent the request.
func NewContext(ctx context.Context, instance fence.Identity) context.Context {
	return context.WithValue(ctx, instanceKey{}, instance)
}

// FromContext returns the instance that has sent the request, and whether it named one.
func FromContext(ctx context.Context) (fence.Identity, bool) {
	instance, ok := ctx.Value(instanceKey{}).(fence.Identity)
	return instance, ok
}
