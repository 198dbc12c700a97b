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

package localcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// stageGrace is how long each stage of Stop waits for its processes to end.
	// Controller managers need up to three seconds to leave their rings. An API server
	// with open watches would wait for them to end.
	stageGrace = 5 * time.Second
	// startTimeout bounds the wait for one component to be ready. An API server takes
	// five seconds on an idle machine.
	startTimeout = 2 * time.Minute
	// healthInterval lies between two health checks of a component, and requestTimeout
	// bounds every request.
	healthInterval = 100 * time.Millisecond
	requestTimeout = 10 * time.Second
)

// Config says what a cluster consists of.
type Config struct {
	// BinDir holds etcd, kube-apiserver, kube-controller-manager, kube-scheduler and
	// kwok.
	BinDir string
	// KwokStages is a file with kwok's Stage objects for nodes and pods. Default:
	// kwok/stages.yaml beside BinDir, where the build puts the stages of kwok's release.
	KwokStages string
	// Dir holds all files that the cluster writes; Cluster lists them. It is created if
	// missing. Otherwise it must be empty or come from a cluster that has ended, whose
	// files are deleted. Default: a temporary directory, which Stop deletes.
	Dir string
	// Instances is how many controller managers to start at first, 0 or more.
	Instances int
	// Nodes is how many nodes to create, 0 or more.
	Nodes int
	// WithoutNodes leaves out kube-scheduler and kwok, for pods that only have to exist. BinDir
	// need not have them, and Nodes must be 0.
	WithoutNodes bool
	// APIServerPort is the port of the API server on 127.0.0.1; 0 chooses a free one.
	// The other components always get free ports.
	APIServerPort int
	// FeatureGates are set for all components of Kubernetes.
	FeatureGates map[string]bool
	// Args are further flags for all processes of a component, such as
	// "--kube-api-qps=2000". They override those that the package sets.
	Args map[Component][]string
	// Started, if set, is called during Start for each process once it is ready, and
	// for the nodes, with the time since Start began. Calls do not overlap.
	Started func(what string, after time.Duration)
	// Died, if set, is called when a process that was ready has ended, unless Stop,
	// StopProcess or Kill ended it.
	Died func(*Exit)
}

// Cluster is a running cluster. Its directory holds
//
//	kubeconfig           for a member of system:masters
//	launcher.pid         pid of the process that started the cluster
//	PROCESS.pid          pid of each running process
//	logs/PROCESS.log     its output
//	kubeconfigs/, pki/   files that the processes use
//	etcd/                etcd's data
//
// where PROCESS is etcd, kube-apiserver, kube-apiserver-N (N from 2),
// kube-controller-manager-N (N from 1), kube-scheduler, kwok or the name of a program that was
// started beside them. All methods may be called from several goroutines.
type Cluster struct {
	config       Config
	dir          *directory
	pki          *pki
	apiServerURL string
	adminConfig  *rest.Config
	client       kubernetes.Interface
	// requests is the client for requests to any process, as a member of system:masters.
	requests *http.Client

	// startMu is held while processes start.
	startMu            sync.Mutex
	ports              ports
	apiServers         int
	controllerManagers int

	mu sync.Mutex
	// members has every process that was ever started, in the order of first starts.
	members []*member
	stopped bool
}

// member is a process of the cluster, with the component that it was started as.
type member struct {
	*process
	what component
}

// Start starts a cluster. It returns once all processes and nodes are ready and, if
// there is a controller manager, pods can be created in the default namespace. If a
// process dies before that, or ctx ends, Start stops all processes and fails. The error
// shows the last lines of the log of the process that died.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	if config.Instances < 0 || config.Nodes < 0 {
		return nil, fmt.Errorf("a cluster cannot have %d controller managers and %d nodes", config.Instances, config.Nodes)
	}
	if config.KwokStages == "" {
		config.KwokStages = filepath.Join(config.BinDir, "..", "kwok", "stages.yaml")
	}
	if err := checkFiles(config); err != nil {
		return nil, err
	}
	dir, err := claimDirectory(config.Dir)
	if err != nil {
		return nil, err
	}
	c := &Cluster{config: config, dir: dir}
	if err := c.whileAlive(ctx, c.start); err != nil {
		return nil, errors.Join(err, c.Stop(ctx))
	}
	return c, nil
}

// launch starts a process.
type launch func(component) (*member, error)

// whileAlive calls start, and ends its ctx when a process that it launched dies. The
// error is then the first death. Deaths after start has returned go to Config.Died.
func (c *Cluster) whileAlive(ctx context.Context, start func(context.Context, launch) error) error {
	c.startMu.Lock()
	defer c.startMu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	var mu sync.Mutex
	var returned bool
	died := func(p *process) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case !returned:
			cancel(p.exit())
		case c.config.Died != nil:
			c.config.Died(p.exit())
		}
	}
	err := start(ctx, func(what component) (*member, error) { return c.launch(what, died) })

	mu.Lock()
	defer mu.Unlock()
	returned = true
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func (c *Cluster) launch(what component, died func(*process)) (*member, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil, errors.New("the cluster has been stopped")
	}
	cmd := c.command(what)
	p, err := startProcess(what.name, cmd, c.dir.log(what.name), c.dir.pid(what.name), died)
	if err != nil {
		return nil, err
	}
	m := &member{process: p, what: what}
	if i := slices.IndexFunc(c.members, func(m *member) bool { return m.name == what.name }); i >= 0 {
		c.members[i] = m
	} else {
		c.members = append(c.members, m)
	}
	return m, nil
}

func (c *Cluster) command(what component) *exec.Cmd {
	if what.kind == program {
		cmd := exec.Command(what.args[0], what.args[1:]...)
		cmd.Dir, cmd.Env = what.workDir, append(os.Environ(), what.env...)
		return cmd
	}
	args := slices.Concat(what.args, c.config.Args[what.kind], what.last)
	return exec.Command(filepath.Join(c.config.BinDir, string(what.kind)), args...)
}

// start starts the processes, and waits until each of them and all nodes are ready.
func (c *Cluster) start(ctx context.Context, launch launch) error {
	begin := time.Now()
	started := func(what string) {
		if c.config.Started != nil {
			c.config.Started(what, time.Since(begin))
		}
	}
	if err := c.startServers(ctx, launch, started); err != nil {
		return err
	}
	clients, err := c.launchClients(launch)
	if err != nil {
		return err
	}
	if err := createNodes(ctx, c.client, c.config.Nodes); err != nil {
		return err
	}
	for _, m := range clients {
		if err := c.waitReady(ctx, m); err != nil {
			return err
		}
		started(m.name)
	}
	if err := waitForNodes(ctx, c.client, c.config.Nodes); err != nil {
		return err
	}
	started("nodes")
	if c.config.Instances == 0 {
		return nil
	}
	return c.AwaitServiceAccount(ctx, metav1.NamespaceDefault)
}

// startServers starts etcd, then the API server, each once the one before is ready.
func (c *Cluster) startServers(ctx context.Context, launch launch, started func(what string)) error {
	var err error
	if c.pki, err = newPKI(filepath.Join(c.dir.path, "pki")); err != nil {
		return err
	}
	etcd, err := c.etcd()
	if err != nil {
		return err
	}
	apiServer, err := c.apiServer(etcd.endpoint)
	if err != nil {
		return err
	}
	if err := c.makeAdmin(apiServer.endpoint); err != nil {
		return err
	}
	for _, what := range []component{etcd, apiServer} {
		m, err := launch(what)
		if err != nil {
			return err
		}
		if err := c.waitReady(ctx, m); err != nil {
			return err
		}
		started(m.name)
	}
	return nil
}

// launchClients starts the clients of the API server, and does not wait for them.
func (c *Cluster) launchClients(launch launch) ([]*member, error) {
	var builders []func() (component, error)
	if !c.config.WithoutNodes {
		builders = append(builders, c.scheduler, c.kwok)
	}
	for range c.config.Instances {
		builders = append(builders, c.nextControllerManager)
	}
	var clients []*member
	for _, build := range builders {
		what, err := build()
		if err != nil {
			return nil, err
		}
		m, err := launch(what)
		if err != nil {
			return nil, err
		}
		clients = append(clients, m)
	}
	return clients, nil
}

// makeAdmin writes the admin's kubeconfig, and makes the clients that use it.
func (c *Cluster) makeAdmin(apiServerURL string) error {
	c.apiServerURL = apiServerURL
	file := c.dir.adminKubeconfig()
	if err := c.pki.writeKubeconfig(file, apiServerURL, "admin", "system:masters"); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return err
	}
	config.QPS = -1
	// Each look at Endpoints would print one.
	config.WarningHandler = rest.NoWarnings{}
	c.adminConfig = config
	if c.requests, err = rest.HTTPClientFor(config); err != nil {
		return err
	}
	c.client, err = kubernetes.NewForConfig(config)
	return err
}

func (c *Cluster) nextControllerManager() (component, error) {
	c.controllerManagers++
	return c.controllerManager(c.controllerManagers)
}

func (c *Cluster) waitReady(ctx context.Context, m *member) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var last error
	err := wait.PollUntilContextCancel(ctx, healthInterval, true, func(ctx context.Context) (bool, error) {
		if !m.running() {
			return false, m.exit()
		}
		_, last = c.get(ctx, m.what.endpoint+m.what.healthPath)
		return last == nil, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s is not ready after %s (%w); %s", m.name, startTimeout, last, describeLog(m.logFile))
	}
	return err
}

// AddAPIServer starts one more API server for the same etcd, on a free port, and returns its name
// once it is ready. The flags apply to this one only, and override Config.Args. The cluster's own
// clients stay with the first.
func (c *Cluster) AddAPIServer(ctx context.Context, args ...string) (name string, err error) {
	err = c.whileAlive(ctx, func(ctx context.Context, launch launch) error {
		etcd, err := c.member(string(Etcd))
		if err != nil {
			return err
		}
		what, err := c.apiServer(etcd.what.endpoint)
		if err != nil {
			return err
		}
		name, what.last = what.name, args
		m, err := launch(what)
		if err != nil {
			return err
		}
		if err := c.waitReady(ctx, m); err != nil {
			return errors.Join(err, m.kill(syscall.SIGKILL))
		}
		return nil
	})
	return name, err
}

// AddControllerManager starts one more controller manager, and returns its name once
// it is ready. The flags apply to this one only, and override Config.Args.
func (c *Cluster) AddControllerManager(ctx context.Context, args ...string) (name string, err error) {
	names, err := c.AddControllerManagers(ctx, 1, args...)
	if len(names) > 0 {
		name = names[0]
	}
	return name, err
}

// AddControllerManagers starts n more controller managers at once, and returns their names once
// all are ready. The flags apply to these only, and override Config.Args.
func (c *Cluster) AddControllerManagers(ctx context.Context, n int, args ...string) (names []string, err error) {
	err = c.whileAlive(ctx, func(ctx context.Context, launch launch) error {
		var all []*member
		kill := func(err error) error {
			errs := []error{err}
			for _, m := range all {
				errs = append(errs, m.kill(syscall.SIGKILL))
			}
			return errors.Join(errs...)
		}
		for range n {
			what, err := c.nextControllerManager()
			if err != nil {
				return kill(err)
			}
			names = append(names, what.name)
			what.last = args
			m, err := launch(what)
			if err != nil {
				return kill(err)
			}
			all = append(all, m)
		}
		for _, m := range all {
			if err := c.waitReady(ctx, m); err != nil {
				return kill(err)
			}
		}
		return nil
	})
	return names, err
}

// Program says how to start a process that is no part of the cluster, such as an operator.
type Program struct {
	// Name names its log and its pid file. No other process of the cluster may have it.
	Name string
	// Command is the program and its arguments. One with a slash in its name is looked for from
	// Dir, one without in PATH.
	Command []string
	// Dir is the folder in which it runs; "" is that of the caller.
	Dir string
	// Env has variables, as NAME=VALUE, beside those of the caller.
	Env []string
}

// StartProgram starts a process beside the cluster's own, and does not wait until it is ready.
// It ends with the cluster. Signal, Kill, StopProcess, PID, LogFile and LogTail know it by its
// name.
func (c *Cluster) StartProgram(ctx context.Context, p Program) error {
	if m, err := c.member(p.Name); err == nil {
		return fmt.Errorf("the cluster has a process %q already", m.name)
	}
	return c.whileAlive(ctx, func(_ context.Context, launch launch) error {
		_, err := launch(component{kind: program, name: p.Name, args: p.Command, workDir: p.Dir, env: p.Env})
		return err
	})
}

// FreePort returns a port of 127.0.0.1 that nobody listens on, and that no process of the cluster
// has had or will be given.
func (c *Cluster) FreePort() (int, error) {
	c.startMu.Lock()
	defer c.startMu.Unlock()
	return c.ports.free()
}

// WriteKubeconfig writes a kubeconfig with a client certificate of its own for that user, a member
// of those groups.
func (c *Cluster) WriteKubeconfig(file, user string, groups ...string) error {
	return c.pki.writeKubeconfig(file, c.apiServerURL, user, groups...)
}

// StartAgain restarts a process that has ended, with the same flags, and returns once
// it is ready. Its log continues.
func (c *Cluster) StartAgain(ctx context.Context, process string) error {
	return c.whileAlive(ctx, func(ctx context.Context, launch launch) error {
		m, err := c.member(process)
		if err != nil {
			return err
		}
		if m.running() {
			return fmt.Errorf("%s is still running", process)
		}
		if m, err = launch(m.what); err != nil {
			return err
		}
		return c.waitReady(ctx, m)
	})
}

// ControllerManagers returns the names of the running controller managers, in the order
// in which they were started.
func (c *Cluster) ControllerManagers() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for _, m := range c.members {
		if m.what.kind == KubeControllerManager && m.running() {
			names = append(names, m.name)
		}
	}
	return names
}

// Signal sends a signal, such as SIGSTOP or SIGCONT, to a process. If the signal ends
// the process, Config.Died is called.
func (c *Cluster) Signal(process string, signal syscall.Signal) error {
	m, err := c.member(process)
	if err != nil {
		return err
	}
	return m.signal(signal)
}

// Kill ends a process with SIGKILL, and returns when it has ended.
func (c *Cluster) Kill(process string) error { return c.kill(process, syscall.SIGKILL) }

// Crash has a Go program end itself as a panic does: it writes to its log what all its goroutines
// do, and exits. It returns when the process has ended.
func (c *Cluster) Crash(process string) error { return c.kill(process, syscall.SIGABRT) }

func (c *Cluster) kill(process string, signal syscall.Signal) error {
	m, err := c.member(process)
	if err != nil {
		return err
	}
	return m.kill(signal)
}

// EndBy has a function that is given its pid end a process. It returns when the process has ended,
// or when the function fails.
func (c *Cluster) EndBy(process string, end func(pid int) error) error {
	m, err := c.member(process)
	if err != nil {
		return err
	}
	return m.endBy(func() error { return end(m.cmd.Process.Pid) })
}

// StopProcess ends a process with SIGTERM, and with SIGKILL if it runs on for ten
// seconds or beyond the end of ctx. It returns when the process has ended.
func (c *Cluster) StopProcess(ctx context.Context, process string) error {
	m, err := c.member(process)
	if err != nil {
		return err
	}
	return m.stop(ctx)
}

// Stop ends all processes with SIGTERM, and with SIGKILL those that run on too long or
// beyond the end of ctx. It takes twenty seconds at most. Logs and data stay in Config.Dir.
func (c *Cluster) Stop(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil
	}
	c.stopped = true
	var errs []error
	for _, kinds := range [][]Component{{program}, {Kwok, KubeScheduler, KubeControllerManager}, {KubeAPIServer}, {Etcd}} {
		errs = append(errs, c.stopKindsLocked(ctx, kinds))
	}
	if c.requests != nil {
		c.requests.CloseIdleConnections()
	}
	return errors.Join(append(errs, c.dir.release())...)
}

// stopKindsLocked ends all processes of these kinds concurrently.
func (c *Cluster) stopKindsLocked(ctx context.Context, kinds []Component) error {
	ctx, cancel := context.WithTimeout(ctx, stageGrace)
	defer cancel()
	var started int
	results := make(chan error)
	for _, m := range c.members {
		if slices.Contains(kinds, m.what.kind) {
			started++
			go func() { results <- m.stop(ctx) }()
		}
	}
	var errs []error
	for range started {
		errs = append(errs, <-results)
	}
	return errors.Join(errs...)
}

// RESTConfig returns the configuration of a client that is a member of system:masters,
// has no rate limit, and prints no warnings.
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.adminConfig) }

// Client returns a client with that configuration.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// Kubeconfig returns the path of a kubeconfig for a member of system:masters.
func (c *Cluster) Kubeconfig() string { return c.dir.adminKubeconfig() }

// PID returns the pid of a process.
func (c *Cluster) PID(process string) (int, error) {
	m, err := c.member(process)
	if err != nil {
		return 0, err
	}
	return m.cmd.Process.Pid, nil
}

// Endpoint returns the URL that a process serves.
func (c *Cluster) Endpoint(process string) (string, error) {
	m, err := c.member(process)
	if err != nil {
		return "", err
	}
	return m.what.endpoint, nil
}

// LogFile returns the path of a process's log.
func (c *Cluster) LogFile(process string) string { return c.dir.log(process) }

// LogTail returns the last lines of a process's log below a line that names the file,
// for use in a message.
func (c *Cluster) LogTail(process string) string { return describeLog(c.LogFile(process)) }

// Get sends a GET request for the path, such as "/metrics", to a process and returns
// the body of the response. A status other than 200 is an error.
func (c *Cluster) Get(ctx context.Context, process, path string) ([]byte, error) {
	m, err := c.member(process)
	if err != nil {
		return nil, err
	}
	return c.get(ctx, m.what.endpoint+path)
}

func (c *Cluster) get(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := c.requests.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s: %s", url, response.Status, body)
	}
	return body, nil
}

func (c *Cluster) member(process string) (*member, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members {
		if m.name == process {
			return m, nil
		}
	}
	return nil, fmt.Errorf("the cluster has no process %q", process)
}
