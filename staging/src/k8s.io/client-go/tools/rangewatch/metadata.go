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
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
)

// ForMetadata returns the Config of a Source of metadata alone: its objects are
// PartialObjectMetadata of resource in all namespaces. The server sends nothing else, so an
// informer needs a fraction of the memory. It fails for a key that cannot be seen in metadata: that
// of a claim, and that of a namespace's own name.
func ForMetadata(client metadata.Interface, resource schema.GroupVersionResource, field string) (Config, error) {
	if path, ok := sharding.ParseKeyPath(field); ok && !path.InMetadata(resource.GroupResource()) {
		return Config{}, fmt.Errorf("the metadata of %s does not have the key at %s: follow the whole objects", resource.GroupResource(), field)
	}
	objects := client.Resource(resource)
	return Config{
		Field: field,
		ListWatch: cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return objects.List(ctx, options)
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return objects.Watch(ctx, options)
			},
		}, client),
		Object: &metav1.PartialObjectMetadata{},
	}, nil
}
