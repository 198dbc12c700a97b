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

package main

import (
	"testing"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// job writes a Job of three pods, two at a time, with that status.
func (s story) job(status batch.JobStatus) {
	s.revision++
	s.jobWritten(&batch.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "job", UID: "job"},
		Spec:       batch.JobSpec{Completions: ptr.To[int32](3), Parallelism: ptr.To[int32](2)},
		Status:     status,
	}, s.revision)
}

// jobPod writes a pod of the Job.
func (s story) jobPod(t *testing.T, name string, phase v1.PodPhase, tracked bool) {
	t.Helper()
	s.revision++
	p := pod("job", name)
	p.OwnerReferences[0].Kind = "Job"
	p.Status.Phase = phase
	if tracked {
		p.Finalizers = []string{batch.JobTrackingFinalizer}
	}
	if known, err := s.podWritten(p, false, false, s.revision); !known || err != nil {
		t.Fatalf("pod %s is not taken for a Job's: %v", name, err)
	}
}

// jobPodEnds ends a pod of the Job that has its finalizer, and whose last revision is that.
func (s story) jobPodEnds(t *testing.T, name string, last int64) {
	t.Helper()
	s.revision++
	p := pod("job", name)
	p.OwnerReferences[0].Kind, p.Finalizers = "Job", []string{batch.JobTrackingFinalizer}
	if known, err := s.podWritten(p, false, true, last); !known || err != nil {
		t.Fatalf("pod %s is not taken for a Job's: %v", name, err)
	}
}

// jobOfA begins with a Job that a owns, beside b, and a pod p1 that a has created for it.
func jobOfA(t *testing.T) story {
	t.Helper()
	s := begin()
	key := metav1.HashKeyOf(&metav1.ObjectMeta{UID: "job"})
	s.instance("a", key)
	s.instance("b", key+1)
	s.job(batch.JobStatus{})
	s.jobPod(t, "p1", v1.PodPending, true)
	s.by("a", "create", "p1")
	return s
}

func uncounted(uids ...types.UID) *batch.UncountedTerminatedPods {
	return &batch.UncountedTerminatedPods{Succeeded: uids}
}

var complete = []batch.JobCondition{{Type: batch.JobComplete, Status: v1.ConditionTrue}}

func TestAJobThatRunsAsItShould(t *testing.T) {
	s := begin()
	s.job(batch.JobStatus{})
	s.jobPod(t, "p1", v1.PodPending, true)
	s.jobPod(t, "p2", v1.PodPending, true)
	s.jobPod(t, "p1", v1.PodSucceeded, true)
	s.jobPod(t, "p3", v1.PodPending, true)
	s.job(batch.JobStatus{UncountedTerminatedPods: uncounted("p1")})
	s.jobPod(t, "p1", v1.PodSucceeded, false)
	s.jobPod(t, "p2", v1.PodSucceeded, true)
	s.jobPod(t, "p3", v1.PodFailed, true)
	s.jobPod(t, "p4", v1.PodPending, true)
	s.jobPod(t, "p4", v1.PodSucceeded, true)
	s.job(batch.JobStatus{Succeeded: 1, UncountedTerminatedPods: uncounted("p2", "p3", "p4")})
	for _, name := range []string{"p2", "p4"} {
		s.jobPod(t, name, v1.PodSucceeded, false)
	}
	s.jobPod(t, "p3", v1.PodFailed, false)
	s.job(batch.JobStatus{Succeeded: 3, Failed: 1, Conditions: complete})
	s.expect(t)
	if left := s.unfinished(); len(left) != 0 {
		t.Errorf("left are %q", left)
	}
}

func TestPodsOfAJobInExcess(t *testing.T) {
	s := begin()
	s.job(batch.JobStatus{})
	s.jobPod(t, "p1", v1.PodPending, true)
	s.jobPod(t, "p2", v1.PodPending, true)
	s.expect(t)
	s.jobPod(t, "p3", v1.PodPending, true)
	s.expect(t, excess)
}

func TestAPodThatHasSucceededIsNotReplaced(t *testing.T) {
	s := begin()
	s.job(batch.JobStatus{})
	for _, name := range []string{"p1", "p2", "p3"} {
		s.jobPod(t, name, v1.PodPending, true)
		s.jobPod(t, name, v1.PodSucceeded, true)
	}
	s.expect(t)
	s.jobPod(t, "p4", v1.PodPending, true)
	s.expect(t, excess)
}

func TestAFinalizerThatIsRemovedTooEarly(t *testing.T) {
	s := begin()
	s.job(batch.JobStatus{})
	s.jobPod(t, "p1", v1.PodSucceeded, true)
	s.jobPod(t, "p1", v1.PodSucceeded, false)
	s.expect(t, untracked)
}

func TestAFinalizerMayGoWithItsJob(t *testing.T) {
	s := begin()
	s.job(batch.JobStatus{})
	s.jobPod(t, "p1", v1.PodPending, true)
	s.jobGone(&batch.Job{ObjectMeta: metav1.ObjectMeta{Name: "job", UID: "job"}})
	s.jobPod(t, "p1", v1.PodPending, false)
	s.expect(t)
}

func TestWrongCounts(t *testing.T) {
	s := begin()
	s.job(batch.JobStatus{})
	s.jobPod(t, "p1", v1.PodSucceeded, true)
	s.job(batch.JobStatus{Succeeded: 3, Conditions: complete})
	s.expect(t, miscount)
	s.job(batch.JobStatus{Succeeded: 2, Conditions: complete})
	s.expect(t, miscount, miscount)
}

func TestTwoJobsForOneTime(t *testing.T) {
	s := begin()
	yes := true
	for _, name := range []string{"j1", "j2"} {
		s.revision++
		s.jobWritten(&batch.Job{ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), Annotations: map[string]string{batch.CronJobScheduledTimestampAnnotation: "noon"},
			OwnerReferences: []metav1.OwnerReference{{Name: "cron", UID: "cron", Controller: &yes}},
		}}, s.revision)
	}
	s.expect(t, excess)
}

// The answer to the update that ends a pod names the revision before, at which another instance may
// have owned the pod.
func TestAPodThatEndsWithItsFinalizer(t *testing.T) {
	s := jobOfA(t)
	s.jobGone(&batch.Job{ObjectMeta: metav1.ObjectMeta{Name: "job", UID: "job"}})
	s.jobPod(t, "p1", v1.PodPending, true) // marked as deleted
	marked := s.revision
	s.instanceGone("a")
	s.jobPodEnds(t, "p1", marked)
	s.written(auditWrite{writeID: writeID{"write", "p1", marked}, process: "b"})
	s.expect(t)
	if s.work != 2 {
		t.Errorf("%d writes judged, want 2", s.work)
	}
}

func TestAPodOfARunningJobMayNotEndUncounted(t *testing.T) {
	s := begin()
	s.job(batch.JobStatus{})
	s.jobPod(t, "p1", v1.PodPending, true)
	s.jobPodEnds(t, "p1", s.revision)
	s.expect(t, untracked)
}

// The garbage collector deletes pods, too: only what the audit log has is judged.
func TestWritesThatOthersMakeToo(t *testing.T) {
	s := jobOfA(t)
	s.job(batch.JobStatus{UncountedTerminatedPods: uncounted("p1")})
	s.jobPod(t, "p1", v1.PodSucceeded, false)
	s.written(auditWrite{writeID: writeID{"write", "p1", s.revision}, process: "b"})
	if left := s.conclude(); len(left) != 0 || len(s.may) != 0 {
		t.Errorf("%d writes are missed, and %d still expected", len(left), len(s.may))
	}
	s.expect(t, nonOwner)
}
