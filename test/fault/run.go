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
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/test/utils/localcluster"
)

const (
	etcdName      = string(localcluster.Etcd)
	apiServerName = string(localcluster.KubeAPIServer)
	namespace     = metav1.NamespaceDefault
	// soon is how long a condition may take on a slow machine; none is expected to.
	soon = 3 * time.Minute
	// lease is the instances' lease; the default one.
	lease = 6 * time.Second
)

// run is a cluster under load, with all that is known of it.
type run struct {
	options
	cluster *localcluster.Cluster
	client  kubernetes.Interface
	history *history
	rand    *rand.Rand
	sets    []*apps.ReplicaSet

	lock      sync.Mutex
	processes []*process
	refused   int
	// loading is held by whoever changes what ReplicaSets want.
	loading sync.Mutex
	stop    []func()
}

// process is one controller manager.
type process struct {
	name  string
	pid   int
	proxy *proxy
	// settingsFile says how it takes part in the ring.
	settingsFile string
	// faulty says that it was treated so that it may lose its record.
	faulty bool
}

// What a settings file says.
const (
	onRing     = "{}"
	offRing    = "controllers: []"
	longLeases = "leaseDuration: 60s"
)

// set changes how the controller manager takes part in the ring.
func (p *process) set(settings string) error {
	// A half-written file would only be read again, with a line in the log.
	next := p.settingsFile + ".next"
	return errors.Join(os.WriteFile(next, []byte(settings), 0o644), os.Rename(next, p.settingsFile))
}

// start starts the cluster, with its controller managers, and waits until all
// ReplicaSets are there and filled.
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
	policy := filepath.Join(o.dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o644); err != nil {
		return nil, err
	}
	audit := filepath.Join(o.dir, "audit.log")
	config := localcluster.Config{
		BinDir: o.bin, Dir: filepath.Join(o.dir, "cluster"),
		Args: map[localcluster.Component][]string{
			localcluster.KubeAPIServer: {"--audit-policy-file=" + policy, "--audit-log-path=" + audit, "--audit-log-maxsize=0"},
			localcluster.KubeControllerManager: {
				"--controllers=replicaset-controller,serviceaccount-controller,root-ca-certificate-publisher-controller",
				"--kube-api-qps=2000", "--kube-api-burst=2000", "--concurrent-replicaset-syncs=20",
			},
		},
		Died: func(exit *localcluster.Exit) { log.Printf("DIED: %v", exit) },
	}
	if o.stock {
		config.FeatureGates = map[string]bool{"ControllerRing": false}
	}
	if r.cluster, err = localcluster.Start(ctx, config); err != nil {
		return nil, err
	}
	r.stop = append(r.stop, func() {
		if err := r.cluster.Stop(context.WithoutCancel(ctx)); err != nil {
			log.Print(err)
		}
	})
	// The pods need no nodes.
	for _, idle := range []localcluster.Component{localcluster.KubeScheduler, localcluster.Kwok} {
		if err := r.cluster.StopProcess(ctx, string(idle)); err != nil {
			return nil, err
		}
	}
	if r.client, err = kubernetes.NewForConfig(r.cluster.RESTConfig()); err != nil {
		return nil, err
	}
	endpoint, err := r.cluster.Endpoint(etcdName)
	if err != nil {
		return nil, err
	}
	following, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.stop = append(r.stop, cancel)
	processOf := r.processOf
	if o.stock {
		processOf = nil
	}
	if r.history, err = follow(following, endpoint, o.dir, processOf); err != nil {
		return nil, err
	}
	go func() {
		if err := readAudit(following, audit, r.hear); err != nil {
			r.history.fail(err)
		}
	}()
	for range o.instances {
		if _, err := r.add(ctx, onRing); err != nil {
			return nil, err
		}
	}
	return r, r.createSets(ctx)
}

func (r *run) end() {
	for _, stop := range slices.Backward(r.stop) {
		stop()
	}
	for _, p := range r.processes {
		p.proxy.close()
	}
}

// hear takes an event of the audit log.
func (r *run) hear(e auditEvent) {
	p := r.from(e.SourceIPs)
	if p == nil {
		return
	}
	if w, ok := e.write(); ok {
		w.process = p.name
		r.history.hear(w)
	} else if e.ObjectRef.Resource == "controllerinstances" && e.Verb == "delete" {
		r.history.leaves(e.ObjectRef.Name)
	} else if e.failed() && e.verb() != "" {
		r.history.doubt(e.verb(), e.ObjectRef.Name, p.name)
	} else if e.fenced() {
		r.lock.Lock()
		r.refused++
		r.lock.Unlock()
	}
}

// from returns the process behind an address.
func (r *run) from(ips []string) *process {
	r.lock.Lock()
	defer r.lock.Unlock()
	for _, p := range r.processes {
		if len(ips) > 0 && p.proxy.source.String() == ips[0] {
			return p
		}
	}
	return nil
}

// processOf returns the name of the process that the holderIdentity HOST_PID_RANDOM
// names. No two processes of a run have the same pid.
func (r *run) processOf(holder string) string {
	parts := strings.Split(holder, "_")
	r.lock.Lock()
	defer r.lock.Unlock()
	for _, p := range r.processes {
		if len(parts) == 3 && parts[1] == fmt.Sprint(p.pid) {
			return p.name
		}
	}
	return holder
}

// add starts a controller manager, behind a proxy of its own.
func (r *run) add(ctx context.Context, settings string) (*process, error) {
	endpoint, err := r.cluster.Endpoint(apiServerName)
	if err != nil {
		return nil, err
	}
	r.lock.Lock()
	n := len(r.processes)
	p := &process{settingsFile: filepath.Join(r.dir, fmt.Sprintf("ring-%d.yaml", n+1))}
	p.proxy, err = newProxy(strings.TrimPrefix(endpoint, "https://"), net.IPv4(127, 0, byte(1+n/250), byte(1+n%250)))
	if err == nil {
		r.processes = append(r.processes, p)
	}
	r.lock.Unlock()
	if err != nil {
		return nil, err
	}
	args := []string{"--master=" + p.proxy.url()}
	if !r.stock {
		if err := p.set(settings); err != nil {
			return nil, err
		}
		args = append(args, "--controller-ring-config="+p.settingsFile)
	}
	name, err := r.cluster.AddControllerManager(ctx, args...)
	if err != nil {
		return nil, err
	}
	pid, err := r.cluster.PID(name)
	if err != nil {
		return nil, err
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	for _, other := range r.processes {
		if other.pid == pid {
			return nil, fmt.Errorf("%s has the pid %d that %s had", name, pid, other.name)
		}
	}
	p.name, p.pid = name, pid
	return p, nil
}

// running returns the controller managers that run.
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
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, soon, true, func(ctx context.Context) (bool, error) {
		_, err := r.client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the service account of pods: %w", err)
	}
	for i := range r.replicaSets {
		labels := map[string]string{"set": fmt.Sprint(i)}
		replicas := int32(r.maxReplicas / 2)
		rs, err := r.client.AppsV1().ReplicaSets(namespace).Create(ctx, &apps.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("set-%02d", i)},
			Spec: apps.ReplicaSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: v1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "image"}}},
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		r.sets = append(r.sets, rs)
	}
	return r.settle(ctx)
}

// scale sets what a ReplicaSet wants.
func (r *run) scale(ctx context.Context, rs *apps.ReplicaSet, replicas int) error {
	_, err := r.client.AppsV1().ReplicaSets(namespace).Patch(ctx, rs.Name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
	return err
}

// load scales ReplicaSets up and down at random until ctx ends.
func (r *run) load(ctx context.Context) {
	random := rand.New(rand.NewPCG(r.seed, r.rand.Uint64()))
	for ctx.Err() == nil {
		r.loading.Lock()
		// What fails because of a fault is no loss.
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		_ = r.scale(bounded, r.sets[random.IntN(len(r.sets))], random.IntN(r.maxReplicas+1))
		cancel()
		r.loading.Unlock()
		select {
		case <-time.After(30 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// settle waits until every ReplicaSet has what it wants, its status says so, the
// ring is whole, and every write is judged but those that the audit log has lost.
func (r *run) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, soon, errors.New("not within 3 minutes"))
	defer cancel()
	running := r.running()
	var left []string
	err := r.history.await(ctx, "a settled cluster", func(c *checker) bool {
		left = c.unsettled()
		if len(c.sets) != len(r.sets) {
			left = append(left, fmt.Sprintf("%d ReplicaSets of %d", len(c.sets), len(r.sets)))
		}
		if !r.stock {
			left = append(left, c.unringed(len(running))...)
		}
		return len(left) == 0
	})
	if err != nil {
		return fmt.Errorf("%w; %s", err, strings.Join(left, "; "))
	}
	return nil
}

// unringed says what the ring lacks to n Active instances with nothing under way.
func (c *checker) unringed(n int) []string {
	var left []string
	if len(c.instances) != n {
		left = append(left, fmt.Sprintf("%d instances, want %d", len(c.instances), n))
	}
	for _, i := range c.instances {
		if i.phase != shardingv1alpha1.InstanceActive || i.key == nil || i.next != nil {
			left = append(left, fmt.Sprintf("%s is %s", i.name, i.phase))
		}
	}
	return left
}

// owned returns the ReplicaSets that the process is to work on.
func (r *run) owned(p *process) []*apps.ReplicaSet {
	if r.stock {
		return r.sets
	}
	var out []*apps.ReplicaSet
	r.history.see(func(c *checker) {
		for _, rs := range r.sets {
			if i := c.ownerOf(metav1.HashKeyOf(rs)); i != nil && r.processOf(i.holder) == p.name {
				out = append(out, rs)
			}
		}
	})
	return out
}

// victim returns a process that works on some ReplicaSets.
func (r *run) victim() (*process, error) {
	running := r.running()
	r.rand.Shuffle(len(running), func(i, j int) { running[i], running[j] = running[j], running[i] })
	if r.stock {
		// Whoever has written last leads.
		var last auditWrite
		r.history.see(func(c *checker) {
			for _, w := range c.told {
				if w.at.After(last.at) {
					last = w
				}
			}
		})
		running = slices.DeleteFunc(running, func(p *process) bool { return p.name != last.process })
	}
	for _, p := range running {
		if len(r.owned(p)) > 0 {
			return p, nil
		}
	}
	return nil, errors.New("no process works on any ReplicaSet")
}

// probes is how many ReplicaSets of a range show when it is worked on again.
const probes = 4

// takeover gives some of the ReplicaSets something to do, again and again, and
// returns for each how long after begin anybody but the process first created
// or deleted a pod for it. They want replicas or one more.
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
		r.history.see(func(c *checker) { done = look(c) })
		if done {
			break
		}
		for _, rs := range sets {
			if _, done := first[rs.UID]; !done {
				_ = r.scale(ctx, rs, replicas+n%2)
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for another to take over from %s: %w", from.name, context.Cause(ctx))
		}
	}
	var out []time.Duration
	for _, d := range first {
		out = append(out, d)
	}
	return out, nil
}
