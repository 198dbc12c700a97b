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
	"fmt"
	"sync"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/test/harness/shared"
)

const (
	// probesOfEach is the number of probes of each kind. Their keys are spread at random.
	probesOfEach = 6
	// probing is how long lies between an answer and the next request of a probe.
	probing = 200 * time.Millisecond
	// probePrefix begins the names of the probes.
	probePrefix = "probe-"
)

// probes measures how long keys have no worker. Each is a workload that is scaled between
// one pod and two, again as soon as its controller has answered.
type probes struct {
	client kubernetes.Interface
	stop   chan struct{}
	done   sync.WaitGroup
	*shared.State[*replies]
}

// replies are what controllers have made of the probes.
type replies struct {
	// seen has the status of each probe as last seen.
	seen    map[string]state
	answers []answer
}

// state is what a workload's status says.
type state struct {
	observed int64
	replicas int32
}

// answer is a request that a controller has answered.
type answer struct {
	probe, kind    string
	sent, answered time.Time
}

// startProbes creates the probes and starts them. All of them have been answered once
// when it returns.
func startProbes(ctx context.Context, client kubernetes.Interface) (*probes, error) {
	p := &probes{client: client, stop: make(chan struct{}), State: shared.New(&replies{seen: map[string]state{}})}
	ctx, cancel := context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	see := func(object any) {
		switch o := object.(type) {
		case *apps.ReplicaSet:
			p.see(o.Name, state{o.Status.ObservedGeneration, o.Status.Replicas})
		case *v1.ReplicationController:
			p.see(o.Name, state{o.Status.ObservedGeneration, o.Status.Replicas})
		}
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, object any) { see(object) }}
	for _, informer := range []cache.SharedIndexInformer{factory.Apps().V1().ReplicaSets().Informer(), factory.Core().V1().ReplicationControllers().Informer()} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			cancel()
			return nil, err
		}
	}
	factory.Start(ctx.Done())
	go func() {
		p.done.Wait()
		cancel()
	}()
	var first sync.WaitGroup
	for _, kind := range []string{aReplicaSet, aReplicationController} {
		for n := range probesOfEach {
			first.Add(1)
			p.done.Go(func() {
				if err := p.probe(ctx, kind, fmt.Sprintf("%s%s-%d", probePrefix, map[string]string{aReplicaSet: "rs", aReplicationController: "rc"}[kind], n), first.Done); err != nil {
					p.Fail(err)
				}
			})
		}
	}
	first.Wait()
	return p, p.Failed()
}

// end lets the probes await their last answers.
func (p *probes) end() error {
	close(p.stop)
	p.done.Wait()
	return p.Failed()
}

func (p *probes) see(name string, s state) {
	p.Change(func(r *replies) error { r.seen[name] = s; return nil })
}

// probe scales one workload until the probes end. It calls first after the first answer,
// or when it fails before.
func (p *probes) probe(ctx context.Context, kind, name string, first func()) error {
	first = sync.OnceFunc(first)
	defer first()
	if err := create(ctx, p.client, kind, name, 1); err != nil {
		return err
	}
	if err := p.await(ctx, name, 1, 1); err != nil {
		return err
	}
	first()
	for n := int32(0); ; n++ {
		select {
		case <-p.stop:
			return nil
		case <-time.After(probing):
		}
		replicas := 2 - n%2
		sent := time.Now()
		generation, err := scale(ctx, p.client, kind, name, replicas)
		if err != nil {
			return err
		}
		if err := p.await(ctx, name, generation, replicas); err != nil {
			return err
		}
		p.Change(func(r *replies) error {
			r.answers = append(r.answers, answer{name, kind, sent, time.Now()})
			return nil
		})
	}
}

// await waits until the controller has brought the probe to that size.
func (p *probes) await(ctx context.Context, name string, generation int64, replicas int32) error {
	ctx, cancel := context.WithTimeoutCause(ctx, soon, errSoon)
	defer cancel()
	return p.Await(ctx, "the answer to "+name, func(r *replies) bool {
		s := r.seen[name]
		return s.observed >= generation && s.replicas == replicas
	})
}

// longest returns the longest time from a request to its answer, by kind.
func (p *probes) longest() map[string]time.Duration {
	out := map[string]time.Duration{}
	p.See(func(r *replies) {
		for _, a := range r.answers {
			out[a.kind] = max(out[a.kind], a.answered.Sub(a.sent))
		}
	})
	return out
}

// after waits until every probe has had an answer after begin, and returns how long that
// took.
func (p *probes) after(ctx context.Context, begin time.Time) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, soon, errSoon)
	defer cancel()
	var longest time.Duration
	err := p.Await(ctx, "every key to be worked on", func(r *replies) bool {
		first := map[string]time.Duration{}
		for _, a := range r.answers {
			if _, already := first[a.probe]; !already && a.answered.After(begin) {
				first[a.probe] = a.answered.Sub(begin)
			}
		}
		longest = 0
		for _, d := range first {
			longest = max(longest, d)
		}
		return len(first) == 2*probesOfEach
	})
	return longest, err
}
