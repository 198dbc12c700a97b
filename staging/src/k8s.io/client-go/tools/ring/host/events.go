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
	"context"

	"k8s.io/client-go/tools/record"
)

// NewEventBroadcaster returns a broadcaster for what instances tell of their rings. By client-go's
// defaults the events of a record would be dropped after 25, but for one in five minutes, and those
// that are alike combined after ten: a busy ring tells more, and what changed hands would be
// missing.
func NewEventBroadcaster(ctx context.Context) record.EventBroadcaster {
	return record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(record.CorrelatorOptions{
		BurstSize: 200,
		QPS:       0.1,
		MaxEvents: 200,
	}))
}
