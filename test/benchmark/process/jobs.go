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
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/test/benchmark/measure"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/history"
	"k8s.io/kubernetes/test/harness/objects"
	"k8s.io/kubernetes/test/harness/report"
	"k8s.io/utils/ptr"
)

const (
	// jobsPerMinute is how many Jobs of one pod are created in a minute, and allJobs how many
	// altogether.
	jobsPerMinute = 5000
	allJobs       = 5000
	// jobTTL is how many seconds a Job stays when it has finished.
	jobTTL = 10
	// jobNodes and jobDaemonSets are the Nodes and DaemonSets beside them. One of these is rolled
	// out every rolloutPeriod.
	jobNodes      = 50
	jobDaemonSets = 20
	rolloutPeriod = 5 * time.Second
	// finishers is how many pods are made to succeed at the same time.
	finishers = 16
)

// ran is what was measured while Jobs ran.
type ran struct {
	// rate is Jobs a second, from the first creation to the last end.
	rate float64
	// median and late are the 50th and 99th percentile of the time from a Job's creation to its end.
	median, late time.Duration
	// most is the CPU time of the process that used most of it, and total that of all.
	most, total time.Duration
}

// jobs is what becomes of the Jobs.
type jobs struct {
	begun map[string]time.Time
	took  map[string]time.Duration
	// pods has the names of those that are to succeed.
	pods chan string
}

// runJobs measures Jobs, beside DaemonSets that are rolled out.
func (b *benchmark) runJobs(ctx context.Context) (r ran, err error) {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	if err := b.createDaemonSets(ctx); err != nil {
		return r, err
	}
	before, err := b.cpu()
	if err != nil {
		return r, err
	}
	j := &jobs{begun: map[string]time.Time{}, took: map[string]time.Duration{}, pods: make(chan string, allJobs)}
	working, end := context.WithCancel(ctx)
	defer end()
	group, working := errgroup.WithContext(working)
	running, err := follow(working, b, j, (*jobs).take, jobsPrefix, pods+metav1.NamespaceDefault+"/job-")
	if err != nil {
		return r, err
	}
	begin := time.Now()
	group.Go(func() error { return b.createJobs(working, running) })
	group.Go(func() error { return b.rollDaemonSets(working) })
	for range finishers {
		group.Go(func() error { return b.finish(working, j.pods) })
	}
	err = running.Await(working, "the Jobs", func(j *jobs) bool { return len(j.took) == allJobs })
	took := time.Since(begin)
	end()
	if err := errors.Join(err, group.Wait()); err != nil {
		return r, err
	}
	running.See(func(j *jobs) { r.median, r.late = report.Percentiles(slices.Collect(maps.Values(j.took))) })
	r.rate = allJobs / took.Seconds()
	r.most, r.total, err = b.cpuSince(before)
	return r, err
}

// cpu returns the CPU time that each controller manager has used.
func (b *benchmark) cpu() ([]time.Duration, error) {
	var all []time.Duration
	for _, m := range b.managers {
		_, used, err := measure.Usage(m.pid)
		if err != nil {
			return nil, err
		}
		all = append(all, used)
	}
	return all, nil
}

// cpuSince returns the most CPU time that a controller manager has used since then, and that of
// all.
func (b *benchmark) cpuSince(before []time.Duration) (most, total time.Duration, err error) {
	now, err := b.cpu()
	for i := range now {
		used := now[i] - before[i]
		most, total = max(most, used), total+used
	}
	return most, total, err
}

// createJobs creates the Jobs, evenly over their time.
func (b *benchmark) createJobs(ctx context.Context, running *history.History[*jobs]) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(creators)
	tick := time.NewTicker(time.Minute / jobsPerMinute)
	defer tick.Stop()
	for i := range allJobs {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return group.Wait()
		}
		group.Go(func() error {
			job := newJob(fmt.Sprintf("job-%05d", i))
			running.See(func(j *jobs) { j.begun[job.Name] = time.Now() })
			return objects.Create(ctx, b.client, metav1.NamespaceDefault, job)
		})
	}
	return group.Wait()
}

// newJob returns a Job of one pod, which has the size of a Deployment's.
func newJob(name string) *batch.Job {
	template := newDeployment(name).Spec.Template
	template.Spec.RestartPolicy = v1.RestartPolicyNever
	return &batch.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       batch.JobSpec{TTLSecondsAfterFinished: ptr.To[int32](jobTTL), Template: template},
	}
}

const jobsPrefix = "/registry/jobs/" + metav1.NamespaceDefault + "/"

// take notes the end of a Job, and hands its pod to the finishers.
func (j *jobs) take(event *clientv3.Event) error {
	name := path.Base(string(event.Kv.Key))
	if !strings.HasPrefix(string(event.Kv.Key), jobsPrefix) {
		if event.IsCreate() {
			j.pods <- name
		}
		return nil
	}
	object, err := history.Object(event)
	if err != nil {
		return err
	}
	if job, ok := object.(*batch.Job); ok && job.Status.CompletionTime != nil {
		if _, known := j.took[name]; !known {
			j.took[name] = time.Since(j.begun[name])
		}
	}
	return nil
}

// finish makes pods succeed, as a kubelet would, until ctx ends.
func (b *benchmark) finish(ctx context.Context, pods <-chan string) error {
	for {
		select {
		case name := <-pods:
			_, err := b.client.CoreV1().Pods(metav1.NamespaceDefault).Patch(ctx, name, types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
			if err != nil && ctx.Err() == nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func (b *benchmark) createDaemonSets(ctx context.Context) error {
	for i := range jobNodes {
		if err := objects.Create(ctx, b.client, "", &v1.Node{ObjectMeta: objects.Named(fmt.Sprintf("node-%02d", i))}); err != nil {
			return err
		}
	}
	for i := range jobDaemonSets {
		name := daemonSetName(i)
		if err := objects.Create(ctx, b.client, metav1.NamespaceDefault, objects.DaemonSet(name, newDeployment(name).Spec.Template)); err != nil {
			return err
		}
	}
	return nil
}

func daemonSetName(i int) string { return fmt.Sprintf("daemon-%02d", i) }

// rollDaemonSets rolls out one DaemonSet after the other, until ctx ends.
func (b *benchmark) rollDaemonSets(ctx context.Context) error {
	for i := 0; harness.Sleep(ctx, rolloutPeriod) == nil; i++ {
		patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"rollout":"%d"}}}}}`, i)
		if _, err := b.client.AppsV1().DaemonSets(metav1.NamespaceDefault).Patch(ctx, daemonSetName(i%jobDaemonSets), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}
