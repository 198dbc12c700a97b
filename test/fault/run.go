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
	"log"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apps "k8s.io/api/apps/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/pkg/localcluster"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/audit"
	"k8s.io/kubernetes/test/harness/history"
	"k8s.io/kubernetes/test/harness/objects"
	"k8s.io/kubernetes/test/harness/proxy"
	"k8s.io/utils/ptr"
)

const (
	etcdName       = string(localcluster.Etcd)
	firstAPIServer = string(localcluster.KubeAPIServer)
	namespace      = metav1.NamespaceDefault
	// soon bounds the wait for any condition. It is ample even for a slow machine.
	soon = 3 * time.Minute
	// lease is the duration of the instances' leases, the default.
	lease = 15 * time.Second
)

// run is a cluster under load.
type run struct {
	options
	cluster *localcluster.Cluster
	client  kubernetes.Interface
	history *history.History[*checker]
	anew    *anewLoad
	rand    *rand.Rand
	// servers are the names of the API servers. The controller managers take turns at them, so
	// that what one has written reaches others by another server's watch cache.
	servers []string
	// sets are the ReplicaSets, and every fourth a ReplicationController.
	sets []*apps.ReplicaSet

	lock      sync.Mutex
	processes []*process
	refused   int
	// compared has what a stock controller manager has written, nil before there is one.
	compared *comparison
	// still says that the load of the rings is not evened out.
	still bool
	// loading is held while the ReplicaSets' replicas are changed.
	loading sync.Mutex
	// grown counts how often a claim has asked for more.
	grown atomic.Int32
	stop  []func()
}

// process is one controller manager.
type process struct {
	name string
	// port is where it serves.
	port string
	// proxy leads to the API server of that URL.
	proxy  *proxy.Proxy
	server string
	// settingsFile is the file of its ring settings, and always what these begin with.
	settingsFile, always string
	// faulty means that a fault may make it lose its record.
	faulty bool
	// hindrances are those since the last judgement.
	hindrances []hindrance
}

// Contents of a settings file.
const (
	// onRing has the load evened out as fast as it can be.
	onRing     = "balance: {tolerancePercent: 1, keysPercentPerMinute: 100}"
	offRing    = "controllers: []"
	longLeases = "leaseDuration: 60s\n" + onRing
)

// set changes the ring settings of the controller manager.
func (p *process) set(settings string) error {
	// Otherwise a half-written file could be read, and would be logged as invalid.
	next := p.settingsFile + ".next"
	return errors.Join(os.WriteFile(next, []byte(p.always+settings), 0o644), os.Rename(next, p.settingsFile))
}

// start starts the cluster, with its controller managers, and waits until all
// ReplicaSets exist and have their pods.
func start(ctx context.Context, o options) (_ *run, err error) {
	r := &run{options: o, rand: rand.New(rand.NewPCG(o.seed, 0))}
	defer func() {
		if err != nil {
			r.end()
		}
	}()
	if err := errors.Join(os.RemoveAll(o.dir), os.MkdirAll(o.dir, 0o755)); err != nil {
		return nil, err
	}
	if err := r.startCluster(ctx); err != nil {
		return nil, err
	}
	if err := r.startJudging(ctx); err != nil {
		return nil, err
	}
	for range o.instances {
		if _, err := r.add(ctx, onRing); err != nil {
			return nil, err
		}
	}
	return r, r.createSets(ctx)
}

// auditLog is the file that an API server writes its audit log to.
func (r *run) auditLog(apiServer string) string {
	return filepath.Join(r.dir, apiServer+"-audit.log")
}

// startCluster starts etcd and the API servers, without controller managers.
func (r *run) startCluster(ctx context.Context) (err error) {
	auditing, err := audit.Flags(r.dir, auditPolicy, r.auditLog(firstAPIServer))
	if err != nil {
		return err
	}
	config := localcluster.Config{
		BinDir: r.bin, Dir: filepath.Join(r.dir, "cluster"), WithoutNodes: true,
		Args: map[localcluster.Component][]string{
			localcluster.KubeAPIServer: auditing,
			localcluster.KubeControllerManager: {
				"--controllers=" + strings.Join(append(catalogue.ControllerNames(), helpers...), ","),
				"--kube-api-qps=2000", "--kube-api-burst=2000", "--concurrent-replicaset-syncs=20", "--concurrent-rc-syncs=20", "--concurrent-deployment-syncs=10", "--concurrent-job-syncs=10",
			},
		},
		Died: func(exit *localcluster.Exit) { log.Printf("DIED: %v", exit) },
	}
	if r.stock {
		config.FeatureGates = map[string]bool{"ControllerRing": false}
	}
	if r.cluster, err = localcluster.Start(ctx, config); err != nil {
		return err
	}
	r.stop = append(r.stop, func() {
		if err := r.cluster.Stop(context.WithoutCancel(ctx)); err != nil {
			log.Print(err)
		}
	})
	r.servers = []string{firstAPIServer}
	for len(r.servers) < r.apiServers {
		next := fmt.Sprintf("%s-%d", firstAPIServer, len(r.servers)+1)
		if _, err := r.cluster.AddAPIServer(ctx, audit.LogTo(r.auditLog(next))); err != nil {
			return err
		}
		r.servers = append(r.servers, next)
	}
	r.client = r.cluster.Client()
	return nil
}

// helpers are the leader's controllers that the judged ones count on. The pod garbage collector
// finishes deletes of pods on no node that an API server's end has cut in two.
var helpers = []string{
	"serviceaccount-controller", "root-ca-certificate-publisher-controller", "garbage-collector-controller",
	"pod-garbage-collector-controller",
}

// startJudging follows etcd's history and the audit logs until the run ends.
func (r *run) startJudging(ctx context.Context) error {
	endpoint, err := r.cluster.Endpoint(etcdName)
	if err != nil {
		return err
	}
	following, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.stop = append(r.stop, cancel)
	processOf := r.processOf
	if r.stock {
		processOf = nil
	}
	if r.history, err = follow(following, endpoint, r.dir, processOf); err != nil {
		return err
	}
	for _, name := range r.servers {
		go func() {
			if err := audit.Read(following, r.auditLog(name), r.hear); err != nil {
				r.history.Fail(err)
			}
		}()
	}
	return nil
}

func (r *run) end() {
	for _, stop := range slices.Backward(r.stop) {
		stop()
	}
	for _, p := range r.processes {
		p.proxy.Close()
	}
}

// hear handles an event of the audit log.
func (r *run) hear(e auditEvent) {
	p := r.from(e.SourceIPs)
	r.lock.Lock()
	if r.compared != nil {
		r.compared.hear(e, p)
	}
	r.lock.Unlock()
	if p == nil {
		return
	}
	if e.Fenced() {
		r.lock.Lock()
		r.refused++
		r.lock.Unlock()
	}
	if w, ok := e.write(); ok {
		w.process = p.name
		r.history.Change(func(c *checker) error { c.written(w); return nil })
	} else if e.ObjectRef.Resource == "controllerinstances" && e.Verb == "delete" {
		r.history.See(func(c *checker) { c.left[e.ObjectRef.Name] = true })
	} else if e.failed() && e.verb() != "" {
		what := e.verb() + " " + e.ObjectRef.Name
		r.history.See(func(c *checker) { c.unclear[what] = append(c.unclear[what], p.name) })
	}
}

// from returns the process that sends from the first of these addresses, or nil.
func (r *run) from(ips []string) *process {
	r.lock.Lock()
	defer r.lock.Unlock()
	for _, p := range r.processes {
		if len(ips) > 0 && p.proxy.SendsFrom(ips[0]) {
			return p
		}
	}
	return nil
}

// processOf returns the name of the process whose holderIdentity, HOST:PORT_PID_RANDOM, is given.
// No two processes of a cluster have the same port, while a pid may come again within an hour.
func (r *run) processOf(holder string) string {
	slot, _, _ := strings.Cut(holder, "_")
	_, port, _ := net.SplitHostPort(slot)
	r.lock.Lock()
	defer r.lock.Unlock()
	for _, p := range r.processes {
		if port != "" && port == p.port {
			return p.name
		}
	}
	return holder
}

// add starts a controller manager, behind a proxy of its own.
func (r *run) add(ctx context.Context, settings string) (*process, error) {
	r.lock.Lock()
	n := len(r.processes)
	r.lock.Unlock()
	p := &process{settingsFile: filepath.Join(r.dir, fmt.Sprintf("ring-%d.yaml", n+1))}
	if r.presence != "" {
		p.always = "presence: " + r.presence + "\n"
	}
	var args []string
	if !r.stock {
		if err := p.set(settings); err != nil {
			return nil, err
		}
		args = append(args, "--controller-ring-config="+p.settingsFile)
	}
	return p, r.startProcess(ctx, p, r.servers[n%len(r.servers)], args...)
}

// addStock starts a controller manager with the feature gate off, which behaves as a stock one, at
// the first API server, and has c hear what it writes.
func (r *run) addStock(ctx context.Context, c *comparison) (*process, error) {
	p := &process{}
	r.lock.Lock()
	c.process, r.compared = p, c
	r.lock.Unlock()
	return p, r.startProcess(ctx, p, firstAPIServer, "--feature-gates=ControllerRing=false")
}

// startProcess starts a controller manager behind a proxy that leads to that API server.
func (r *run) startProcess(ctx context.Context, p *process, server string, args ...string) error {
	r.lock.Lock()
	n := len(r.processes)
	var err error
	if p.server, err = r.cluster.Endpoint(server); err == nil {
		p.proxy, err = proxy.New(proxy.Source(n), p.server)
	}
	if err == nil {
		r.processes = append(r.processes, p)
	}
	r.lock.Unlock()
	if err != nil {
		return err
	}
	name, err := r.cluster.AddControllerManager(ctx, append(args, "--master="+p.proxy.URL())...)
	if err != nil {
		return err
	}
	served, err := r.cluster.Endpoint(name)
	if err != nil {
		return err
	}
	at, err := url.Parse(served)
	if err != nil {
		return err
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	p.name, p.port = name, at.Port()
	return nil
}

// running returns the running controller managers.
func (r *run) running() []*process {
	names := r.cluster.ControllerManagers()
	r.lock.Lock()
	defer r.lock.Unlock()
	var out []*process
	for _, p := range r.processes {
		if slices.Contains(names, p.name) {
			out = append(out, p)
		}
	}
	return out
}

func (r *run) createSets(ctx context.Context) error {
	if err := r.cluster.AwaitServiceAccount(ctx, namespace); err != nil {
		return err
	}
	for i := range r.replicaSets {
		pods, replicas := objects.Pods(map[string]string{"set": fmt.Sprint(i)}), int32(r.maxReplicas/2)
		rs := objects.ReplicaSet(fmt.Sprintf("set-%02d", i), replicas, pods)
		var err error
		if i%4 == 3 {
			rc := objects.ReplicationController(fmt.Sprintf("controller-%02d", i), replicas, pods)
			err = objects.Create(ctx, r.client, namespace, rc)
			rs = asReplicaSet(rc)
		} else {
			err = objects.Create(ctx, r.client, namespace, rs)
		}
		if err != nil {
			return err
		}
		r.sets = append(r.sets, rs)
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.stop = append(r.stop, cancel)
	runPods := func(context.Context) error { return r.runPods(running) }
	for _, next := range []func(context.Context) error{
		r.createDeployments, r.createDaemonSets, runPods, r.createCronJobs, r.createNamespaces, r.createAnew, r.settle,
	} {
		if err := next(ctx); err != nil {
			return err
		}
	}
	return nil
}

// createDeployments creates the Deployments.
func (r *run) createDeployments(ctx context.Context) error {
	// No pod becomes ready here, so a rollout must not wait for one.
	whole := intstr.FromString("100%")
	for i := range r.deployments {
		d := objects.Deployment(deploymentName(i), int32(r.maxReplicas/2), objects.Pods(map[string]string{"deployment": fmt.Sprint(i)}))
		d.Spec.RevisionHistoryLimit = ptr.To[int32](2)
		d.Spec.Strategy = apps.DeploymentStrategy{Type: apps.RollingUpdateDeploymentStrategyType, RollingUpdate: &apps.RollingUpdateDeployment{MaxUnavailable: &whole}}
		// Its pods run nowhere. Once a rollout has ended, upstream's controller looks at a Deployment
		// without available pods ten times a second after its deadline, and has no rest.
		d.Spec.ProgressDeadlineSeconds = ptr.To[int32](24 * 60 * 60)
		if err := objects.Create(ctx, r.client, namespace, d); err != nil {
			return err
		}
	}
	return nil
}

func deploymentName(i int) string { return fmt.Sprintf("deployment-%02d", i) }

// rollOrScale rolls out every second Deployment, and scales the others: one that is scaled amid
// its rollout may never be rolled out again (kubernetes/kubernetes#138036).
func (r *run) rollOrScale(ctx context.Context, i, replicas int) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	if i%2 == 0 {
		patch = fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"at":"%d"}}}}}`, time.Now().UnixNano())
	}
	_, err := r.client.AppsV1().Deployments(namespace).Patch(ctx, deploymentName(i), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// scale sets the replicas of a ReplicaSet.
func (r *run) scale(ctx context.Context, rs *apps.ReplicaSet, replicas int) (err error) {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	if rs.Kind == replicationController {
		_, err = r.client.CoreV1().ReplicationControllers(namespace).Patch(ctx, rs.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	} else {
		_, err = r.client.AppsV1().ReplicaSets(namespace).Patch(ctx, rs.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	return err
}

// load scales ReplicaSets, scales or rolls out Deployments, runs Jobs, and rolls out DaemonSets and
// changes their Nodes, at random until ctx ends.
func (r *run) load(ctx context.Context) {
	random := rand.New(rand.NewPCG(r.seed, r.rand.Uint64()))
	for ctx.Err() == nil {
		r.loading.Lock()
		// A request may fail because of the fault.
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		replicas := random.IntN(r.maxReplicas + 1)
		if i := random.IntN(len(r.sets) + r.deployments); i < len(r.sets) {
			_ = r.scale(bounded, r.sets[i], replicas)
		} else {
			_ = r.rollOrScale(bounded, i-len(r.sets), replicas)
		}
		switch random.IntN(20) {
		case 0:
			r.changeDaemons(bounded, random)
		case 1, 2, 3:
			r.runJob(bounded, random)
		case 4, 5, 6, 7:
			r.changeNamespace(bounded, random)
		case 8:
			r.changeVolumes(bounded, random)
		case 9:
			r.makeAnew(bounded, random)
		}
		cancel()
		r.loading.Unlock()
		_ = harness.Sleep(ctx, 30*time.Millisecond)
	}
}

// settle waits until every ReplicaSet and DaemonSet has the pods it wants, its status says so,
// every rollout is complete, every Job has finished, and the ring is complete.
func (r *run) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, soon, errors.New("not within 3 minutes"))
	defer cancel()
	var left []string
	err := r.history.Await(ctx, "a settled cluster", func(c *checker) bool {
		left = slices.Concat(c.unsettled(), c.unrolled(), c.unfinished(), c.undaemoned(), c.unspread(), c.unkept())
		bare := 0
		for _, s := range c.sets {
			if s.parent == "" {
				bare++
			}
		}
		if bare != len(r.sets) || len(c.deployments) != r.deployments {
			left = append(left, fmt.Sprintf("%d ReplicaSets of %d, %d Deployments of %d", bare, len(r.sets), len(c.deployments), r.deployments))
		}
		if !r.stock {
			// A leader that has lost its Lease may end only now.
			left = append(left, c.unringed(len(r.running()), r.still)...)
		}
		return len(left) == 0
	})
	if err != nil {
		return fmt.Errorf("%w; %s", err, strings.Join(left, "; "))
	}
	return nil
}

// settleWithoutLoad waits for the same while nothing is scaled or rolled out.
func (r *run) settleWithoutLoad(ctx context.Context) error {
	r.loading.Lock()
	defer r.loading.Unlock()
	return r.settle(ctx)
}

// unringed lists what differs from rings of n instances that work on a range. No handover is open
// if they are still; else boundaries may move to even out the load.
func (c *checker) unringed(n int, still bool) []string {
	var left []string
	for _, ring := range catalogue.Rings() {
		if now := len(c.instances.Ring(ring.Name)); now != n {
			left = append(left, fmt.Sprintf("%d instances of ring %s, want %d", now, ring.Name, n))
		}
	}
	for _, i := range c.instances {
		moves := !still && i.Status.Phase == shardingv1alpha1.InstanceWait
		if i.Status.Phase != shardingv1alpha1.InstanceActive && !moves || i.Spec.HashKey == nil || i.Spec.NextHashKey != nil && still {
			left = append(left, fmt.Sprintf("%s is %s", i.Name, i.Status.Phase))
		}
	}
	return left
}

// owned returns the ReplicaSets that the process owns.
func (r *run) owned(p *process) []*apps.ReplicaSet {
	if r.stock {
		return r.sets
	}
	var out []*apps.ReplicaSet
	r.history.See(func(c *checker) {
		for _, rs := range r.sets {
			if i := c.instances.Owner(catalogue.WorkloadsRing, metav1.HashKeyOf(rs)); i != nil && r.processOf(i.Spec.HolderIdentity) == p.name {
				out = append(out, rs)
			}
		}
	})
	return out
}

// victim returns a random process that owns ReplicaSets.
func (r *run) victim() (*process, error) {
	victims := r.victims()
	if len(victims) == 0 {
		return nil, errors.New("no process works on any ReplicaSet")
	}
	return victims[0], nil
}

// victims returns all processes that work on ReplicaSets, in random order.
func (r *run) victims() []*process {
	running := r.running()
	r.rand.Shuffle(len(running), func(i, j int) { running[i], running[j] = running[j], running[i] })
	if r.stock {
		// The leader is the process with the latest write.
		var last auditWrite
		r.history.See(func(c *checker) {
			for _, w := range c.told {
				if w.at.After(last.at) {
					last = w
				}
			}
		})
		running = slices.DeleteFunc(running, func(p *process) bool { return p.name != last.process })
	}
	return slices.DeleteFunc(running, func(p *process) bool { return len(r.owned(p)) == 0 })
}

// probes is how many ReplicaSets of a range are watched for the first write of its new
// owner.
const probes = 4

// takeover keeps scaling some of the ReplicaSets between replicas and one more. For
// each it returns how long after begin another process than from first created or
// deleted a pod.
func (r *run) takeover(ctx context.Context, from *process, sets []*apps.ReplicaSet, begin time.Time, replicas int) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, soon, errors.New("not within 3 minutes"))
	defer cancel()
	sets = sets[:min(len(sets), probes)]
	first := map[types.UID]time.Duration{}
	look := func(c *checker) bool {
		for _, rs := range sets {
			for _, w := range c.recent[rs.UID] {
				if _, done := first[rs.UID]; !done && w.process != from.name && w.at.After(begin) {
					first[rs.UID] = w.at.Sub(begin)
				}
			}
		}
		return len(first) == len(sets)
	}
	for n := 0; ; n++ {
		var done bool
		r.history.See(func(c *checker) { done = look(c) })
		if done {
			break
		}
		for _, rs := range sets {
			if _, done := first[rs.UID]; !done {
				_ = r.scale(ctx, rs, replicas+n%2)
			}
		}
		if err := harness.Sleep(ctx, 20*time.Millisecond); err != nil {
			return nil, fmt.Errorf("waiting for another process to take over from %s: %w", from.name, err)
		}
	}
	var out []time.Duration
	for _, d := range first {
		out = append(out, d)
	}
	return out, nil
}
