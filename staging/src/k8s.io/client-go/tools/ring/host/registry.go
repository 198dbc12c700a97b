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

package host

import (
	"fmt"
	"net/http"

	shardingclient "k8s.io/client-go/kubernetes/typed/sharding/v1alpha1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/ring/member"
)

// NewRegistry returns the client with which an instance writes and reads the registry, for
// member.Config.Client. Nothing else should use it. It changes config, which must not be used
// again.
func NewRegistry(config *rest.Config, gate *member.Gate) (shardingclient.ControllerInstanceInterface, error) {
	// A renewal waits for no other request: no rate limit, and no shared connection.
	config.QPS, config.RateLimiter = -1, nil
	config.Wrap(gate.WrapRegistryTransport)
	connections := &lanes{open: func() (*lane, error) { return openLane(config) }}
	sharding, err := shardingclient.NewForConfigAndClient(config, &http.Client{Transport: connections, Timeout: config.Timeout})
	if err != nil {
		return nil, fmt.Errorf("making a client for the ring: %w", err)
	}
	return sharding.ControllerInstances(), nil
}
