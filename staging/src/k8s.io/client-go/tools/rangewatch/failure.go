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

package rangewatch

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/rangewatch/follower"
)

// failureOf says what the error of a request with a selector means.
func (s *Source) failureOf(ctx context.Context, err error, selector string) follower.Failure {
	if apierrors.IsInternalError(err) && selector != "" && s.isRefused(ctx, selector) {
		return follower.Refused
	}
	return failureOf(err)
}

func failureOf(err error) follower.Failure {
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return follower.Expired
	case isRefused(err):
		return follower.Refused
	}
	return follower.Failed
}

// isRefused reports whether the server may have refused a request because it does not know an
// option of it.
func isRefused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch status.Status().Code {
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotAcceptable,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity, http.StatusNotImplemented:
		return true
	}
	return false
}

// isRefused reports whether the server refuses selector with an internal error, as a stock server
// with sharded lists does. It lists objects without the selector, and fails to with it. An internal
// error that has another cause must not count as a refusal: many informers at once would ask a
// server for everything that has just got over a stall.
func (s *Source) isRefused(ctx context.Context, selector string) bool {
	if _, err := s.listWatch.ListWithContext(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return false
	}
	_, err := s.listWatch.ListWithContext(ctx, metav1.ListOptions{Limit: 1, ShardSelector: selector})
	return apierrors.IsInternalError(err)
}
