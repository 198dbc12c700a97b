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

package controlplane

import (
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	_ "k8s.io/kubernetes/pkg/apis/sharding/install"
)

// WithControllerRing enables the registry of controller instances in config, and returns
// config. It is the only alpha version that kube-apiserver serves by default, because the
// ring needs it; --runtime-config can turn it off. It is not part of
// DefaultAPIResourceConfigSource because upstream's rule is to enable no alpha version there.
func WithControllerRing(config *serverstorage.ResourceConfig) *serverstorage.ResourceConfig {
	config.EnableVersions(shardingv1alpha1.SchemeGroupVersion)
	return config
}
