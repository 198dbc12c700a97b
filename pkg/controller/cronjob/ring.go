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

package cronjob

import (
	"context"

	"k8s.io/kubernetes/pkg/controller/ring"
)

// OnRing returns a CronJob controller that shares the CronJobs with others. It has the Jobs of its
// CronJobs, and remembers nothing: a Job's name is that of its time, and what the status lists and
// the cache lacks is read live.
func OnRing(ctx context.Context, env *ring.Env) (*ring.Controller, error) {
	jm, err := NewControllerV2(ctx, env.Informers.Batch().V1().Jobs(), env.Informers.Batch().V1().CronJobs(), env.Client)
	if err != nil {
		return nil, err
	}
	return ring.New(env, ring.Config[string]{
		Queue: &jm.queue, Item: ring.Named, Name: ring.Named,
		Work: jm.processNextWorkItem, Run: jm.Run,
	})
}
