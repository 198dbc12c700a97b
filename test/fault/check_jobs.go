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
	"fmt"
	"slices"
	"time"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// job is the state of a Job at the present revision.
type job struct {
	uid        types.UID
	name       string
	spec       batch.JobSpec
	generation int64
	// uncounted are the pods that the status lists as finished and not yet counted.
	uncounted map[types.UID]bool
	// pods has all pods that it ever had.
	pods map[types.UID]*jobPod
	// succeeded and failed are what the status counts.
	succeeded, failed int32
	// deleting is set while its deletion is under way, and finished when it is complete or failed.
	deleting, finished bool
	// failedAt is when a pod failed last. Another is created after a back-off.
	failedAt time.Time
}

// jobPod is what became of a pod of a Job.
type jobPod struct {
	phase v1.PodPhase
	// tracked is set while it has its finalizer.
	tracked, deleting bool
}

func (p *jobPod) active() bool {
	return !p.deleting && p.phase != v1.PodSucceeded && p.phase != v1.PodFailed
}

// count counts the pods of that phase.
func (j *job) count(phase v1.PodPhase) (n int32) {
	for _, p := range j.pods {
		if p.phase == phase {
			n++
		}
	}
	return n
}

// jobWritten handles a write of a Job.
func (c *checker) jobWritten(now *batch.Job, revision int64) {
	owner := metav1.GetControllerOfNoCopy(now)
	j := c.jobs[now.UID]
	if j == nil {
		j = &job{uid: now.UID, name: now.Name, pods: map[types.UID]*jobPod{}}
		c.jobs[now.UID] = j
		if owner != nil {
			c.expect(writeID{verb: "create", uid: now.UID}, now.Name, owner.Name, owner.UID)
			c.scheduled(now, owner)
		}
	} else if now.Generation == j.generation {
		// Only a controller writes anything but the specification.
		c.allow(writeID{"write", now.UID, revision}, now.Name, now.Name, now.UID)
	}
	j.generation = now.Generation
	if now.DeletionTimestamp != nil && !j.deleting {
		j.deleting = true
		c.jobDeleted(now)
	}
	j.spec, j.uncounted = now.Spec, map[types.UID]bool{}
	if u := now.Status.UncountedTerminatedPods; u != nil {
		for _, uid := range slices.Concat(u.Succeeded, u.Failed) {
			j.uncounted[uid] = true
		}
	}
	if now.Status.Succeeded < j.succeeded || now.Status.Failed < j.failed {
		c.violate(miscount, "Job %s counts %d succeeded and %d failed pods, and has counted %d and %d", j.name, now.Status.Succeeded, now.Status.Failed, j.succeeded, j.failed)
	}
	j.succeeded, j.failed = now.Status.Succeeded, now.Status.Failed
	for _, condition := range now.Status.Conditions {
		if (condition.Type == batch.JobComplete || condition.Type == batch.JobFailed) && condition.Status == v1.ConditionTrue && !j.finished {
			j.finished = true
			if succeeded, failed := j.count(v1.PodSucceeded), j.count(v1.PodFailed); now.Status.Succeeded != succeeded || now.Status.Failed != failed {
				c.violate(miscount, "Job %s counts %d succeeded and %d failed pods, and had %d and %d", j.name, now.Status.Succeeded, now.Status.Failed, succeeded, failed)
			}
		}
	}
}

// scheduled checks that a CronJob has made no other Job for the same time.
func (c *checker) scheduled(now *batch.Job, owner *metav1.OwnerReference) {
	at := fmt.Sprint(owner.UID, now.Annotations[batch.CronJobScheduledTimestampAnnotation])
	if other := c.schedules[at]; other != "" {
		c.violate(excess, "Job %s for CronJob %s, which had %s for the same time", now.Name, owner.Name, other)
	}
	c.schedules[at] = now.Name
}

// jobGone handles the end of a Job.
func (c *checker) jobGone(last *batch.Job) {
	if j := c.jobs[last.UID]; j != nil && !j.deleting {
		c.jobDeleted(last)
	}
	delete(c.jobs, last.UID)
}

// jobDeleted handles a deletion of a Job, by its CronJob or at the end of its time to live.
func (c *checker) jobDeleted(j *batch.Job) {
	c.allow(writeID{verb: "expire", uid: j.UID}, j.Name, j.Name, j.UID)
	if owner := metav1.GetControllerOfNoCopy(j); owner != nil {
		c.allow(writeID{verb: "delete", uid: j.UID}, j.Name, owner.Name, owner.UID)
	}
}

// jobPodWritten checks a write of a pod that belongs to a Job.
func (c *checker) jobPodWritten(j *job, pod *v1.Pod, revision int64) {
	p := j.pods[pod.UID]
	if p == nil {
		active := int32(0)
		for _, other := range j.pods {
			if other.active() {
				active++
			}
		}
		if allowed := min(*j.spec.Parallelism, *j.spec.Completions-j.count(v1.PodSucceeded)); active >= allowed {
			c.violate(excess, "pod %s for Job %s, which had %d and wanted %d", pod.Name, j.name, active, allowed)
		}
		p = &jobPod{}
		j.pods[pod.UID] = p
		c.expect(writeID{verb: "create", uid: pod.UID}, pod.Name, j.name, j.uid)
	}
	if pod.DeletionTimestamp != nil && !p.deleting {
		c.allow(writeID{verb: "delete", uid: pod.UID}, pod.Name, j.name, j.uid)
	}
	if pod.Status.Phase == v1.PodFailed && p.phase != v1.PodFailed {
		j.failedAt = time.Now()
	}
	p.phase, p.deleting = pod.Status.Phase, pod.DeletionTimestamp != nil
	tracked := slices.Contains(pod.Finalizers, batch.JobTrackingFinalizer)
	if p.tracked && !tracked {
		c.jobPodUntracked(j, pod, revision)
	}
	p.tracked = tracked
}

// jobPodUntracked checks the removal of the finalizer of a pod that belongs to a Job.
func (c *checker) jobPodUntracked(j *job, pod *v1.Pod, revision int64) {
	c.allow(writeID{"write", pod.UID, revision}, pod.Name, j.name, j.uid)
	if !j.uncounted[pod.UID] && !j.deleting && !j.finished {
		c.violate(untracked, "pod %s (%s) of Job %s, whose status does not list it", pod.Name, pod.Status.Phase, j.name)
	}
}

// jobPodGone handles the end of a pod that belongs to a Job. revision is that of its last state.
func (c *checker) jobPodGone(j *job, pod *v1.Pod, revision int64) {
	p := j.pods[pod.UID]
	if p == nil {
		return
	}
	if p.tracked {
		// With that of its last finalizer it is removed.
		c.jobPodUntracked(j, pod, revision)
	}
	if !p.deleting {
		c.allow(writeID{verb: "delete", uid: pod.UID}, pod.Name, j.name, j.uid)
	}
	p.deleting = true
}

// podWritten checks a write of a pod, the first or a later one, or its end. revision is that of the
// write, or of the last state. It returns false if the pod belongs to no Job and no DaemonSet.
func (c *checker) podWritten(pod *v1.Pod, created, deleted bool, revision int64) (known bool, err error) {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return false, nil
	}
	if owner.Kind == "Job" {
		j := c.jobs[owner.UID]
		switch {
		case j == nil && created:
			// Its controller may not know yet that the Job is gone.
			c.expect(writeID{verb: "create", uid: pod.UID}, pod.Name, owner.Name, owner.UID)
		case j == nil:
			// Its Job is gone. The finalizer may go, and the pod with it.
			if deleted == slices.Contains(pod.Finalizers, batch.JobTrackingFinalizer) {
				c.allow(writeID{"write", pod.UID, revision}, pod.Name, owner.Name, owner.UID)
			}
		case deleted:
			c.jobPodGone(j, pod, revision)
		default:
			c.jobPodWritten(j, pod, revision)
		}
		return true, nil
	}
	d := c.daemonSets[owner.UID]
	switch {
	case d == nil:
		return false, nil
	case deleted, pod.DeletionTimestamp != nil:
		c.daemonPodGone(d, pod)
	default:
		err = c.daemonPodWritten(d, pod)
	}
	return true, err
}

// podBackOff is how long a Job may wait after one of its pods has failed.
const podBackOff = 30 * time.Second

// unfinished lists the Jobs that have not finished, but for those that wait after a failure.
func (c *checker) unfinished() []string {
	var names []string
	for _, j := range c.jobs {
		if !j.finished && !j.deleting && time.Since(j.failedAt) > podBackOff {
			names = append(names, fmt.Sprintf("Job %s: %d of %d pods succeeded", j.name, j.count(v1.PodSucceeded), *j.spec.Completions))
		}
	}
	return names
}
