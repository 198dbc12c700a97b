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

// Package ringaudit reads etcd, which has all changes in order.
package ringaudit

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Follow passes all changes that etcd has stored under /registry/, from its first revision on, to
// take until ctx ends: in order, and also while the API server is down. If the watch ends earlier,
// it calls fail. The caller closes the client.
func Follow(ctx context.Context, endpoint string, take func(clientv3.WatchResponse), fail func(error)) (*clientv3.Client, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	go func() {
		// A single watch, because only that preserves the order between resources.
		for response := range client.Watch(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithRev(1), clientv3.WithPrevKV()) {
			take(response)
		}
		if ctx.Err() == nil {
			fail(fmt.Errorf("the watch of etcd has ended"))
		}
	}()
	return client, nil
}
