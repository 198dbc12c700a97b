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
	"testing"
	"time"

	batch "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	ringtesting "k8s.io/kubernetes/pkg/controller/ring/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

// A CronJob whose Job would have the name of another's comes back to it: soon if that one goes with
// an earlier CronJob of its name, else at its next time.
func TestACronJobSurvivesAForeignJobOfItsName(t *testing.T) {
	controlledBy := func(kind, name string) *metav1.OwnerReference {
		return &metav1.OwnerReference{APIVersion: "batch/v1", Kind: kind, Name: name, UID: "another", Controller: ptr.To(true)}
	}
	now := (*justAfterTheHour()).Add(5 * time.Second)
	next := now.Truncate(time.Hour).Add(time.Hour + nextScheduleDelta).Sub(now)
	for _, tc := range []struct {
		name  string
		owner *metav1.OwnerReference
		want  time.Duration
	}{
		{name: "of an earlier CronJob", owner: controlledBy("CronJob", "mycronjob"), want: predecessorPeriod},
		{name: "of another CronJob", owner: controlledBy("CronJob", "another"), want: next},
		{name: "of another kind", owner: controlledBy("Workflow", "mycronjob"), want: next},
		{name: "of nobody", want: next},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, ctx := ktesting.NewTestContext(t)
			env, _ := ringtesting.NewEnv(t, ctx, catalogue.CronJobController, &ringtesting.Gate{}, fake.NewClientset())
			jm, err := NewControllerV2(ctx, env.Informers.Batch().V1().Jobs(), env.Informers.Batch().V1().CronJobs(), env.Client)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := jm.putOnRing(env); err != nil {
				t.Fatal(err)
			}
			cj := cronJob()
			cj.Spec.Schedule = "0 * * * ?"
			foreign := &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: cj.Namespace, Name: getJobName(&cj, now.Truncate(time.Hour))}}
			if tc.owner != nil {
				foreign.OwnerReferences = []metav1.OwnerReference{*tc.owner}
			}
			jm.jobControl = &fakeJobControl{Job: foreign, CreateErr: apierrors.NewAlreadyExists(batch.Resource("jobs"), foreign.Name)}
			jm.cronJobControl = &fakeCJControl{}
			jm.recorder = record.NewFakeRecorder(10)
			jm.now = func() time.Time { return now }
			wait, _, err := jm.syncCronJob(ctx, &cj, nil)
			if err != nil || wait == nil || *wait != tc.want {
				t.Errorf("it is looked at again after %v, %v, want %v", wait, err, tc.want)
			}
		})
	}
}
