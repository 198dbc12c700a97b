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
	"time"

	"github.com/robfig/cron/v3"

	batch "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/controller/ring"
)

// predecessorPeriod is how often a CronJob looks for a Job of its predecessor's that is in its way.
// No informer here may tell when it is gone: it is on the predecessor's key.
const predecessorPeriod = 10 * time.Second

// OnRing returns a CronJob controller that shares the CronJobs with others. It has the Jobs of its
// CronJobs, and remembers nothing: a Job's name is that of its time, and what the status lists and
// the cache lacks is read live.
func OnRing(ctx context.Context, env *ring.Env) (*ring.Controller, error) {
	jm, err := NewControllerV2(ctx, env.Informers.Batch().V1().Jobs(), env.Informers.Batch().V1().CronJobs(), env.Client)
	if err != nil {
		return nil, err
	}
	return jm.putOnRing(env)
}

// putOnRing puts the controller, which was built from env, behind its gate.
func (jm *ControllerV2) putOnRing(env *ring.Env) (*ring.Controller, error) {
	jm.onRing = true
	return ring.New(env, ring.Config[string]{
		Queue: &jm.queue, Item: ring.Named, Name: ring.Named,
		Work: jm.processNextWorkItem, Run: jm.Run,
	})
}

// afterForeignJob returns how long a CronJob waits whose time has come and whose Job would have the
// name of another's: until its next time, or a moment if that one belongs to an earlier CronJob of
// its name, with which it goes. nil is for ever: in stock nothing queues the CronJob again until
// somebody changes it.
func (jm *ControllerV2) afterForeignJob(cronJob *batch.CronJob, job *batch.Job, now time.Time, schedule cron.Schedule) *time.Duration {
	if !jm.onRing {
		return nil
	}
	wait := nextScheduleTimeDuration(cronJob, now, schedule)
	if owner := metav1.GetControllerOfNoCopy(job); owner != nil && owner.Kind == controllerKind.Kind && owner.Name == cronJob.Name {
		*wait = min(*wait, predecessorPeriod)
	}
	return wait
}
