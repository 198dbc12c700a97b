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
	"log"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/pkg/localcluster"
	"k8s.io/kubernetes/pkg/ringtable"
)

// process is a controller manager, behind a proxy of its own.
type process struct {
	name  string
	proxy *proxy
	// owned has the keys that it owned when the ring last settled.
	owned hashkey.Ranges
}

func (b *benchmark) newProcess() (*process, error) {
	proxy, err := b.newProxy()
	return &process{proxy: proxy}, err
}

func (b *benchmark) start(ctx context.Context, p *process, args ...string) (err error) {
	p.name, err = b.cluster.AddControllerManager(ctx, append(args, "--master=https://"+p.proxy.address())...)
	return err
}

var heapAlloc = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

// liveNow makes the process collect its garbage, and returns the bytes that remain.
func (b *benchmark) liveNow(ctx context.Context, name string) (uint64, error) {
	// With debug=1 the profile includes the size of the heap after the collection.
	profile, err := b.cluster.Get(ctx, name, "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return 0, err
	}
	match := heapAlloc.FindSubmatch(profile)
	if match == nil {
		return 0, fmt.Errorf("the heap profile of %s lacks HeapAlloc", name)
	}
	return strconv.ParseUint(string(match[1]), 10, 64)
}

// live returns the least of several measurements. The others may include objects in use
// by a request, or in a pool that only a second collection empties.
func (b *benchmark) live(ctx context.Context, p *process) (uint64, error) {
	var least uint64
	for i := range 5 {
		bytes, err := b.liveNow(ctx, p.name)
		if err != nil {
			return 0, err
		}
		if i == 0 || bytes < least {
			least = bytes
		}
		if err := sleep(ctx, 500*time.Millisecond); err != nil {
			return 0, err
		}
	}
	log.Printf("%s: %s live", p.name, size(float64(least)))
	return least, nil
}

// settle waits until these processes make up the ring with no handover open, and each
// has reported its number of ReplicaSets, which it does once that has changed by a tenth.
// A joining instance chooses its donor by it.
func (b *benchmark) settle(ctx context.Context, ring []*process) error {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	var left error
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		left = b.unsettled(ctx, ring)
		return left == nil, nil
	})
	if err != nil {
		return errors.Join(err, left)
	}
	return nil
}

func (b *benchmark) unsettled(ctx context.Context, ring []*process) error {
	list, err := b.client.ShardingV1alpha1().ControllerInstances().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var members []*shardingv1alpha1.ControllerInstance
	for i := range list.Items {
		members = append(members, &list.Items[i])
	}
	now, err := ringtable.Of(catalogue.WorkloadsRing, members, nil)
	if err != nil {
		return err
	}
	if len(now.Instances) != len(ring) {
		return fmt.Errorf("there are %d instances, want %d", len(now.Instances), len(ring))
	}
	byPID := map[string]ringtable.Instance{}
	for _, i := range now.Instances {
		owned := int64(b.setsIn(i.Owned) + b.podsIn(i.Owned))
		missed := i.Weight - owned
		if i.Phase != shardingv1alpha1.InstanceActive || !i.Coming.Empty() || max(missed, -missed) > i.Weight/10 {
			return fmt.Errorf("instance %s is %s with %d ReplicaSets and pods, of %d that it owns", i.Name, i.Phase, i.Weight, owned)
		}
		// A holder is HOST_PID_RANDOM.
		parts := strings.Split(i.Holder, "_")
		byPID[parts[len(parts)-2]] = i
	}
	for _, p := range ring {
		pid, err := b.cluster.PID(p.name)
		if err != nil {
			return err
		}
		i, ok := byPID[strconv.Itoa(pid)]
		if !ok {
			return fmt.Errorf("%s is not in the ring", p.name)
		}
		p.owned = i.Owned
	}
	return nil
}

// proxy forwards TCP connections to the API server, and counts the bytes of its answers
// on the wire.
type proxy struct {
	listener net.Listener
	target   string
	received atomic.Int64
}

func (b *benchmark) newProxy() (*proxy, error) {
	endpoint, err := b.cluster.Endpoint(string(localcluster.KubeAPIServer))
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: listener, target: strings.TrimPrefix(endpoint, "https://")}
	// It accepts until the benchmark ends. A connection closes when either side does.
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return // this closes the client's connection
	}
	defer server.Close()
	go func() {
		defer server.Close()
		_, _ = io.Copy(server, client)
	}()
	_, _ = io.Copy(client, io.TeeReader(server, p))
}

// Write counts the bytes of an answer.
func (p *proxy) Write(answer []byte) (int, error) {
	p.received.Add(int64(len(answer)))
	return len(answer), nil
}
