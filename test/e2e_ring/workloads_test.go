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

package e2e_ring

import (
	"context"
	"fmt"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/test/harness/objects"
	"k8s.io/utils/ptr"
)

// completions is how many pods of a Job have to succeed.
const completions = 5

func jobSpec(name string) batchv1.JobSpec {
	template := podTemplate(name)
	template.Spec.RestartPolicy = v1.RestartPolicyNever
	return batchv1.JobSpec{Completions: ptr.To[int32](completions), Parallelism: ptr.To[int32](2), Template: template}
}

func createJobs(ctx context.Context, namespace, prefix string, n int) []*batchv1.Job {
	ginkgo.GinkgoHelper()
	var jobs []*batchv1.Job
	for i := range n {
		name := fmt.Sprintf("%s-%02d", prefix, i)
		job := &batchv1.Job{ObjectMeta: objects.Named(name), Spec: jobSpec(name)}
		create(ctx, namespace, job)
		jobs = append(jobs, job)
	}
	return jobs
}

// expectComplete waits until each Job is complete, and checks that no more pods than it wants were
// ever created for it, and that it counts them.
func expectComplete(ctx context.Context, jobs []*batchv1.Job) {
	ginkgo.GinkgoHelper()
	for _, job := range jobs {
		gomega.Eventually(ctx, func(g gomega.Gomega) {
			now, err := client.BatchV1().Jobs(job.Namespace).Get(ctx, job.Name, metav1.GetOptions{})
			g.Expect(err).NotTo(gomega.HaveOccurred())
			g.Expect(now.Status.CompletionTime).NotTo(gomega.BeNil(), "the end of %s", job.Name)
			g.Expect(now.Status.Succeeded).To(gomega.Equal(int32(completions)), "pods of %s that have succeeded", job.Name)
		}).WithTimeout(soon).WithPolling(poll).Should(gomega.Succeed())
	}
	gomega.Expect(creations.UpToNow(ctx)).To(gomega.Succeed())
	for _, job := range jobs {
		gomega.Expect(creations.Of(job.UID)).To(gomega.Equal(completions), "pods ever created for %s", job.Name)
	}
}

// createCronJobs creates CronJobs that each make a Job every minute.
func createCronJobs(ctx context.Context, namespace string, n int) {
	ginkgo.GinkgoHelper()
	for i := range n {
		name := fmt.Sprintf("cron-%02d", i)
		spec := jobSpec(name)
		spec.TTLSecondsAfterFinished = ptr.To[int32](10)
		create(ctx, namespace, &batchv1.CronJob{
			ObjectMeta: objects.Named(name),
			Spec:       batchv1.CronJobSpec{Schedule: "* * * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: spec}},
		})
	}
}

// expectSchedules waits until each CronJob has made a Job, which has run and was deleted.
func expectSchedules(ctx context.Context, namespace string) {
	ginkgo.GinkgoHelper()
	gomega.Eventually(ctx, func(g gomega.Gomega) {
		cronJobs, err := client.BatchV1().CronJobs(namespace).List(ctx, metav1.ListOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		for _, c := range cronJobs.Items {
			g.Expect(c.Status.LastSuccessfulTime).NotTo(gomega.BeNil(), "a success of %s", c.Name)
		}
		jobs, err := client.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		made := map[string]int{}
		for _, j := range jobs.Items {
			if owner := metav1.GetControllerOf(&j); owner != nil && j.Status.CompletionTime != nil {
				made[owner.Name]++
			}
		}
		g.Expect(made).To(gomega.BeEmpty(), "Jobs that were not deleted at the end of their time to live")
	}).WithTimeout(soon).WithPolling(poll).Should(gomega.Succeed())
}

func createDaemonSets(ctx context.Context, namespace string, n int) []*appsv1.DaemonSet {
	ginkgo.GinkgoHelper()
	var daemonSets []*appsv1.DaemonSet
	for i := range n {
		name := fmt.Sprintf("daemon-%02d", i)
		ds := objects.DaemonSet(name, podTemplate(name))
		create(ctx, namespace, ds)
		daemonSets = append(daemonSets, ds)
	}
	return daemonSets
}

// expectDaemons waits until each DaemonSet has a pod on each node, and checks that no more were
// ever created for it.
func expectDaemons(ctx context.Context, daemonSets []*appsv1.DaemonSet) {
	ginkgo.GinkgoHelper()
	for _, ds := range daemonSets {
		gomega.Eventually(ctx, func(g gomega.Gomega) {
			now, err := client.AppsV1().DaemonSets(ds.Namespace).Get(ctx, ds.Name, metav1.GetOptions{})
			g.Expect(err).NotTo(gomega.HaveOccurred())
			g.Expect(now.Status.NumberAvailable).To(gomega.Equal(int32(nodes)), "pods of %s", ds.Name)
		}).WithTimeout(soon).WithPolling(poll).Should(gomega.Succeed())
	}
	gomega.Expect(creations.UpToNow(ctx)).To(gomega.Succeed())
	for _, ds := range daemonSets {
		gomega.Expect(creations.Of(ds.UID)).To(gomega.Equal(nodes), "pods ever created for %s", ds.Name)
	}
}
