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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// interceptedServer is a fake server with hooks: replace may replace a watch, listed runs before
// the answer to a list is returned, opening before a watch is opened.
type interceptedServer struct {
	*fakeServer
	replace func(watch.Interface) watch.Interface
	listed  func()
	opening func(context.Context)
}

func (l interceptedServer) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := l.fakeServer.ListWithContext(ctx, options)
	if l.listed != nil {
		l.listed()
	}
	return list, err
}

func (l interceptedServer) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if options.SendInitialEvents != nil && *options.SendInitialEvents {
		return l.fakeServer.WatchWithContext(ctx, options)
	}
	if l.opening != nil {
		l.opening(ctx)
	}
	w, err := l.fakeServer.WatchWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	if l.replace != nil {
		w = l.replace(w)
	}
	return w, nil
}
