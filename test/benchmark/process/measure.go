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
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/pkg/ringtable"
	"k8s.io/kubernetes/test/benchmark/measure"
	"k8s.io/kubernetes/test/harness/ownership"
	"k8s.io/kubernetes/test/harness/report"
)

// result is what was measured with some number of controller managers.
type result struct {
	// managers are on rings; 0 is stock's one. With apart another one leads, which is on none.
	managers int
	apart    bool
	// rated is pods a second at the clients' default rate limit.
	rated float64
	// rounds are those without a limit. The embedded one is that of the median rate.
	rounds []filled
	filled
	// ran is not measured with the most controller managers.
	ran ran
}

// filled is what was measured while all pods came without a limit, and once the rings were even.
type filled struct {
	// rate is pods a second.
	rate float64
	// median and late are the 50th and 99th percentile of the time from a Deployment to its last
	// pod.
	median, late time.Duration
	podSize      int
	processes    []usage
}

// median returns the round of the median rate.
func median(rounds []filled) filled {
	rounds = slices.SortedFunc(slices.Values(rounds), func(a, b filled) int { return cmp.Compare(a.rate, b.rate) })
	return rounds[len(rounds)/2]
}

// usage is what a process has used until all pods were there, and what it holds once the rings are
// even.
type usage struct {
	live, peak uint64
	// cpu and received are without what it has taken to even the rings out.
	cpu      time.Duration
	received int64
	// types has the types of objects that hold most of the heap, in order.
	types []held
	// pods and replicaSets are those that its informers of the ring of workloads hold, or stock's.
	pods, replicaSets int
	// podsInNamespaces are those that its informers of the ring of namespaces hold.
	podsInNamespaces int
	leads            bool
}

// bytesOf returns how many bytes objects of that type hold.
func (u usage) bytesOf(object string) uint64 {
	for _, h := range u.types {
		if h.object == object {
			return uint64(h.bytes)
		}
	}
	return 0
}

func (r *result) name() string {
	if r.apart {
		return nameFor(r.managers) + ", another leads"
	}
	return nameFor(r.managers)
}

// nameFor returns the name of that number of controller managers in the report.
func nameFor(managers int) string {
	if managers == 0 {
		return "stock"
	}
	return fmt.Sprintf("%d on rings", managers)
}

// ratedPods are more than come while the rate is measured.
const ratedPods = 10000

// measureRate measures how many pods come in a while, at the clients' default rate limit.
func (b *benchmark) measureRate(ctx context.Context, r *result) error {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	coming, err := b.follow(ctx)
	if err != nil {
		return err
	}
	if err := b.createSpaces(ctx); err != nil {
		return err
	}
	// Each instance has Deployments enough to create pods all the time.
	if err := b.create(ctx, coming, ratedPods/podsPerDeployment, evenly); err != nil {
		return err
	}
	// The first pods come at once, as the clients have not sent anything for a while.
	before, err := coming.until(ctx, 400*max(r.managers, 1))
	if err != nil {
		return err
	}
	begin := time.Now()
	window, end := context.WithTimeout(ctx, b.rated)
	defer end()
	after, err := coming.until(window, b.pods)
	if err != nil && ctx.Err() != nil {
		return err
	}
	r.rated = float64(after-before) / time.Since(begin).Seconds()
	return nil
}

// fill measures how long all pods take without a limit, and what the processes have used then.
func (b *benchmark) fill(ctx context.Context, namespace func(int) string) (f filled, err error) {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	coming, err := b.follow(ctx)
	if err != nil {
		return f, err
	}
	if err := b.createSpaces(ctx); err != nil {
		return f, err
	}
	begin := time.Now()
	if err := b.create(ctx, coming, b.pods/podsPerDeployment, namespace); err != nil {
		return f, err
	}
	if _, err := coming.until(ctx, b.pods); err != nil {
		return f, err
	}
	f.rate = float64(b.pods) / time.Since(begin).Seconds()
	var took []time.Duration
	coming.See(func(c *counter) {
		for name, begun := range c.begun {
			took = append(took, c.last[name].Sub(begun))
		}
	})
	f.median, f.late = report.Percentiles(took)
	if err := b.complete(ctx); err != nil {
		return f, err
	}
	pods, err := b.client.CoreV1().Pods(namespace(0)).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return f, err
	}
	f.podSize = podSize(&pods.Items[0])
	for i, m := range b.managers {
		u, err := spent(m)
		if err != nil {
			return f, err
		}
		u.leads = i == 0
		f.processes = append(f.processes, u)
	}
	return f, nil
}

// fillAndHold does what fill does, and measures what the processes hold after it.
func (b *benchmark) fillAndHold(ctx context.Context, managers int, namespace func(int) string) (f filled, err error) {
	if f, err = b.fill(ctx, namespace); err == nil {
		err = b.hold(ctx, managers, f.processes)
	}
	return f, err
}

// hold measures what each process holds once the rings are even.
func (b *benchmark) hold(ctx context.Context, managers int, processes []usage) error {
	if managers > 1 {
		if err := b.evenOut(ctx); err != nil {
			return err
		}
	}
	for i, m := range b.managers {
		if err := b.weigh(ctx, m, &processes[i]); err != nil {
			return err
		}
	}
	return b.count(ctx, managers, processes)
}

// spent returns what a process has used until now.
func spent(m *manager) (u usage, err error) {
	u.received = m.proxy.Received()
	_, u.cpu, err = measure.Usage(m.pid)
	return u, err
}

// weigh measures what a process holds, and has held at most.
func (b *benchmark) weigh(ctx context.Context, m *manager, u *usage) (err error) {
	if u.peak, _, err = measure.Usage(m.pid); err != nil {
		return err
	}
	if u.live, err = measure.LeastLive(ctx, b.cluster, m.name); err != nil {
		return err
	}
	u.types, err = b.heldBy(ctx, m)
	return err
}

func podSize(pod *v1.Pod) int { return pod.Size() }

// complete waits until the status of each Deployment says that it has its pods.
func (b *benchmark) complete(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		list, err := b.client.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, err
		}
		for _, d := range list.Items {
			if d.Status.Replicas != podsPerDeployment {
				return false, nil
			}
		}
		return true, nil
	})
}

// count counts which objects the informers of the rings hold in each process. An instance holds the
// ReplicaSets of its range by their own keys, and again those of its Deployments.
func (b *benchmark) count(ctx context.Context, managers int, processes []usage) error {
	sets, err := b.client.AppsV1().ReplicaSets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if managers == 0 {
		processes[0].replicaSets = len(sets.Items)
		processes[0].pods = podsPerDeployment * len(sets.Items)
		return nil
	}
	workloads, err := b.owned(ctx, catalogue.WorkloadsRing)
	if err != nil {
		return err
	}
	namespaces, err := b.owned(ctx, catalogue.NamespacesRing)
	if err != nil {
		return err
	}
	for i := range processes {
		u := &processes[i]
		for n := range sets.Items {
			rs := &sets.Items[n]
			if workloads[i].Contains(metav1.HashKeyOf(rs)) {
				u.pods += podsPerDeployment
				u.replicaSets++
			}
			if owner := metav1.GetControllerOfNoCopy(rs); owner != nil && workloads[i].Contains(metav1.HashKeyOfOwner(owner)) {
				u.replicaSets++
			}
			if namespaces[i].Contains(hashkey.OfNamespace(rs.Namespace)) {
				u.podsInNamespaces += podsPerDeployment
			}
		}
	}
	return nil
}

// owned returns the ranges of each process in the ring.
func (b *benchmark) owned(ctx context.Context, name string) ([]hashkey.Ranges, error) {
	ring, err := ringtable.Get(ctx, b.client, name)
	if err != nil {
		return nil, err
	}
	owned := make([]hashkey.Ranges, len(b.managers))
	for _, i := range ring.Instances {
		for n, m := range b.managers {
			if pid, _ := ownership.PID(i.Holder); pid == m.pid {
				owned[n] = i.Owned
			}
		}
	}
	return owned, nil
}
