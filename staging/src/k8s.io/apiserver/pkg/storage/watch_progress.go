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

package storage

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/sharding"
)

// AsksForProgress says whether a watch asks at its start how far it is: a watch of a range of hash
// keys from a resource version, with bookmarks and with sendInitialEvents=false. The answer is a
// bookmark with sharding.ProgressAnnotation.
func AsksForProgress(opts ListOptions) bool {
	_, ranges := opts.Predicate.ShardSelector.(sharding.HashKeySelector)
	return ranges && opts.SendInitialEvents != nil && !*opts.SendInitialEvents &&
		opts.ResourceVersion != "" && opts.ResourceVersion != "0" && opts.Predicate.AllowWatchBookmarks
}

// NewProgressUnknown returns the answer to a watch that asks for its progress where nothing can
// tell it. It is a bad request, so that clients do without at once.
func NewProgressUnknown(why string) error {
	return apierrors.NewBadRequest(fmt.Sprintf("the API server cannot tell how far a watch is, as %s: watch without sendInitialEvents, and list to be sure", why))
}
