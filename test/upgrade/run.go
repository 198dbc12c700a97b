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
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/localcluster"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/audit"
	"k8s.io/kubernetes/test/harness/ownership"
	"k8s.io/kubernetes/test/harness/proxy"
)

const (
	etcdName      = string(localcluster.Etcd)
	apiServerName = string(localcluster.KubeAPIServer)
	namespace     = metav1.NamespaceDefault
	// soon bounds the wait for any condition. It is ample even for a slow machine.
	soon = 3 * time.Minute
	// restartDelay is how long a manager is down after it has ended by itself.
	restartDelay = time.Second
)

// errSoon is the cause where a wait has taken too long.
var errSoon = fmt.Errorf("not within %v", soon)

// kind is a build of kube-controller-manager.
type kind string

const (
	stock kind = "stock"
	older kind = "older"
	ours  kind = "ours"
)

// run is one run of a scenario: a cluster under load.
type run struct {
	*options
	scenario scenario
	// killed says whether one of the managers that the scenario ends is killed.
	killed bool
	dir    string
	rand   *rand.Rand

	cluster *localcluster.Cluster
	client  kubernetes.Interface
	load    *load
	probes  *probes
	// stockServer is the name of the second API server, "" if there never was one.
	stockServer string
	stop        []func()

	lock      sync.Mutex
	processes []*process
	// servers has the URLs of the API servers that the managers use.
	servers []string
	// ends has, by process, a channel that is closed when it has ended by itself.
	ends map[string]chan struct{}
	// restarts counts the managers that ended by themselves.
	restarts int
	// back is how long after the end of the scenario's victim every probe had an answer.
	back       time.Duration
	violations []violation
}

// process is one process of a controller manager.
type process struct {
	name string
	kind kind
	// pid is 0 as long as it is not known.
	pid   int
	proxy *proxy.Proxy
	log   string
}

// seat is a place for a controller manager, which is started again where it ends by
// itself, as a kubelet would.
type seat struct {
	name string
	// leave ends what keeps the seat occupied; it has ended when left is closed.
	leave context.CancelFunc
	left  chan struct{}

	lock sync.Mutex
	// current is the process that is ready, nil while there is none.
	current *process
	// failed is why no process could be started.
	failed error
}

// note adds what a scenario has seen and what is wrong.
func (r *run) note(kind, format string, args ...any) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.violations = append(r.violations, violation{kind, kind + ": " + fmt.Sprintf(format, args...)})
}

// say prints what the run is doing.
func (r *run) say(format string, args ...any) {
	fmt.Printf("%s   %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

func (r *run) auditLog(server string) string {
	return filepath.Join(r.dir, "audit-"+server+".log")
}

// start starts etcd and the API server, without controller managers.
func (r *run) start(ctx context.Context) (err error) {
	bin := filepath.Join(r.dir, "bin")
	if err := errors.Join(os.RemoveAll(r.dir), os.MkdirAll(bin, 0o755)); err != nil {
		return err
	}
	server := filepath.Join(r.bin, "kube-apiserver")
	if r.scenario.stockServer {
		server = filepath.Join(r.stock, "kube-apiserver")
	}
	auditing, err := audit.Flags(r.dir, auditPolicy, r.auditLog("1"))
	err = errors.Join(
		err,
		os.Symlink(server, filepath.Join(bin, "kube-apiserver")),
		os.Symlink(filepath.Join(r.bin, "etcd"), filepath.Join(bin, "etcd")),
		// The build of a controller manager to run is the last argument.
		os.WriteFile(filepath.Join(bin, "kube-controller-manager"), []byte("#!/usr/bin/env bash\nexec \"${@: -1}\" \"${@:1:$#-1}\"\n"), 0o755),
	)
	if err != nil {
		return err
	}
	r.cluster, err = localcluster.Start(ctx, localcluster.Config{
		BinDir: bin, Dir: filepath.Join(r.dir, "cluster"), WithoutNodes: true,
		// All of etcd's history is read in the end.
		Args: map[localcluster.Component][]string{localcluster.KubeAPIServer: append(auditing, "--etcd-compaction-interval=0")},
		Died: r.ended,
	})
	if err != nil {
		return err
	}
	r.stop = append(r.stop, func() {
		if err := r.cluster.Stop(context.WithoutCancel(ctx)); err != nil {
			log.Print(err)
		}
	})
	endpoint, err := r.cluster.Endpoint(apiServerName)
	if err != nil {
		return err
	}
	r.servers = []string{endpoint}
	r.client = r.cluster.Client()
	return nil
}

// end ends all processes of the run.
func (r *run) end() {
	for i := len(r.stop) - 1; i >= 0; i-- {
		r.stop[i]()
	}
	for _, p := range r.processes {
		p.proxy.Close()
	}
}

// ended notes that a process has ended by itself.
func (r *run) ended(exit *localcluster.Exit) {
	close(r.endOf(exit.Process))
	if exit.Process == etcdName || exit.Process == apiServerName {
		r.note(other, "%v", exit)
	}
}

// endOf returns the channel that is closed when the process has ended by itself.
func (r *run) endOf(name string) chan struct{} {
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.ends[name] == nil {
		r.ends[name] = make(chan struct{})
	}
	return r.ends[name]
}

// occupy starts a controller manager, and returns once it is ready.
func (r *run) occupy(ctx context.Context, name string, k kind, args ...string) (*seat, error) {
	staying, leave := context.WithCancel(ctx)
	s := &seat{name: name, leave: leave, left: make(chan struct{})}
	go r.keep(staying, s, k, args)
	// It goes on when the scenario is over.
	r.stop = append(r.stop, func() { leave(); <-s.left })
	return s, r.ready(ctx, s)
}

// keep starts processes on the seat, each when the one before has ended by itself.
func (r *run) keep(ctx context.Context, s *seat, k kind, args []string) {
	defer close(s.left)
	for ctx.Err() == nil {
		p, err := r.launch(ctx, k, args)
		var exit *localcluster.Exit
		s.lock.Lock()
		s.current, s.failed = p, err
		if err == nil || errors.As(err, &exit) {
			s.failed = nil
		}
		s.lock.Unlock()
		if err != nil && exit == nil {
			return
		}
		if err == nil {
			select {
			case <-ctx.Done():
				return
			case <-r.endOf(p.name):
			}
		}
		s.lock.Lock()
		s.current = nil
		s.lock.Unlock()
		r.lock.Lock()
		r.restarts++
		r.lock.Unlock()
		if err == nil {
			r.say("%s, %s on %s, has ended by itself: %s", p.name, p.kind, s.name, r.lastWords(p))
		} else {
			r.say("%s on %s has ended before it was ready: %v", k, s.name, err)
		}
		_ = harness.Sleep(ctx, restartDelay)
	}
}

// lastWords returns the last line of a process's log.
func (r *run) lastWords(p *process) string {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return lines[len(lines)-1]
}

// launch starts a controller manager behind a proxy of its own, and returns once it is
// healthy.
func (r *run) launch(ctx context.Context, k kind, args []string) (*process, error) {
	r.lock.Lock()
	n := len(r.processes)
	p := &process{kind: k}
	var err error
	p.proxy, err = proxy.New(proxy.Source(n), r.servers...)
	if err == nil {
		r.processes = append(r.processes, p)
	}
	r.lock.Unlock()
	if err != nil {
		return nil, err
	}
	all := append([]string{"--master=" + p.proxy.URL()}, r.election()...)
	all = append(append(all, args...), r.binary(k))
	name, err := r.cluster.AddControllerManager(ctx, all...)
	r.lock.Lock()
	// What it wrote before it was healthy is its, too.
	p.name, p.log = name, r.cluster.LogFile(name)
	r.lock.Unlock()
	if err != nil {
		return nil, err
	}
	pid, err := r.cluster.PID(name)
	if err != nil {
		return nil, err
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	for _, before := range r.processes {
		if before.pid == pid {
			return nil, fmt.Errorf("%s has the same pid %d as %s before it", name, pid, before.name)
		}
	}
	p.pid = pid
	return p, nil
}

// serve sets the API servers that the managers use, and makes them connect anew.
func (r *run) serve(urls ...string) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.servers = urls
	for _, p := range r.processes {
		p.proxy.Aim(urls...)
	}
}

// mixed says whether the managers use a stock API server beside ours.
func (r *run) mixed() bool {
	r.lock.Lock()
	defer r.lock.Unlock()
	return len(r.servers) > 1
}

func (r *run) binary(k kind) string {
	dir := map[kind]string{stock: r.stock, older: r.older, ours: r.bin}[k]
	return filepath.Join(dir, "kube-controller-manager")
}

// election returns the flags of the election of the leader.
func (o *options) election() []string {
	if o.defaultElection {
		return nil
	}
	return []string{"--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=1s"}
}

// ready waits until the process on the seat is healthy and, if it is one of ours, all its
// records are Active. Beside a stock API server records are not awaited.
func (r *run) ready(ctx context.Context, s *seat) error {
	var last string
	err := r.await(ctx, func(ctx context.Context) (bool, error) {
		s.lock.Lock()
		p, failed := s.current, s.failed
		s.lock.Unlock()
		if failed != nil {
			return false, failed
		}
		if p == nil {
			last = "no process is healthy"
			return false, nil
		}
		if p.kind == stock || r.mixed() {
			return true, nil
		}
		records, err := r.records(ctx, p)
		if err != nil {
			return false, err
		}
		last = fmt.Sprintf("%s has no record", p.name)
		for _, record := range records {
			if record.Status.Phase != shardingv1alpha1.InstanceActive {
				last = fmt.Sprintf("%s of %s is %s", record.Name, p.name, record.Status.Phase)
				return false, nil
			}
		}
		return len(records) > 0, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s to be ready: %w; %s", s.name, err, last)
	}
	return nil
}

// records returns the ring records of a process.
func (r *run) records(ctx context.Context, p *process) ([]shardingv1alpha1.ControllerInstance, error) {
	all, err := r.client.ShardingV1alpha1().ControllerInstances().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var out []shardingv1alpha1.ControllerInstance
	for _, record := range all.Items {
		if r.processOf(record.Spec.HolderIdentity) == p.name {
			out = append(out, record)
		}
	}
	return out, nil
}

// await calls done until it returns true.
func (r *run) await(ctx context.Context, done wait.ConditionWithContextFunc) error {
	ctx, cancel := context.WithTimeoutCause(ctx, soon, errSoon)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, done)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// vacate ends the process on the seat, by SIGKILL or SIGTERM, and returns when it has
// ended. None follows it.
func (r *run) vacate(ctx context.Context, s *seat, kill bool) error {
	s.leave()
	<-s.left
	s.lock.Lock()
	p := s.current
	s.lock.Unlock()
	if p == nil {
		return nil
	}
	r.say("%s %s, %s on %s", map[bool]string{true: "killing", false: "ending"}[kill], p.name, p.kind, s.name)
	if kill {
		return r.cluster.Kill(p.name)
	}
	return r.cluster.StopProcess(ctx, p.name)
}

// replace ends the process on the seat, and starts one of that kind in its place.
func (r *run) replace(ctx context.Context, s *seat, kill bool, k kind, args ...string) (*seat, error) {
	if err := r.vacate(ctx, s, kill); err != nil {
		return nil, err
	}
	begin := time.Now()
	next, err := r.occupy(ctx, s.name, k, args...)
	if err != nil {
		return nil, err
	}
	r.say("%s is ready on %s after %.1f s", k, s.name, time.Since(begin).Seconds())
	return next, nil
}

// processOf returns the name of the process whose holderIdentity, HOST:PORT_PID_RANDOM, is
// given.
func (r *run) processOf(holder string) string {
	pid, ok := ownership.PID(holder)
	r.lock.Lock()
	defer r.lock.Unlock()
	for _, p := range r.processes {
		if ok && p.pid == pid {
			return p.name
		}
	}
	return holder
}

// processAt returns the name of the process that sends from that address, or "".
func (r *run) processAt(ip string) string {
	r.lock.Lock()
	defer r.lock.Unlock()
	for _, p := range r.processes {
		if p.proxy.SendsFrom(ip) {
			return p.name
		}
	}
	return ""
}

var leads = regexp.MustCompile(`(?m)^leader_election_master_status\{name="kube-controller-manager"\} 1$`)

// leader returns the seat whose process leads, as it says itself, and the process.
func (r *run) leader(ctx context.Context, seats []*seat) (leader *seat, process *process, err error) {
	err = r.await(ctx, func(ctx context.Context) (bool, error) {
		for _, s := range seats {
			s.lock.Lock()
			p := s.current
			s.lock.Unlock()
			if p == nil {
				continue
			}
			// A process that is about to end need not answer.
			if metrics, err := r.cluster.Get(ctx, p.name, "/metrics"); err == nil && leads.Match(metrics) {
				leader, process = s, p
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("waiting for a leader: %w", err)
	}
	return leader, process, nil
}

// holder returns the identity that holds the leader's Lease, "" if none does.
func (r *run) holder(ctx context.Context) (string, error) {
	lease, err := r.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, "kube-controller-manager", metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		return "", err
	}
	return *lease.Spec.HolderIdentity, nil
}

// judge judges all writes of the run.
func (r *run) judge(ctx context.Context) (*judge, error) {
	endpoint, err := r.cluster.Endpoint(etcdName)
	if err != nil {
		return nil, err
	}
	a := newAccounts()
	if r.stockServer != "" {
		if err := a.readAudit(r.auditLog("2"), r.processAt); err != nil {
			return nil, err
		}
		if err := r.reasons(a); err != nil {
			return nil, err
		}
	}
	if err := a.readAudit(r.auditLog("1"), r.processAt); err != nil {
		return nil, err
	}
	j := newJudge(a, r.processOf)
	j.deposed = r.scenario.deposes
	if err := replay(ctx, endpoint, j); err != nil {
		return nil, err
	}
	j.conclude()
	return j, nil
}

// refusal is in the log of an instance that stops working because an API server without
// the fence has answered it.
const refusal = "Stops working: an API server without the feature gate ControllerRing"

// reasons checks that each process that a stock API server, whose audit log is given, let
// write has said that it stops, and why.
func (r *run) reasons(stock accounts) error {
	wrote := map[string]int{}
	for _, by := range stock.writers {
		if by.controller != deploymentController {
			wrote[by.process]++
		}
	}
	for process, n := range wrote {
		content, err := os.ReadFile(r.cluster.LogFile(process))
		if err != nil {
			return err
		}
		if !strings.Contains(string(content), refusal) {
			r.note(other, "the stock API server stored %d writes of %s, whose log does not have %q", n, process, refusal)
		}
	}
	return nil
}
