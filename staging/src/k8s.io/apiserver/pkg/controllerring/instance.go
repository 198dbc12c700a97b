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

// Package controllerring tells the handling of a request in the name of which instance of a
// ring it was sent.
package controllerring

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/ring/fence"
)

// AuditAnnotation is the annotation of an audit event that says which instance a request named. Its
// value is that of fence.Header. Users and addresses do not tell that: all instances of a ring may
// share them.
const AuditAnnotation = "sharding.k8s.io/controller-instance"

type (
	instanceKey struct{}
	presenceKey struct{}
)

// WithInstance puts the instance that fence.Header names into the context of a request that
// changes something, if the user may work on the instance's ring; 403 otherwise, before
// anything is read. The answer repeats the header, so that the instance knows that it was
// judged, and the audit log has it (AuditAnnotation). So does that to a presence, where
// tracksPresence is set. A header that names none is a bad request. Requests without the header and
// those that change nothing pass as they are, and all do with the feature gate ControllerRing off.
func WithInstance(handler http.Handler, a authorizer.UnconditionalAuthorizer, s runtime.NegotiatedSerializer, tracksPresence bool) http.Handler {
	if !utilfeature.DefaultFeatureGate.Enabled(features.ControllerRing) {
		return handler
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		values := req.Header[fence.Header]
		present := tracksPresence && len(values) > 0 && isPresence(req)
		if len(values) == 0 || !present && !changes(req.Context()) {
			handler.ServeHTTP(w, req)
			return
		}
		instance, err := parse(req.Context(), a, values)
		if err == nil && present {
			err = checkPresence(req, instance)
		}
		if err != nil {
			responsewriters.ErrorNegotiated(err, s, schema.GroupVersion{}, w, req)
			return
		}
		audit.AddAuditAnnotation(req.Context(), AuditAnnotation, instance.String())
		w.Header().Set(fence.Header, instance.String())
		ctx := NewContext(req.Context(), instance)
		if present {
			why := req.Header.Get(fence.PresenceHeader)
			w.Header().Set(fence.PresenceHeader, why)
			ctx = context.WithValue(ctx, presenceKey{}, presence{why, req.Context()})
		}
		handler.ServeHTTP(w, req.WithContext(ctx))
	})
}

// changes says whether the request can change an object.
func changes(ctx context.Context) bool {
	info, ok := request.RequestInfoFrom(ctx)
	if !ok || !info.IsResourceRequest {
		return false
	}
	switch info.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// isPresence says whether the request is to be an instance's presence: a watch of one record.
func isPresence(req *http.Request) bool {
	info, ok := request.RequestInfoFrom(req.Context())
	return ok && info.Verb == "watch" && info.APIGroup == shardingv1alpha1.GroupName && info.Resource == "controllerinstances" &&
		len(req.Header[fence.PresenceHeader]) > 0
}

// checkPresence returns the answer to a request that cannot be the presence of that instance.
func checkPresence(req *http.Request, instance fence.Identity) error {
	switch why := req.Header.Get(fence.PresenceHeader); why {
	case fence.PresenceFirst, fence.PresenceLost, fence.PresenceNext:
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("header %s: %q says not why the presence is opened, want %s, %s or %s", fence.PresenceHeader, why, fence.PresenceFirst, fence.PresenceLost, fence.PresenceNext))
	}
	if info, _ := request.RequestInfoFrom(req.Context()); info.Name != instance.Name {
		return apierrors.NewBadRequest(fmt.Sprintf("the presence of ControllerInstance %s is a watch of its own record: set fieldSelector=metadata.name=%s", instance.Name, instance.Name))
	}
	return nil
}

// presence is what is known of a request that is to be a presence.
type presence struct {
	why    string
	client context.Context
}

// PresenceFrom returns why the presence that the request is to be is opened, as
// fence.PresenceHeader has it, and whether it is to be one. client ends when the client has ended
// the request, or its connection has ended, and not when the time of a watch is over.
func PresenceFrom(ctx context.Context) (why string, client context.Context, ok bool) {
	p, ok := ctx.Value(presenceKey{}).(presence)
	return p.why, p.client, ok
}

// parse returns the instance that the header names, or the answer to a request that must not
// name it.
func parse(ctx context.Context, a authorizer.UnconditionalAuthorizer, values []string) (fence.Identity, error) {
	instance, err := fence.Parse(values[0])
	if err == nil && len(values) > 1 {
		err = fmt.Errorf("%d instances are named, want one", len(values))
	}
	if err != nil {
		return fence.Identity{}, apierrors.NewBadRequest(fmt.Sprintf("header %s: %v", fence.Header, err))
	}
	who, ok := request.UserFrom(ctx)
	if !ok {
		return fence.Identity{}, apierrors.NewInternalError(errors.New("no user found for the request"))
	}
	return instance, Authorize(ctx, a, who, instance.Ring)
}

// Authorize returns nil if the user may write in the name of the ring's instances, and the
// answer to the request otherwise. Without an authorizer everybody may.
func Authorize(ctx context.Context, a authorizer.UnconditionalAuthorizer, who user.Info, ring string) error {
	allowed, reason, err := may(ctx, a, who, fence.Verb, ring)
	if allowed || err != nil {
		return err
	}
	return responsewriters.ForbiddenStatusError(attributes(who, fence.Verb, ring), reason)
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
