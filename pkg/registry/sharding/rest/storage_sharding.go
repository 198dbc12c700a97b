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

// Package rest serves the API group sharding.k8s.io.
package rest

import (
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/sharding"
	controllerinstancestorage "k8s.io/kubernetes/pkg/registry/sharding/controllerinstance/storage"
)

// RESTStorageProvider provides the storage of sharding.k8s.io.
type RESTStorageProvider struct{}

// NewRESTStorage returns the enabled resources of the group. If the feature gate
// ControllerRing is off it returns none, and the group is not served.
func (p RESTStorageProvider) NewRESTStorage(apiResourceConfigSource serverstorage.APIResourceConfigSource, restOptionsGetter generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	apiGroupInfo := genericapiserver.NewDefaultAPIGroupInfo(sharding.GroupName, legacyscheme.Scheme, legacyscheme.ParameterCodec, legacyscheme.Codecs)
	if !utilfeature.DefaultFeatureGate.Enabled(features.ControllerRing) {
		return apiGroupInfo, nil
	}
	storage, err := p.v1alpha1Storage(apiResourceConfigSource, restOptionsGetter)
	if err != nil {
		return genericapiserver.APIGroupInfo{}, err
	}
	if len(storage) > 0 {
		apiGroupInfo.VersionedResourcesStorageMap[shardingv1alpha1.SchemeGroupVersion.Version] = storage
	}
	return apiGroupInfo, nil
}

func (p RESTStorageProvider) v1alpha1Storage(apiResourceConfigSource serverstorage.APIResourceConfigSource, restOptionsGetter generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	storage := map[string]rest.Storage{}
	if resource := "controllerinstances"; apiResourceConfigSource.ResourceEnabled(shardingv1alpha1.SchemeGroupVersion.WithResource(resource)) {
		instances, status, err := controllerinstancestorage.NewREST(restOptionsGetter)
		if err != nil {
			return nil, err
		}
		storage[resource] = instances
		storage[resource+"/status"] = status
	}
	return storage, nil
}

// GroupName returns the name of the group.
func (p RESTStorageProvider) GroupName() string {
	return sharding.GroupName
}
