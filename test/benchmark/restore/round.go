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
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/localcluster"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/objects"
	"k8s.io/kubernetes/test/utils/etcdbackup"
	"k8s.io/utils/ptr"
)

const (
	managers = 3
	// limit is how long a round waits until all is right, and held for how long that has to last.
	limit = 2 * time.Minute
	held  = 10 * time.Second
	// loadSets ReplicaSets of loadPods pods have a pod deleted every loadPause.
	loadSets, loadPods = 20, 10
	loadPause          = 100 * time.Millisecond
	// soon bounds what should take no time.
	soon = 2 * time.Minute
)

// cluster is that of a side.
type cluster struct {
	*bench
	*localcluster.Cluster
	client kubernetes.Interface
	// rounds are those that have begun.
	rounds int

	lock sync.Mutex
	// kept are the processes that are started again whenever they have ended.
	kept map[string]bool
}

// onCluster starts a cluster for that side, with its load, and calls f.
func (b *bench) onCluster(ctx context.Context, s side, f func(*cluster) error) (err error) {
	c := &cluster{bench: b, kept: map[string]bool{}}
	c.Cluster, err = localcluster.Start(ctx, localcluster.Config{
		BinDir: b.bin, Dir: filepath.Join(b.dir, "cluster"), Instances: managers, WithoutNodes: true,
		FeatureGates: map[string]bool{"ControllerRing": !s.off},
		Args:         map[localcluster.Component][]string{localcluster.KubeControllerManager: {"--kube-api-qps=500", "--kube-api-burst=500"}},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop(context.WithoutCancel(ctx))) }()
	config := c.RESTConfig()
	config.Timeout = 5 * time.Second
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	for n := range loadSets {
		name := fmt.Sprintf("load-%d", n)
		if err := objects.Create(ctx, c.client, "default", objects.ReplicaSet(name, loadPods, template(name))); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	for _, name := range append(c.ControllerManagers(), string(localcluster.KubeAPIServer)) {
		c.keep(name, true)
		beside.Go(func() { c.startAgain(ctx, name) })
	}
	beside.Go(func() { c.deletePods(ctx) })
	return f(c)
}

// keep says whether a process is to be started again.
func (c *cluster) keep(name string, is bool) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.kept[name] = is
}

// startAgain does for a process what a kubelet does.
func (c *cluster) startAgain(ctx context.Context, name string) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		c.lock.Lock()
		kept := c.kept[name]
		c.lock.Unlock()
		if kept {
			// It fails while the process runs. Others must not wait until this one is ready.
			ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			_ = c.StartAgain(ctx, name)
		}
	}, 200*time.Millisecond)
}

func template(app string) v1.PodTemplateSpec {
	pods := objects.Pods(map[string]string{"app": app})
	pods.Spec.Containers[0].Image = "x"
	pods.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
	return pods
}

func (c *cluster) createDeployment(ctx context.Context, name string, replicas int32) error {
	d := objects.Deployment(name, replicas, template(name))
	// No pod is ever ready: a scheduler and nodes would be wrong after a restore, too.
	d.Spec.Strategy = apps.DeploymentStrategy{
		Type:          apps.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &apps.RollingUpdateDeployment{MaxUnavailable: ptr.To(intstr.FromString("100%")), MaxSurge: ptr.To(intstr.FromInt32(0))},
	}
	return objects.Create(ctx, c.client, "default", d)
}

// deletePods is the load: it goes on whether it is answered or not.
func (c *cluster) deletePods(ctx context.Context) {
	n := 0
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		n++
		list, err := c.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: fmt.Sprintf("app=load-%d", n%loadSets), ResourceVersion: "0"})
		if err == nil && len(list.Items) > 0 {
			_ = c.client.CoreV1().Pods("default").Delete(ctx, list.Items[n%len(list.Items)].Name, metav1.DeleteOptions{})
		}
	}, loadPause)
}

// until waits for a condition.
func until(ctx context.Context, what string, condition wait.ConditionWithContextFunc) error {
	if err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, soon, true, condition); err != nil {
		return fmt.Errorf("waiting until %s: %w", what, err)
	}
	return nil
}

// rolledOut waits until a Deployment has all pods that it wants, and no others.
func (c *cluster) rolledOut(ctx context.Context, name string) error {
	return until(ctx, name+" is rolled out", func(ctx context.Context) (bool, error) {
		d, err := c.client.AppsV1().Deployments("default").Get(ctx, name, metav1.GetOptions{})
		return err == nil && d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas == *d.Spec.Replicas &&
			d.Status.Replicas == *d.Spec.Replicas, nil
	})
}

// round restores etcd once.
func (c *cluster) round(ctx context.Context, k kind, mode string) (outcome, error) {
	c.rounds++
	name := func(what string) string { return fmt.Sprintf("%s-%d", what, c.rounds) }
	rolled, back, lost := name("rolled"), name("back"), name("lost")
	for _, d := range []string{rolled, back} {
		if err := c.createDeployment(ctx, d, 3); err != nil {
			return outcome{}, err
		}
	}
	for _, d := range []string{rolled, back} {
		if err := c.rolledOut(ctx, d); err != nil {
			return outcome{}, err
		}
	}
	endpoint, err := c.Endpoint(string(localcluster.Etcd))
	if err != nil {
		return outcome{}, err
	}
	backup := filepath.Join(c.dir, "backup.db")
	if err := etcdbackup.Take(ctx, endpoint, backup); err != nil {
		return outcome{}, err
	}
	defer os.Remove(backup)
	change := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"y"}]}}}}`)
	if _, err := c.client.AppsV1().Deployments("default").Patch(ctx, rolled, "application/strategic-merge-patch+json", change, metav1.PatchOptions{}); err != nil {
		return outcome{}, err
	}
	if err := c.rolledOut(ctx, rolled); err != nil {
		return outcome{}, err
	}
	if err := c.client.AppsV1().Deployments("default").Delete(ctx, back, metav1.DeleteOptions{}); err != nil {
		return outcome{}, err
	}
	if err := c.createDeployment(ctx, lost, 5); err != nil {
		return outcome{}, err
	}
	if err := c.write(ctx, c.writes); err != nil {
		return outcome{}, err
	}
	seen, err := c.revision(ctx)
	if err != nil {
		return outcome{}, err
	}
	goOn, err := c.restoreUnder(ctx, k, mode, backup, seen)
	if err != nil {
		return outcome{}, err
	}
	if err := goOn(ctx); err != nil {
		return outcome{}, err
	}
	asked := name("asked")
	err = until(ctx, asked+" is created", func(ctx context.Context) (bool, error) { return c.createDeployment(ctx, asked, 3) == nil, nil })
	if err != nil {
		return outcome{}, err
	}
	got, err := c.watch(ctx, map[string]int{rolled: 3, back: 3, lost: 0, asked: 3})
	// The next round begins with right caches.
	if err == nil && mode == "served" {
		err = c.startServerAnew(ctx)
	}
	if err == nil && got.right >= limit {
		for _, manager := range c.ControllerManagers() {
			err = errors.Join(err, c.Kill(manager))
		}
	}
	return got, err
}

// startServerAnew ends the API server, and waits until the next one serves.
func (c *cluster) startServerAnew(ctx context.Context) error {
	if err := c.Kill(string(localcluster.KubeAPIServer)); err != nil {
		return err
	}
	return until(ctx, "the API server serves again", func(ctx context.Context) (bool, error) {
		_, err := c.client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	})
}

// restoreUnder restores etcd. The function that it returns lets the managers go on.
func (c *cluster) restoreUnder(ctx context.Context, k kind, mode, backup string, seen int64) (func(context.Context) error, error) {
	names := c.ControllerManagers()
	goOn := func(context.Context) error { return nil }
	switch mode {
	case "restarted":
		for _, name := range names {
			c.keep(name, false)
			if err := c.StopProcess(ctx, name); err != nil {
				return nil, err
			}
		}
		goOn = func(context.Context) error {
			for _, name := range names {
				c.keep(name, true)
			}
			return nil
		}
	case "paused":
		for _, name := range names {
			if err := c.Signal(name, syscall.SIGSTOP); err != nil {
				return nil, err
			}
		}
		goOn = func(ctx context.Context) error {
			if err := c.pass(ctx, seen); err != nil {
				return err
			}
			for _, name := range names {
				if err := c.Signal(name, syscall.SIGCONT); err != nil {
					return err
				}
			}
			return nil
		}
	}
	servers := []string{string(localcluster.Etcd), string(localcluster.KubeAPIServer)}
	if mode == "served" {
		servers = servers[:1]
	}
	for _, server := range servers {
		c.keep(server, false)
		if err := c.Kill(server); err != nil {
			return nil, err
		}
	}
	if err := c.restore(backup, k.flags); err != nil {
		return nil, err
	}
	for _, server := range servers {
		if err := c.StartAgain(ctx, server); err != nil {
			return nil, err
		}
	}
	c.keep(string(localcluster.KubeAPIServer), true)
	return goOn, nil
}

// pass writes until the revision is above the one that was seen before the restore.
func (c *cluster) pass(ctx context.Context, seen int64) error {
	for {
		now, err := c.revision(ctx)
		if err != nil || now > seen {
			return err
		}
		if err := c.write(ctx, int(seen-now)+1); err != nil {
			return err
		}
	}
}

// restore puts the data of a backup in the place of etcd's.
func (c *cluster) restore(backup string, flags []string) error {
	data := filepath.Join(c.dir, "cluster", "etcd")
	if err := os.RemoveAll(data); err != nil {
		return err
	}
	return etcdbackup.Restore(filepath.Join(c.bin, "etcdutl"), backup, data, "local", "http://127.0.0.1:2380", flags...)
}

// write writes that many objects.
func (c *cluster) write(ctx context.Context, n int) error {
	return harness.Parallel(ctx, 16, n, func(ctx context.Context, _ int) error {
		return objects.Create(ctx, c.client, "default", &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "written-"}})
	})
}

// revision returns that of etcd.
func (c *cluster) revision(ctx context.Context) (int64, error) {
	list, err := c.client.CoreV1().ConfigMaps("kube-system").List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(list.ResourceVersion, 10, 64)
}

// watch looks until there are as many pods as each Deployment wants, all of the restored template,
// and that has lasted.
func (c *cluster) watch(ctx context.Context, want map[string]int) (outcome, error) {
	began := time.Now()
	got := outcome{right: -1}
	err := wait.PollUntilContextCancel(ctx, 250*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		right := true
		for app, n := range want {
			list, err := c.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
			if err != nil {
				return false, nil //nolint:nilerr // the API server may be slow
			}
			pods, lost := 0, 0
			for _, p := range list.Items {
				if p.DeletionTimestamp != nil {
					continue
				}
				pods++
				if p.Spec.Containers[0].Image != "x" {
					lost++
				}
			}
			got.excess = max(got.excess, pods-n)
			right = right && pods == n && lost == 0
		}
		since := time.Since(began)
		switch {
		case !right:
			got.right = -1
		case got.right < 0:
			got.right = since
		}
		if since >= limit && got.right < 0 {
			got.right = limit
			return true, nil
		}
		return got.right >= 0 && since-got.right >= held, nil
	})
	return got, err
}
