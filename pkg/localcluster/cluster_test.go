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
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startFake starts a cluster of fakes, and stops it at the end of the test. It has no
// controller managers and nodes at first, as Start would need a real API server for them.
func startFake(t *testing.T, config Config) *Cluster {
	t.Helper()
	config.BinDir, config.Dir = fakeBinaries(t), t.TempDir()
	cluster, err := Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return cluster
}

func TestStartAndStop(t *testing.T) {
	ends := filepath.Join(t.TempDir(), "ends")
	t.Setenv("FAKE_ENDS", ends)
	var started []string
	cluster := startFake(t, Config{Started: func(what string, _ time.Duration) { started = append(started, what) }})
	if want := []string{"etcd", "kube-apiserver", "kube-scheduler", "kwok", "nodes"}; !slices.Equal(started, want) {
		t.Errorf("started %v, want %v", started, want)
	}
	for _, want := range []string{"kube-controller-manager-1", "kube-controller-manager-2"} {
		name, err := cluster.AddControllerManager(t.Context())
		if err != nil || name != want {
			t.Fatalf("AddControllerManager: %q, %v, want %q", name, err, want)
		}
	}
	if got, want := cluster.ControllerManagers(), []string{"kube-controller-manager-1", "kube-controller-manager-2"}; !slices.Equal(got, want) {
		t.Errorf("ControllerManagers: %v, want %v", got, want)
	}
	for _, process := range []string{"etcd", "kube-apiserver", "kube-controller-manager-2", "kwok"} {
		body, err := cluster.Get(t.Context(), process, "/any")
		if err != nil || !strings.HasPrefix(process, string(body)) {
			t.Errorf("GET of %s: %q, %v", process, body, err)
		}
		pid, err := cluster.PID(process)
		if err != nil {
			t.Error(err)
		}
		if content, err := os.ReadFile(cluster.dir.pid(process)); err != nil || strings.TrimSpace(string(content)) != strconv.Itoa(pid) {
			t.Errorf("pid file of %s: %q, %v, want %d", process, content, err, pid)
		}
	}
	if pid, err := LauncherPID(cluster.dir.path); err != nil || pid != os.Getpid() {
		t.Errorf("LauncherPID: %d, %v, want %d", pid, err, os.Getpid())
	}

	if err := cluster.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(ends)
	if err != nil {
		t.Fatal(err)
	}
	order := strings.Fields(string(content))
	if len(order) != 6 || order[4] != "kube-apiserver" || order[5] != "etcd" {
		t.Errorf("stopped %v, want the API server last but one and etcd last", order)
	}
	if left, err := filepath.Glob(filepath.Join(cluster.dir.path, "*.pid")); err != nil || !slices.Equal(left, []string{cluster.dir.pid("launcher")}) {
		t.Errorf("pid files after Stop: %v, %v", left, err)
	}
	if _, err := LauncherPID(cluster.dir.path); !errors.Is(err, ErrNotRunning) {
		t.Errorf("LauncherPID after Stop: %v, want ErrNotRunning", err)
	}
	if _, err := cluster.AddControllerManager(t.Context()); err == nil {
		t.Error("AddControllerManager after Stop succeeded")
	}
}

func TestWithoutNodes(t *testing.T) {
	bin := fakeBinaries(t)
	for _, what := range []string{"kube-scheduler", "kwok", "../kwok/stages.yaml"} {
		if err := os.Remove(filepath.Join(bin, what)); err != nil {
			t.Fatal(err)
		}
	}
	var started []string
	cluster, err := Start(t.Context(), Config{
		BinDir: bin, Dir: t.TempDir(), WithoutNodes: true,
		Started: func(what string, _ time.Duration) { started = append(started, what) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if want := []string{"etcd", "kube-apiserver", "nodes"}; !slices.Equal(started, want) {
		t.Errorf("started %v, want %v", started, want)
	}
}

// TestDeathWhileStarting: Start fails with the death of a component, whichever component
// it was waiting for.
func TestDeathWhileStarting(t *testing.T) {
	for _, kind := range []Component{Etcd, KubeAPIServer, KubeScheduler, Kwok} {
		t.Run(string(kind), func(t *testing.T) {
			dir := t.TempDir()
			_, err := Start(t.Context(), Config{
				BinDir: fakeBinaries(t), Dir: dir,
				Args: map[Component][]string{kind: {"--fake-die"}},
			})
			if err == nil {
				t.Fatal("Start succeeded")
			}
			log := filepath.Join(dir, "logs", string(kind)+".log")
			for _, want := range []string{string(kind) + " has ended (exit status 3)", log, "fake " + string(kind) + " has no way to go on"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q: %v", want, err)
				}
			}
			if _, err := LauncherPID(dir); !errors.Is(err, ErrNotRunning) {
				t.Errorf("the directory is not released: %v", err)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*.pid")); len(left) != 1 {
				t.Errorf("processes left: %v", left)
			}
		})
	}
}

func TestDeathWhileAdding(t *testing.T) {
	cluster := startFake(t, Config{
		Args: map[Component][]string{KubeControllerManager: {"--fake-die"}},
		Died: func(exit *Exit) { t.Errorf("Died(%s) for a process that was never ready", exit.Process) },
	})
	_, err := cluster.AddControllerManager(t.Context())
	if err == nil || !strings.Contains(err.Error(), "kube-controller-manager-1 has ended (exit status 3)") {
		t.Errorf("AddControllerManager: %v", err)
	}
	if got := cluster.ControllerManagers(); len(got) != 0 {
		t.Errorf("ControllerManagers: %v, want none", got)
	}
}

func TestFurtherAPIServer(t *testing.T) {
	cluster := startFake(t, Config{})
	const want = "kube-apiserver-2"
	if name, err := cluster.AddAPIServer(t.Context()); err != nil || name != want {
		t.Fatalf("AddAPIServer: %q, %v, want %q", name, err, want)
	}
	first, err := cluster.Endpoint("kube-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	if second, err := cluster.Endpoint(want); err != nil || second == first {
		t.Errorf("Endpoint: %q, %v, want another than %q", second, err, first)
	}
	if err := cluster.Kill(want); err != nil {
		t.Fatal(err)
	}
	if err := cluster.StartAgain(t.Context(), want); err != nil {
		t.Error(err)
	}
	if name, err := cluster.AddAPIServer(t.Context(), "--fake-die"); err == nil {
		t.Errorf("AddAPIServer: %q, want an error", name)
	}
}

func TestSeveralControllerManagersAtOnce(t *testing.T) {
	cluster := startFake(t, Config{})
	want := []string{"kube-controller-manager-1", "kube-controller-manager-2", "kube-controller-manager-3"}
	if names, err := cluster.AddControllerManagers(t.Context(), 3); err != nil || !slices.Equal(names, want) {
		t.Fatalf("AddControllerManagers: %q, %v, want %q", names, err, want)
	}
	if got := cluster.ControllerManagers(); !slices.Equal(got, want) {
		t.Errorf("ControllerManagers: %v, want %v", got, want)
	}
	// One that dies takes those that were started with it along.
	if names, err := cluster.AddControllerManagers(t.Context(), 2, "--fake-die"); err == nil {
		t.Errorf("AddControllerManagers: %q, want an error", names)
	}
	if got := cluster.ControllerManagers(); !slices.Equal(got, want) {
		t.Errorf("ControllerManagers: %v, want %v", got, want)
	}
}

func TestStartEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Start(ctx, Config{
		BinDir: fakeBinaries(t), Dir: t.TempDir(),
		Started: func(what string, _ time.Duration) {
			if what == "kube-apiserver" {
				cancel()
			}
		},
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Start: %v, want that it was canceled", err)
	}
}

func TestDied(t *testing.T) {
	deaths := make(chan *Exit, 10)
	cluster := startFake(t, Config{Died: func(exit *Exit) { deaths <- exit }})
	for range 5 {
		if _, err := cluster.AddControllerManager(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// Processes that the cluster is asked to end are not reported.
	if err := cluster.Kill("kube-controller-manager-1"); err != nil {
		t.Fatal(err)
	}
	if err := cluster.StopProcess(t.Context(), "kube-controller-manager-2"); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Crash("kube-controller-manager-5"); err != nil {
		t.Fatal(err)
	}
	if log, err := os.ReadFile(cluster.LogFile("kube-controller-manager-5")); err != nil || !strings.Contains(string(log), "goroutine 1 ") {
		t.Errorf("the log of a crashed process has no goroutines (%v): %s", err, log)
	}
	if _, err := os.Stat(cluster.dir.pid("kube-controller-manager-1")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("pid file of a killed process: %v", err)
	}

	if err := cluster.Signal("kube-controller-manager-3", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got, want := *<-deaths, (Exit{Process: "kube-controller-manager-3", State: "signal: killed", LogFile: cluster.LogFile("kube-controller-manager-3")}); got != want {
		t.Errorf("got %#v, want %#v", got, want)
	}
	// The process ends during the request.
	if _, err := cluster.Get(t.Context(), "kwok", "/die"); err == nil {
		t.Error("GET /die was answered")
	}
	if got, want := (<-deaths).Error(), "kwok has ended (exit status 3); "+cluster.LogTail("kwok"); got != want || !strings.Contains(got, "fake kwok begins") {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := cluster.ControllerManagers(), []string{"kube-controller-manager-4"}; !slices.Equal(got, want) {
		t.Errorf("ControllerManagers: %v, want %v", got, want)
	}
	if len(deaths) > 0 {
		t.Errorf("more deaths: %v", <-deaths)
	}
}

func TestStartAgain(t *testing.T) {
	cluster := startFake(t, Config{})
	if err := cluster.StartAgain(t.Context(), "kube-apiserver"); err == nil {
		t.Error("a process that runs was started again")
	}
	before, err := cluster.Endpoint("kube-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := cluster.Kill("kube-apiserver"); err != nil {
			t.Fatal(err)
		}
		if err := cluster.StartAgain(t.Context(), "kube-apiserver"); err != nil {
			t.Fatal(err)
		}
	}
	if after, err := cluster.Endpoint("kube-apiserver"); err != nil || after != before {
		t.Errorf("serves %s, %v, before it was %s", after, err, before)
	}
	if _, err := cluster.Get(t.Context(), "kube-apiserver", "/any"); err != nil {
		t.Error(err)
	}
	if n := strings.Count(cluster.LogTail("kube-apiserver"), "fake kube-apiserver begins"); n != 3 {
		t.Errorf("the log has %d starts, want 3", n)
	}
}

func TestFlagsOfOneControllerManager(t *testing.T) {
	cluster := startFake(t, Config{Args: map[Component][]string{KubeControllerManager: {"--fake-die"}}})
	if _, err := cluster.AddControllerManager(t.Context(), "--fake-die=false"); err == nil {
		t.Error("it has not died")
	}
	if args := cluster.members[len(cluster.members)-1].cmd.Args; args[len(args)-1] != "--fake-die=false" {
		t.Errorf("started with %q, want its own flag last", args)
	}
}

// TestStopDoesNotWaitForTheDeaf: once the context ends, Stop waits neither for a process
// that ignores SIGTERM nor for a suspended one.
func TestStopDoesNotWaitForTheDeaf(t *testing.T) {
	cluster := startFake(t, Config{Args: map[Component][]string{KubeScheduler: {"--fake-deaf"}}})
	if err := cluster.Signal("kwok", syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := cluster.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	for _, m := range cluster.members {
		if m.running() {
			t.Errorf("%s still runs", m.name)
		}
	}
}

func TestPortInUse(t *testing.T) {
	listener, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, err = Start(t.Context(), Config{BinDir: fakeBinaries(t), Dir: t.TempDir(), APIServerPort: listener.Addr().(*net.TCPAddr).Port})
	if !errors.Is(err, ErrPortInUse) || !strings.Contains(err.Error(), listener.Addr().String()) {
		t.Errorf("Start: %v, want ErrPortInUse for %s", err, listener.Addr())
	}
}

func TestMissingFiles(t *testing.T) {
	bin := fakeBinaries(t)
	missing := []string{filepath.Join(bin, "kwok"), filepath.Join(bin, "..", "kwok", "stages.yaml")}
	for _, file := range missing {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Start(t.Context(), Config{BinDir: bin, Dir: t.TempDir()})
	if want := "missing " + strings.Join(missing, ", ") + ": run `make build`"; err == nil || err.Error() != want {
		t.Errorf("Start: %v, want %s", err, want)
	}
}

// TestOneClusterInADirectory: a second cluster can start only once the first has ended,
// and finds none of its files.
func TestOneClusterInADirectory(t *testing.T) {
	cluster := startFake(t, Config{})
	config := Config{BinDir: cluster.config.BinDir, Dir: cluster.dir.path}
	_, err := Start(t.Context(), config)
	if !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), "started by process "+strconv.Itoa(os.Getpid())) {
		t.Fatalf("Start: %v, want ErrRunning", err)
	}
	if _, err := cluster.Get(t.Context(), "etcd", "/health"); err != nil {
		t.Errorf("the first cluster has suffered: %v", err)
	}
	if err := cluster.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}

	// Files that a killed cluster leaves behind.
	stale := []string{cluster.dir.pid("kube-controller-manager-7"), cluster.dir.log("kube-controller-manager-7"), filepath.Join(cluster.dir.path, "etcd", "data")}
	for _, file := range stale {
		if err := os.WriteFile(file, []byte("1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	second, err := Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range stale {
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", file, err)
		}
	}
	if err := second.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestTemporaryDirectory(t *testing.T) {
	cluster, err := Start(t.Context(), Config{BinDir: fakeBinaries(t)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(cluster.Kubeconfig()); err != nil {
		t.Error(err)
	}
	if err := cluster.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(cluster.dir.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", cluster.dir.path, err)
	}
}

func TestDirectoryOfSomethingElse(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "thesis.txt")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), Config{BinDir: fakeBinaries(t), Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "thesis.txt") {
		t.Errorf("Start: %v", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

func TestArgsWinOverTheirDefaults(t *testing.T) {
	cluster := startFake(t, Config{
		FeatureGates: map[string]bool{"Some": false, "Other": true},
		Args:         map[Component][]string{KubeControllerManager: {"--kube-api-qps=7"}},
	})
	if _, err := cluster.AddControllerManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	m, err := cluster.member("kube-controller-manager-1")
	if err != nil {
		t.Fatal(err)
	}
	own, further := slices.Index(m.cmd.Args, "--kube-api-qps=200"), slices.Index(m.cmd.Args, "--kube-api-qps=7")
	if own < 0 || further < own {
		t.Errorf("--kube-api-qps=200 is argument %d, --kube-api-qps=7 %d, want it behind", own, further)
	}
	if !slices.Contains(m.cmd.Args, "--feature-gates=Other=true,Some=false") {
		t.Errorf("no feature gates in %q", m.cmd.Args)
	}
}

func TestProgram(t *testing.T) {
	deaths := make(chan *Exit, 10)
	dir := t.TempDir()
	cluster := startFake(t, Config{Died: func(exit *Exit) { deaths <- exit }})
	start := func(name string) error {
		return cluster.StartProgram(t.Context(), Program{
			Name: name, Dir: dir, Env: []string{"FILE=began"},
			Command: []string{"sh", "-c", `trap "exit 3" TERM; touch $FILE; while true; do sleep 0.01; done`},
		})
	}
	if err := start("operator-1"); err != nil {
		t.Fatal(err)
	}
	if start("operator-1") == nil {
		t.Error("two processes have the same name")
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "began")); err == nil {
			break
		}
	}
	// Nobody but its owner knows whether it should end on a signal.
	if err := cluster.Signal("operator-1", syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if exit := <-deaths; exit.Process != "operator-1" || exit.State != "exit status 3" {
		t.Errorf("%s ended with %s", exit.Process, exit.State)
	}
	if err := start("operator-2"); err != nil {
		t.Fatal(err)
	}
	m, err := cluster.member("operator-2")
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m.running() {
		t.Error("it runs on without the cluster")
	}
	if len(deaths) > 0 {
		t.Errorf("more deaths: %v", <-deaths)
	}
}
