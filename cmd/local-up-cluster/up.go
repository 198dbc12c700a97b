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
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/pkg/localcluster"
	"k8s.io/kubernetes/pkg/ringtable"
)

const (
	// progressInterval lies between two progress lines until the cluster is ready.
	progressInterval = time.Second
	// stallAfter is how long the progress may stand still before a line names the logs.
	stallAfter = time.Minute
)

// options say what to bring up, and where.
type options struct {
	binDir, dir                                  string
	instances, nodes, replicaSets, pods, apiPort size
}

// launcher is the state of a running cluster.
type launcher struct {
	options
	screen  *ringtable.Screen
	begin   time.Time
	cluster *localcluster.Cluster
	// holders has the name of each controller manager by the part of a holder identity
	// that names its process.
	holders map[string]string
}

// up runs a cluster until a signal, or until a component that it needs dies.
func up(o options) error {
	l := &launcher{options: o, screen: ringtable.NewScreen(os.Stdout), begin: time.Now(), holders: map[string]string{}}

	// The first signal ends ctx, the second ends force.
	ctx, end := context.WithCancelCause(context.Background())
	force, kill := context.WithCancel(context.Background())
	defer kill()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		for range signals {
			if ctx.Err() != nil {
				kill()
			}
			end(nil)
		}
	}()
	additions := make(chan os.Signal, 1)
	signal.Notify(additions, syscall.SIGUSR1)

	var err error
	l.cluster, err = localcluster.Start(ctx, localcluster.Config{
		BinDir:        o.binDir,
		Dir:           o.dir,
		Instances:     o.instances.value,
		Nodes:         o.nodes.value,
		APIServerPort: o.apiPort.value,
		Started:       func(what string, _ time.Duration) { l.say("%s ready", what) },
		Died:          func(exit *localcluster.Exit) { l.died(exit, end) },
	})
	if errors.Is(err, context.Canceled) {
		err := l.screen.Leave()
		l.say("interrupted; everything is stopped")
		return err
	}
	if err != nil {
		return explain(err, o.dir)
	}
	var background sync.WaitGroup
	background.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-additions:
				l.add(ctx)
			}
		}
	})
	err = l.run(ctx)
	if ctx.Err() != nil {
		// A signal is not an error, the death of a component is.
		err = context.Cause(ctx)
		if errors.Is(err, context.Canceled) {
			err = nil
		}
	}
	end(nil)
	background.Wait()
	err = errors.Join(err, l.screen.Leave())
	l.say("stopping; Ctrl-C again kills")
	err = errors.Join(err, l.cluster.Stop(force))
	l.say("stopped; logs are in %s", l.logs())
	return err
}

// explain adds a remedy to an error of localcluster.Start.
func explain(err error, dir string) error {
	switch {
	case errors.Is(err, localcluster.ErrPortInUse):
		return fmt.Errorf("%w\nEnd that program, or choose another port with API_PORT=", err)
	case errors.Is(err, localcluster.ErrRunning):
		return fmt.Errorf("%w\nEnd it with Ctrl-C where it runs, or with: kill $(cat %s)", err, filepath.Join(dir, "launcher.pid"))
	}
	return err
}

func (l *launcher) logs() string { return filepath.Join(l.dir, "logs") }

// line returns a line that begins with the time since the start.
func (l *launcher) line(format string, args ...any) string {
	return fmt.Sprintf("%6.1fs  %s\n", time.Since(l.begin).Seconds(), fmt.Sprintf(format, args...))
}

// say prints a line that stays.
func (l *launcher) say(format string, args ...any) {
	if _, err := io.WriteString(l.screen, l.line(format, args...)); err != nil {
		klog.Background().Error(err, "Could not write to standard output")
	}
}

// died reports that a process has died. If it is a controller manager the cluster goes
// on, to show how the others take over. Otherwise the cluster ends.
func (l *launcher) died(exit *localcluster.Exit, end context.CancelCauseFunc) {
	controllerManager := strings.HasPrefix(exit.Process, string(localcluster.KubeControllerManager))
	if controllerManager && strings.HasPrefix(exit.State, "signal: ") {
		l.say("%s has ended (%s); it is not started again", exit.Process, exit.State)
	} else {
		l.say("%v", exit)
	}
	if !controllerManager {
		end(fmt.Errorf("the cluster cannot run without %s", exit.Process))
	}
}

func (l *launcher) add(ctx context.Context) {
	l.say("adding a controller manager")
	name, err := l.cluster.AddControllerManager(ctx)
	if err != nil {
		l.say("no controller manager added: %v", err)
		return
	}
	l.say("%s ready", name)
}

// run creates the workloads, waits until the controller managers have created all
// their pods, and shows the ring until ctx ends.
func (l *launcher) run(ctx context.Context) error {
	log, err := os.Create(filepath.Join(l.logs(), "launcher.log"))
	if err != nil {
		return err
	}
	// Log lines of client-go would end up in the middle of the table.
	klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log))))

	client, err := kubernetes.NewForConfig(l.cluster.RESTConfig())
	if err != nil {
		return err
	}
	follower, err := ringtable.Follow(ctx, client, true)
	if err != nil {
		return err
	}
	all := workloads(l.replicaSets.value, l.pods.value)
	if err := createWorkloads(ctx, client, all); err != nil {
		return err
	}
	if err := createOthers(ctx, client); err != nil {
		return err
	}
	l.say("%d ReplicaSets and %d Deployments created, for %d pods; and %[4]d Jobs, %[4]d CronJobs, %[4]d DaemonSets", l.replicaSets.value, deployments, l.pods.value, others)
	if err := l.waitReady(ctx, follower); err != nil {
		return err
	}
	l.say("ready\n\n%s", l.hints())
	return l.show(ctx, follower)
}

// waitReady waits until every controller manager is Active on a ring without a gap,
// and all pods are ready.
func (l *launcher) waitReady(ctx context.Context, follower *ringtable.Follower) error {
	var last string
	changed := time.Now()
	return follower.Each(ctx, progressInterval, func() (bool, error) {
		rings, err := l.rings(follower)
		if err != nil {
			return false, err
		}
		want := len(l.cluster.ControllerManagers())
		ready, active, covered, pods := true, 0, 0.0, ringtable.Pods{}
		for _, ring := range rings {
			ready = ready && ring.Active() == want && len(ring.Instances) == want && ring.Gap.Empty()
			active, covered = active+ring.Active(), covered+ring.Covered()/float64(len(rings))
			if ring.Counted {
				pods = ring.Pods
			}
		}
		ready = ready && pods.Wanted == int64(l.pods.value) && pods.Ready == pods.Wanted
		progress := fmt.Sprintf("%d of %d instances of %d rings Active, %.1f%% of the hash keys covered, %d of %d pods ready",
			active, want*len(rings), len(rings), 100*covered, pods.Ready, l.pods.value)
		if ready {
			err := l.screen.Show("")
			l.say("%s", progress)
			return true, err
		}
		// A terminal shows one line that changes, other output a line for each change.
		if l.screen.Live() {
			err = l.screen.Show(l.line("%s", progress))
		} else if progress != last {
			l.say("%s", progress)
		}
		if progress != last {
			last, changed = progress, time.Now()
		} else if time.Since(changed) > stallAfter {
			l.say("nothing has changed for %s; the logs are in %s", stallAfter, l.logs())
			changed = time.Now()
		}
		return false, err
	})
}

// show shows the rings until ctx ends.
func (l *launcher) show(ctx context.Context, follower *ringtable.Follower) error {
	return follower.Each(ctx, l.screen.Interval(), func() (bool, error) {
		rings, err := l.rings(follower)
		if err != nil {
			return false, err
		}
		now := time.Now()
		if !l.screen.Live() {
			// Without ages, a table is printed only when the ring changes.
			now = time.Time{}
		}
		var texts []string
		for _, ring := range rings {
			texts = append(texts, ring.Name+":\n"+ring.Text(l.screen.Width(), now))
		}
		return false, l.screen.Show(strings.Join(texts, "\n"))
	})
}

// rings returns the rings, with each instance named after its process.
func (l *launcher) rings(follower *ringtable.Follower) ([]*ringtable.Ring, error) {
	for _, name := range l.cluster.ControllerManagers() {
		pid, err := l.cluster.PID(name)
		if err != nil {
			return nil, err
		}
		l.holders[fmt.Sprintf("_%d_", pid)] = name
	}
	var rings []*ringtable.Ring
	for _, described := range catalogue.Rings() {
		ring, err := follower.Ring(described.Name)
		if err != nil {
			return nil, err
		}
		for i := range ring.Instances {
			for part, name := range l.holders {
				if strings.Contains(ring.Instances[i].Holder, part) {
					ring.Instances[i].Name = name
				}
			}
		}
		rings = append(rings, ring)
	}
	return rings, nil
}

// hints lists the commands to try next.
func (l *launcher) hints() string {
	absolute := func(path string) string {
		if abs, err := filepath.Abs(path); err == nil {
			return abs
		}
		return path
	}
	dir, binDir := absolute(l.dir), absolute(l.binDir)
	return fmt.Sprintf(`In another terminal:
  export KUBECONFIG=%s PATH=%s:$PATH
  kubectl get controllerinstances
  kubectl ring --watch
  kill -9 $(cat %s)    # the ring heals
  hack/local-up-cluster.sh add    # one more controller manager takes its share
Ctrl-C stops everything.
`, filepath.Join(dir, "kubeconfig"), binDir, filepath.Join(dir, string(localcluster.KubeControllerManager)+"-2.pid"))
}
