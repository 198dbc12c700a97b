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
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubernetes/pkg/localcluster"
	"k8s.io/kubernetes/test/harness/audit"
	"k8s.io/kubernetes/test/harness/history"
	"k8s.io/kubernetes/test/harness/report"
)

const (
	etcdName      = string(localcluster.Etcd)
	apiServerName = string(localcluster.KubeAPIServer)
	// soon bounds the wait for anything.
	soon = 3 * time.Minute
	// restLimit is how much longer processes may wait for a range that seem to die in one place.
	restLimit = 5 * time.Minute
	// leaveLimit is how long a process may take to leave and to end after SIGTERM.
	leaveLimit = time.Minute
)

var errSoon = fmt.Errorf("not within %v", soon)

// run is a cluster with an operator under load.
type run struct {
	options
	config  *config
	cluster *localcluster.Cluster
	client  kubernetes.Interface
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
	history *history.History[*checker]
	rand    *rand.Rand
	// workloads are those of the configuration.
	workloads dynamic.ResourceInterface
	// limit is how long the operator may take to settle.
	limit time.Duration
	// created counts the names that workloads were ever given.
	created int
	// again has the names under which a workload is to be made anew.
	again []string

	lock     sync.Mutex
	replicas []*replica
	started  int
	// begun says that the operator has done its first work.
	begun bool
	stop  []func()
}

// replica is one process of the operator.
type replica struct {
	name string
	// credential names its client certificate in the audit log.
	credential string
	// ended is closed once the process has ended, and how says how.
	ended chan struct{}
	how   string
	once  sync.Once
	// asked means that it was asked to end, or killed.
	asked bool
}

func (p *replica) end(how string) {
	p.once.Do(func() {
		p.how = how
		close(p.ended)
	})
}

func (p *replica) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// start starts the cluster and the operator, and waits until it has done what there is to do for
// all workloads.
func start(ctx context.Context, o options, c *config) (_ *run, err error) {
	r := &run{options: o, config: c, limit: soon, rand: rand.New(rand.NewPCG(o.seed, 0))}
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
	for _, file := range c.Manifests {
		if err := r.apply(ctx, c.file(file)); err != nil {
			return nil, fmt.Errorf("manifests: %s: %w", file, err)
		}
	}
	if err := r.findWorkloads(ctx); err != nil {
		return nil, err
	}
	if len(c.Controllers) > 0 {
		if _, err := r.cluster.AddControllerManager(ctx, "--controllers="+strings.Join(c.Controllers, ",")); err != nil {
			return nil, err
		}
	}
	for range c.Workload.Count {
		if err := r.create(ctx); err != nil {
			return nil, fmt.Errorf("workload.object: %w", err)
		}
	}
	for range o.replicas {
		if _, err := r.add(ctx); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// firstWork waits until the operator has done its first work, and judges it.
func (r *run) firstWork(ctx context.Context, into *result) error {
	begin := time.Now()
	err := r.settled(ctx)
	r.lock.Lock()
	r.begun = true
	r.lock.Unlock()
	var place string
	r.history.See(func(c *checker) { place = c.sharedPlace() })
	if err == nil && place != "" {
		r.limit += restLimit
		fmt.Printf("note: all processes are taken to run in one place, %q, the part of spec.holderIdentity before the first \"_\". After deaths there the ring gives no range to new ones for up to %v, so that faults take longer, and up to %v are waited for. A holderIdentity with $(PORT) before the \"_\" tells them apart\n", place, restLimit, r.limit)
	}
	if judged := r.judge(ctx, into); err == nil {
		err = judged
	}
	r.printRound("start", time.Since(begin), 0, into.violations, err)
	return err
}

// startCluster starts etcd and the API server.
func (r *run) startCluster(ctx context.Context) (err error) {
	auditing, err := audit.Flags(r.dir, auditPolicy, r.auditLog())
	if err != nil {
		return err
	}
	r.cluster, err = localcluster.Start(ctx, localcluster.Config{
		BinDir: r.bin, Dir: filepath.Join(r.dir, "cluster"), WithoutNodes: true,
		Args: map[localcluster.Component][]string{localcluster.KubeAPIServer: auditing},
		Died: r.died,
	})
	if err != nil {
		return err
	}
	r.stop = append(r.stop, func() {
		if err := r.cluster.Stop(context.WithoutCancel(ctx)); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	})
	r.client = r.cluster.Client()
	r.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(r.client.Discovery()))
	r.dynamic, err = dynamic.NewForConfig(r.cluster.RESTConfig())
	return err
}

// auditLog is the file that the API server writes its audit log to.
func (r *run) auditLog() string { return filepath.Join(r.dir, "audit.log") }

// startJudging follows etcd's history and the audit log until the run ends.
func (r *run) startJudging(ctx context.Context) error {
	endpoint, err := r.cluster.Endpoint(etcdName)
	if err != nil {
		return err
	}
	following, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.stop = append(r.stop, cancel)
	if r.history, err = follow(following, endpoint, r.dir, newChecker(r.config)); err != nil {
		return err
	}
	go func() {
		err := audit.Read(following, r.auditLog(), func(e auditEvent) {
			if request, ok := e.request(r.processOf); ok {
				r.history.Change(func(c *checker) error { c.heard(request); return nil })
			}
		})
		if err != nil {
			r.history.Fail(err)
		}
	}()
	return nil
}

func (r *run) end() {
	for _, stop := range slices.Backward(r.stop) {
		stop()
	}
}

// died is called when a process has ended that was not killed.
func (r *run) died(exit *localcluster.Exit) {
	r.lock.Lock()
	i := slices.IndexFunc(r.replicas, func(p *replica) bool { return p.name == exit.Process })
	if i >= 0 {
		r.replicas[i].end(exit.State)
	}
	begun := r.begun
	r.lock.Unlock()
	if (i < 0 || !begun) && r.history != nil {
		r.history.Fail(exit)
	}
}

// processOf returns the name of the replica with that client certificate, "" if there is none.
func (r *run) processOf(credential string) string {
	r.lock.Lock()
	defer r.lock.Unlock()
	for _, p := range r.replicas {
		if p.credential == credential {
			return p.name
		}
	}
	return ""
}

// apply applies the objects in a file, as an administrator.
func (r *run) apply(ctx context.Context, file string) error {
	objects, err := readManifest(file)
	if err != nil {
		return err
	}
	for _, o := range objects {
		client, err := r.clientFor(ctx, o)
		if err != nil {
			return err
		}
		if _, err := client.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "ring-conformance", Force: true}); err != nil {
			return err
		}
	}
	return nil
}

// clientFor returns the client for the object's resource, once it is served.
func (r *run) clientFor(ctx context.Context, o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := o.GroupVersionKind()
	var mapping *meta.RESTMapping
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, soon/6, true, func(context.Context) (bool, error) {
		if mapping, last = r.mapper.RESTMapping(kind.GroupKind(), kind.Version); last != nil {
			r.mapper.Reset()
		}
		return last == nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("the API server does not serve %s: is its CustomResourceDefinition among the manifests? (%w)", kind, last)
	}
	client := r.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		namespace := o.GetNamespace()
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		return client.Namespace(namespace), nil
	}
	return client, nil
}

// findWorkloads makes the client of the workloads, and checks that the dependents are served.
func (r *run) findWorkloads(ctx context.Context) (err error) {
	if r.workloads, err = r.clientFor(ctx, &unstructured.Unstructured{Object: r.config.Workload.Object}); err != nil {
		return fmt.Errorf("workload.object: %w", err)
	}
	for _, d := range r.config.Dependents {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(d.kind())
		if _, err := r.clientFor(ctx, o); err != nil {
			return fmt.Errorf("dependents: %w", err)
		}
	}
	return nil
}

// add starts one more process of the operator.
func (r *run) add(ctx context.Context) (*replica, error) {
	r.lock.Lock()
	r.started++
	p := &replica{name: fmt.Sprintf("operator-%d", r.started), ended: make(chan struct{})}
	r.lock.Unlock()
	kubeconfig := filepath.Join(r.dir, p.name+".kubeconfig")
	if err := r.cluster.WriteKubeconfig(kubeconfig, r.config.User, groupsOf(r.config.User)...); err != nil {
		return nil, err
	}
	var err error
	if p.credential, err = credentialIn(kubeconfig); err != nil {
		return nil, err
	}
	port, err := r.cluster.FreePort()
	if err != nil {
		return nil, err
	}
	r.lock.Lock()
	r.replicas = append(r.replicas, p)
	r.lock.Unlock()
	replace := strings.NewReplacer("$(KUBECONFIG)", kubeconfig, "$(PORT)", fmt.Sprint(port), "$(BIN)", r.bin)
	var command []string
	for _, arg := range r.config.Command {
		command = append(command, replace.Replace(arg))
	}
	if err := r.cluster.StartProgram(ctx, localcluster.Program{Name: p.name, Command: command, Dir: r.config.dir, Env: []string{"KUBECONFIG=" + kubeconfig}}); err != nil {
		return nil, fmt.Errorf("command: %w", err)
	}
	return p, nil
}

// groupsOf returns the groups that come with a user's name: those of a service account.
func groupsOf(user string) []string {
	parts := strings.Split(user, ":")
	if len(parts) == 4 && parts[0] == "system" && parts[1] == "serviceaccount" {
		return []string{"system:serviceaccounts", "system:serviceaccounts:" + parts[2]}
	}
	return nil
}

// credentialIn returns how the audit log names the client certificate in a kubeconfig.
func credentialIn(kubeconfig string) (string, error) {
	c, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode(c.CertData)
	if block == nil {
		return "", fmt.Errorf("%s has no client certificate", kubeconfig)
	}
	sum := sha256.Sum256(block.Bytes)
	return "X509SHA256=" + hex.EncodeToString(sum[:]), nil
}

// running returns the running replicas, the oldest first.
func (r *run) running() []*replica {
	r.lock.Lock()
	defer r.lock.Unlock()
	return slices.DeleteFunc(slices.Clone(r.replicas), func(p *replica) bool { return !p.running() })
}

func (r *run) runningNames() (names []string) {
	for _, p := range r.running() {
		names = append(names, p.name)
	}
	return names
}

// victim returns a random replica.
func (r *run) victim() *replica {
	running := r.running()
	return running[r.rand.IntN(len(running))]
}

// touch says that a fault may keep these replicas from anything until it is over.
func (r *run) touch(replicas ...*replica) {
	r.history.See(func(c *checker) {
		for _, p := range replicas {
			c.touched[p.name] = true
		}
	})
}

// kill ends a replica with SIGKILL.
func (r *run) kill(p *replica) error {
	r.touch(p)
	if err := r.cluster.Kill(p.name); err != nil {
		return err
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	p.asked = true
	p.end("killed")
	return nil
}

// terminate ends a replica with SIGTERM, and waits until it has ended. Its record must be gone
// before.
func (r *run) terminate(ctx context.Context, p *replica) error {
	r.history.See(func(c *checker) { c.leaving[p.name] = true })
	r.lock.Lock()
	p.asked = true
	r.lock.Unlock()
	if err := r.cluster.Signal(p.name, syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.ended:
	case <-time.After(leaveLimit):
		r.history.See(func(c *checker) {
			c.violate(leave, "%s still ran %v after SIGTERM, and was killed", p.name, leaveLimit)
		})
		return r.kill(p)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	// What it has stored before it ended is seen before what is stored now.
	if err := r.catchUp(ctx); err != nil {
		return err
	}
	r.history.See(func(c *checker) {
		if record := c.ofProcess(p.name); record != nil {
			c.violate(leave, "%s got SIGTERM and ended (%s) while its record %s was still there", p.name, p.how, record.name)
			c.touched[p.name] = true
		}
	})
	return nil
}

// catchUp waits until etcd's history and the audit log have been read up to this moment.
func (r *run) catchUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, soon, errSoon)
	defer cancel()
	name := fmt.Sprintf("conformance-%d", time.Now().UnixNano())
	marker := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}}}
	configMaps, err := r.clientFor(ctx, marker)
	if err != nil {
		return err
	}
	made, err := configMaps.Create(ctx, marker, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	err = r.history.Await(ctx, "the audit log", func(c *checker) bool {
		return revisionOf(made) <= c.revision && slices.ContainsFunc(c.requests, func(q *request) bool { return q.uid == made.GetUID() })
	})
	return errors.Join(err, configMaps.Delete(ctx, name, metav1.DeleteOptions{}))
}

// settle waits until the operator has nothing left to do and the ring is complete. Nothing else may
// change a workload meanwhile.
func (r *run) settle(ctx context.Context) error {
	letting, stop := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- r.letGo(letting) }()
	err := r.awaitNothing(ctx, func(c *checker) []leftover {
		return slices.Concat(c.unsettled(), c.incomplete(r.runningNames()))
	})
	stop()
	last := <-stopped
	if err == nil {
		r.history.See((*checker).calm)
	} else if last != nil {
		fmt.Fprintln(os.Stderr, "dependents could not be let go:", last)
	}
	return err
}

// awaitRing waits until as many instances as replicas run make up a complete ring.
func (r *run) awaitRing(ctx context.Context) error {
	return r.awaitNothing(ctx, func(c *checker) []leftover { return c.incomplete(r.runningNames()) })
}

// errUnsettled lists what is not as it should be after a fault.
type errUnsettled struct {
	left  []leftover
	limit time.Duration
}

// rule returns the one that is broken. Where others are not settled either, that a workload was
// made anew has nothing to do with it.
func (e *errUnsettled) rule() rule {
	if slices.ContainsFunc(e.left, func(l leftover) bool { return l.rule != anew }) {
		return settled
	}
	return anew
}

func (e *errUnsettled) Error() string {
	var texts []string
	for _, l := range e.left {
		texts = append(texts, l.text)
	}
	return fmt.Sprintf("not settled within %v: %s", e.limit, strings.Join(report.Some(texts, 5), "; "))
}

// awaitNothing waits until left returns nothing.
func (r *run) awaitNothing(ctx context.Context, left func(*checker) []leftover) error {
	bounded, cancel := context.WithTimeoutCause(ctx, r.limit, errSoon)
	defer cancel()
	var now []leftover
	err := r.history.Await(bounded, "calm", func(c *checker) bool {
		now = left(c)
		return len(now) == 0
	})
	if errors.Is(err, errSoon) {
		return &errUnsettled{now, r.limit}
	}
	return err
}

// restore replaces the replicas that have ended by themselves. Those that no fault had touched must
// not.
func (r *run) restore(ctx context.Context) error {
	r.lock.Lock()
	ended := slices.DeleteFunc(slices.Clone(r.replicas), func(p *replica) bool { return p.running() || p.asked })
	for _, p := range ended {
		p.asked = true
	}
	r.lock.Unlock()
	for _, p := range ended {
		r.history.See(func(c *checker) {
			if !c.touched[p.name] {
				c.violate(leave, "%s ended (%s), though nobody had asked it to and no fault had touched it", p.name, p.how)
			}
			c.touched[p.name] = true
		})
	}
	for len(r.running()) < r.options.replicas {
		if _, err := r.add(ctx); err != nil {
			return err
		}
	}
	return nil
}
