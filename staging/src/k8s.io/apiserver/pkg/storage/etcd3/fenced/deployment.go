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

package fenced

import (
	"context"
	"path"
	"slices"
	"sync"
)

// deployment is what API servers of this process store under one prefix: normally one
// server's. Each of several servers in a test has a prefix of its own, or shares it and its
// registry with another.
type deployment struct {
	prefix string
	lock   sync.Mutex
	// registries are those that are open, the newest last.
	registries []*registry
	// backends holds one for each way to connect, so that hundreds of resources of one etcd
	// are probed once.
	backends map[string]*backend
	// early are the storages that came before the registry.
	early []*store
}

var (
	deploymentsLock sync.Mutex
	deployments     = map[string]*deployment{}
)

// deploymentOf returns what is stored under the prefix.
func deploymentOf(prefix string) *deployment {
	prefix = path.Join("/", prefix)
	deploymentsLock.Lock()
	defer deploymentsLock.Unlock()
	d, ok := deployments[prefix]
	if !ok {
		d = &deployment{prefix: prefix, backends: map[string]*backend{}}
		deployments[prefix] = d
	}
	return d
}

// backend returns the one of that transport.
func (d *deployment) backend(transport string) *backend {
	d.lock.Lock()
	defer d.lock.Unlock()
	b, ok := d.backends[transport]
	if !ok {
		b = newBackend(d.prefix)
		d.backends[transport] = b
	}
	return b
}

// registry returns the newest that is open, nil if none is.
func (d *deployment) registry() *registry {
	d.lock.Lock()
	defer d.lock.Unlock()
	if n := len(d.registries); n > 0 {
		return d.registries[n-1]
	}
	return nil
}

// open adds a registry until its client is closed.
func (d *deployment) open(r *registry) {
	ctx := r.client.Ctx()
	d.lock.Lock()
	defer d.lock.Unlock()
	d.registries = append(d.registries, r)
	context.AfterFunc(ctx, func() {
		d.lock.Lock()
		defer d.lock.Unlock()
		d.registries = slices.DeleteFunc(d.registries, func(other *registry) bool { return other == r })
	})
	go r.announce(ctx)
	go r.endUnleased(ctx)
	for _, s := range d.early {
		d.tell(s, r)
	}
	d.early = nil
}

// add adds a storage that is not a registry's.
func (d *deployment) add(s *store) {
	d.lock.Lock()
	defer d.lock.Unlock()
	if n := len(d.registries); n > 0 {
		d.tell(s, d.registries[n-1])
	} else {
		d.early = append(d.early, s)
	}
}

// tell has the storage say if it may be apart from the registry.
func (d *deployment) tell(s *store, r *registry) {
	if s.backend != r.backend {
		go s.announce(s.client.Ctx(), r)
	}
}
