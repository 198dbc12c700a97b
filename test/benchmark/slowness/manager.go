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
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/pkg/localcluster"
)

// kubeletPause is until a process that has ended is started again, as a kubelet would.
const kubeletPause = time.Second

// manager is a controller manager.
type manager struct {
	name string
	// proxy stands between it and the API server; nil: nothing does.
	proxy *proxy
	// leads says that it works on all controllers as leader: a stock one, or one of ours that leads
	// when nobody is on the rings.
	leads bool
	// killed says that it is not to be started again.
	killed bool
	// ended counts the times when it has ended by itself.
	ended int
}

// all returns all controller managers that were started.
func (s *side) all() []*manager {
	s.lock.Lock()
	defer s.lock.Unlock()
	return slices.Clone(s.managers)
}

// running returns the controller managers that run.
func (s *side) running() []*manager {
	names := s.cluster.ControllerManagers()
	return slices.DeleteFunc(s.all(), func(m *manager) bool { return !slices.Contains(names, m.name) })
}

// leader returns the stock process that works, or nil.
func (s *side) leader() *manager {
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, m := range s.managers {
		if m.leads {
			return m
		}
	}
	return nil
}

// add starts a controller manager with these arguments, and with a proxy of its own if it is to
// have one.
func (s *side) add(ctx context.Context, proxied bool, args ...string) error {
	m := &manager{}
	if proxied {
		endpoint, err := s.cluster.Endpoint(apiServerName)
		if err != nil {
			return err
		}
		if m.proxy, err = newProxy(endpoint, s.authority); err != nil {
			return err
		}
		args = append(args, "--master="+m.proxy.url())
	}
	if !s.stock {
		file := filepath.Join(s.dir, "ring.yaml")
		if err := os.WriteFile(file, []byte(s.settings), 0o644); err != nil {
			return err
		}
		args = append(args, "--controller-ring-config="+file)
	}
	var err error
	if m.name, err = s.cluster.AddControllerManager(ctx, args...); err != nil {
		if m.proxy != nil {
			m.proxy.close()
		}
		return err
	}
	s.lock.Lock()
	s.managers = append(s.managers, m)
	s.lock.Unlock()
	go s.read(s.living, m)
	go s.look(s.living, m)
	return nil
}

// kill ends a controller manager with SIGKILL, for good.
func (s *side) kill(m *manager) error {
	s.lock.Lock()
	m.killed = true
	s.lock.Unlock()
	err := s.cluster.Kill(m.name)
	s.idle(m)
	return err
}

// idle says that a process works on nothing now.
func (s *side) idle(m *manager) {
	s.lock.Lock()
	m.leads = false
	s.lock.Unlock()
	s.unserved.set(time.Now(), m.name, nil)
}

// died starts a controller manager again that has ended by itself, as one does that has lost the
// leader's Lease.
func (s *side) died(exit *localcluster.Exit) {
	log.Printf("%s: %s has ended (%s)", s.name, exit.Process, exit.State)
	for _, m := range s.all() {
		if m.name != exit.Process {
			continue
		}
		s.lock.Lock()
		m.ended++
		s.lock.Unlock()
		s.idle(m)
		go func() {
			for s.living.Err() == nil {
				time.Sleep(kubeletPause)
				if s.cluster.StartAgain(s.living, m.name) == nil {
					return
				}
			}
		}()
	}
}

// addLeader starts a controller manager that hosts no ring, and waits until it leads.
func (s *side) addLeader(ctx context.Context) error {
	if err := s.add(ctx, true, "--controllers=*,-"+strings.Join(catalogue.ControllerNames(), ",-")); err != nil {
		return err
	}
	return s.registry.Await(ctx, "a leader", func(l *ledger) bool { return l.leader != "" })
}

// addAll starts n controller managers, and waits until they share the work.
func (s *side) addAll(ctx context.Context, n int, proxied bool) error {
	for range n {
		if err := s.add(ctx, proxied); err != nil {
			return err
		}
	}
	return s.settle(ctx, n)
}

// proxies calls f with the proxy of each process that is not killed.
func (s *side) proxies(f func(*proxy) error) error {
	for _, m := range s.all() {
		if m.proxy == nil || s.isKilled(m) {
			continue
		}
		if err := f(m.proxy); err != nil {
			return err
		}
	}
	return nil
}

func (s *side) isLeading(m *manager) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	return m.leads
}

func (s *side) isKilled(m *manager) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	return m.killed
}
