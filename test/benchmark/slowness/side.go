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
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/pkg/localcluster"
	"k8s.io/kubernetes/pkg/ringtable"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/history"
)

const (
	etcdName      = string(localcluster.Etcd)
	apiServerName = string(localcluster.KubeAPIServer)
	// soon bounds the wait for any condition. It is ample even for a slow machine.
	soon = 5 * time.Minute
	// restTime is for how long nothing is listed once all has started.
	restTime = 15 * time.Second
)

// side is a cluster with controller managers: ours, or with the feature gate off, so that one leads
// and the others stand by, as in stock Kubernetes.
type side struct {
	name      string
	stock     bool
	dir       string
	settings  string
	cluster   *localcluster.Cluster
	client    kubernetes.Interface
	registry  *history.History[*ledger]
	unserved  *unserved
	authority *authority
	// living ends when the side ends.
	living context.Context

	lock sync.Mutex
	// managers has every controller manager that was started.
	managers []*manager
	// stop ends what was started, in this order.
	stop []func()
}

// startSide starts a cluster in a folder below dir, without controller managers. settings is the
// content of the settings files of those that come.
func startSide(ctx context.Context, bin, dir, settings string, stock bool) (_ *side, err error) {
	s := &side{name: "ours", stock: stock, settings: settings}
	if stock {
		s.name = "stock"
	}
	s.dir = filepath.Join(dir, s.name)
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.end()
		}
	}()
	if err := s.startCluster(ctx, bin); err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(s.dir, frontProxy+".kubeconfig")
	if err := s.cluster.WriteKubeconfig(kubeconfig, frontProxy); err != nil {
		return nil, err
	}
	if s.authority, err = newAuthority(s.clusterDir(), kubeconfig); err != nil {
		return nil, err
	}
	s.client = s.cluster.Client()
	return s, s.observe()
}

func (s *side) clusterDir() string { return filepath.Join(s.dir, "cluster") }

// startCluster starts etcd and the API server.
func (s *side) startCluster(ctx context.Context, bin string) (err error) {
	var cancel context.CancelFunc
	s.living, cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.stop = append(s.stop, cancel)
	s.cluster, err = localcluster.Start(ctx, localcluster.Config{
		BinDir: bin, Dir: s.clusterDir(), WithoutNodes: true,
		FeatureGates: map[string]bool{"ControllerRing": !s.stock},
		Args: map[localcluster.Component][]string{
			// Otherwise a server that is asked to end waits for the watches until it is killed.
			localcluster.KubeAPIServer: append(frontProxyArgs(s.clusterDir()), "--shutdown-watch-termination-grace-period=1s"),
			localcluster.KubeControllerManager: {
				"--kube-api-qps=2000", "--kube-api-burst=2000", "--concurrent-replicaset-syncs=20",
				// No kubelet says that Nodes are alive, and nothing runs the pods.
				"--node-monitor-grace-period=24h",
			},
		},
		Died: s.died,
	})
	if err != nil {
		return err
	}
	s.stop = append(s.stop, func() {
		if err := s.cluster.Stop(context.WithoutCancel(ctx)); err != nil {
			log.Print(err)
		}
	})
	return nil
}

// observe follows etcd until the side ends, and begins to count.
func (s *side) observe() error {
	endpoint, err := s.cluster.Endpoint(etcdName)
	if err != nil {
		return err
	}
	if s.registry, err = follow(s.living, endpoint); err != nil {
		return err
	}
	controllers := []string{allControllers}
	if !s.stock {
		controllers = ringControllers()
	}
	s.unserved = newUnserved(time.Now(), controllers)
	return nil
}

// ringControllers returns the controllers that are on rings, as serving names them.
func ringControllers() (names []string) {
	for _, ring := range catalogue.Rings() {
		for _, controller := range ring.ControllerNames() {
			names = append(names, ring.Name+"/"+controller)
		}
	}
	return names
}

// end ends all processes of the side.
func (s *side) end() {
	for _, m := range s.all() {
		if m.proxy != nil {
			m.proxy.close()
		}
	}
	for _, stop := range s.stop {
		stop()
	}
}

// settle waits until all controller managers run but those that were killed, and every key has a
// worker: of ours, until each ring has n Active instances, too.
func (s *side) settle(ctx context.Context, n int) error {
	return harness.Await(ctx, soon, period, fmt.Sprintf("%d controller managers of %s to share the work", n, s.name), func(ctx context.Context) error {
		wanted := slices.DeleteFunc(s.all(), s.isKilled)
		if running := len(s.running()); running != len(wanted) {
			return fmt.Errorf("%d of %d controller managers run", running, len(wanted))
		}
		if _, whole := s.unserved.whole(); !whole {
			return errors.New("keys have no worker")
		}
		if s.stock {
			return nil
		}
		return s.unsettled(ctx, n)
	})
}

// rest waits until nothing was listed for a while: the controllers that a leader runs start one
// after the other, long after every key has a worker.
func (s *side) rest(ctx context.Context) error {
	var last lists
	var since time.Time
	return harness.Await(ctx, soon, period, s.name+" to list nothing", func(context.Context) error {
		if now := s.now().lists(); now != last {
			last, since = now, time.Now()
		}
		if rested := time.Since(since); rested < restTime {
			return fmt.Errorf("it has listed nothing for %v", rested)
		}
		return nil
	})
}

// unsettled says why the rings are not at rest with n instances.
func (s *side) unsettled(ctx context.Context, n int) error {
	for _, in := range catalogue.Rings() {
		ring, err := ringtable.Get(ctx, s.client, in.Name)
		if err != nil {
			return err
		}
		if len(ring.Instances) != n || ring.Active() != n || len(ring.Problems()) > 0 {
			return fmt.Errorf("%s: %d instances, %d Active, %q", in.Name, len(ring.Instances), ring.Active(), ring.Problems())
		}
	}
	return nil
}

// counts are what a side has counted up to a moment.
type counts struct {
	// lost counts ours that lost a record while their process went on, leaders changes of the Lease's
	// holder, and ended processes that ended by themselves.
	lost, leaders, ended int
	unserved             time.Duration
	// processes has what each has listed, and how often it has ended by itself.
	processes map[*manager]process
}

// process is what a controller manager has listed, and how often it has ended by itself.
type process struct {
	lists
	ended int
}

// lists adds up what all processes have listed.
func (c counts) lists() (sum lists) {
	for _, p := range c.processes {
		sum = sum.plus(p.lists)
	}
	return sum
}

// now returns what was counted up to now.
func (s *side) now() (c counts) {
	s.registry.See(func(l *ledger) { c.lost, c.leaders = l.again, l.leaders })
	c.unserved, c.processes = s.unserved.until(time.Now()), map[*manager]process{}
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, m := range s.managers {
		p := process{ended: m.ended}
		if m.proxy != nil {
			p.lists = m.proxy.traffic.now()
		}
		c.processes[m] = p
		c.ended += m.ended
	}
	return c
}

// since returns what was counted after what before has.
func (s *side) since(before counts) counts {
	c := s.now()
	for m, p := range c.processes {
		was := before.processes[m]
		c.processes[m] = process{p.lists.minus(was.lists), p.ended - was.ended}
	}
	return counts{
		lost: c.lost - before.lost, leaders: c.leaders - before.leaders, ended: c.ended - before.ended,
		unserved: c.unserved - before.unserved, processes: c.processes,
	}
}
