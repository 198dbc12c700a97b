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

// Command secondetcd injects faults while the pods lie in an etcd of their own, whose revisions
// have nothing to do with those of the registry: they are far behind or far ahead. Controller
// managers join, leave, are killed and suspended, and the API server is killed, while pods are
// deleted all the time. The ReplicaSets stay as they are, so at no revision of the pods' etcd may
// one of them have more pods than it wants. In the end each has all of them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/pkg/localcluster"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/history"
	"k8s.io/kubernetes/test/harness/objects"
	"k8s.io/utils/ptr"
)

func main() {
	b := &bench{}
	flag.StringVar(&b.bin, "bin", "../bin", "directory of the binaries")
	flag.IntVar(&b.times, "times", 2, "inject each fault this many times in each order of revisions")
	flag.Parse()
	log.SetFlags(log.Ltime)
	harness.Main("secondetcd", func(ctx context.Context) error {
		for _, pods := range []string{"behind", "ahead"} {
			if err := b.run(ctx, pods); err != nil {
				return fmt.Errorf("pods %s: %w", pods, err)
			}
		}
		return nil
	})
	fmt.Printf("%d faults, %d pods created, none in excess\n", b.faults, b.created)
}

const (
	instances   = 3
	replicaSets = 40
	replicas    = 10
	// apart is how many revisions one etcd is ahead of the other.
	apart = 50_000
	soon  = 3 * time.Minute
)

type bench struct {
	bin             string
	times           int
	faults, created int

	cluster  *localcluster.Cluster
	client   kubernetes.Interface
	history  *history.History[*census]
	managers []string
}

// run injects all faults with the revisions of the pods behind or ahead of the others.
func (b *bench) run(ctx context.Context, pods string) (err error) {
	if err := harness.Absolute(&b.bin); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "secondetcd")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	second, stop, err := b.startEtcd(ctx, dir)
	if err != nil {
		return err
	}
	defer stop()
	b.managers = nil
	b.cluster, err = localcluster.Start(ctx, localcluster.Config{
		BinDir: b.bin, Dir: filepath.Join(dir, "cluster"),
		Args: map[localcluster.Component][]string{
			localcluster.KubeAPIServer:         {"--etcd-servers-overrides=/pods#" + second},
			localcluster.KubeControllerManager: {"--kube-api-qps=2000", "--kube-api-burst=2000"},
		},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.cluster.Stop(context.WithoutCancel(ctx))) }()
	first, err := b.cluster.Endpoint(string(localcluster.Etcd))
	if err != nil {
		return err
	}
	passed := first
	if pods == "ahead" {
		passed = second
	}
	if err := advance(ctx, passed); err != nil {
		return err
	}
	b.client = b.cluster.Client()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if b.history, err = follow(ctx, second); err != nil {
		return err
	}
	for range instances {
		if err := b.join(ctx); err != nil {
			return err
		}
	}
	if err := b.createSets(ctx); err != nil {
		return err
	}
	if err := b.settle(ctx); err != nil {
		return err
	}
	churn, calm := context.WithCancel(ctx)
	deleting := make(chan struct{})
	go func() {
		defer close(deleting)
		b.deletePods(churn)
	}()
	defer func() {
		calm()
		<-deleting
	}()
	for range b.times {
		for _, f := range faults {
			began := time.Now()
			if err := f.do(b, ctx); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			if err := b.settle(ctx); err != nil {
				return fmt.Errorf("after %s: %w", f.name, err)
			}
			b.faults++
			log.Printf("pods %s: %s, settled after %v; %d pods created so far", pods, f.name, time.Since(began).Round(100*time.Millisecond), b.podsCreated())
		}
	}
	b.created += b.podsCreated()
	return b.failure()
}

// podsCreated returns how many pods were created in this etcd.
func (b *bench) podsCreated() (n int) {
	b.history.See(func(c *census) { n = c.created })
	return n
}

// failure returns what was wrong.
func (b *bench) failure() error {
	errs := []error{b.history.Failed()}
	b.history.See(func(c *census) { errs = append(errs, c.excess...) })
	return errors.Join(errs...)
}

// startEtcd starts the pods' etcd and returns its URL.
func (b *bench) startEtcd(ctx context.Context, dir string) (url string, stop func(), err error) {
	client, err := freePort()
	if err != nil {
		return "", nil, err
	}
	peer, err := freePort()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "etcd"), "--name=pods", "--data-dir="+filepath.Join(dir, "etcd"),
		"--listen-client-urls="+client, "--advertise-client-urls="+client, "--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer, "--initial-cluster=pods="+peer, "--unsafe-no-fsync", "--log-level=error")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	return client, func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}, nil
}

// advance raises the revision of an etcd.
func advance(ctx context.Context, endpoint string) error {
	client, err := history.Connect(endpoint)
	if err != nil {
		return err
	}
	defer client.Close()
	return harness.Parallel(ctx, 64, apart, func(ctx context.Context, _ int) error {
		_, err := client.Put(ctx, "/advance", "")
		return err
	})
}

func (b *bench) createSets(ctx context.Context) error {
	for i := range replicaSets {
		pods := objects.Pods(map[string]string{"set": fmt.Sprint(i)})
		pods.Spec.SchedulerName = "none"
		set := objects.ReplicaSet(fmt.Sprintf("set-%02d", i), replicas, pods)
		if err := objects.Create(ctx, b.client, metav1.NamespaceDefault, set); err != nil {
			return err
		}
		b.history.See(func(c *census) { c.want[set.UID] = replicas })
	}
	return nil
}

// deletePods deletes pods at random.
func (b *bench) deletePods(ctx context.Context) {
	for ctx.Err() == nil {
		var name string
		b.history.See(func(c *census) { name = c.any(rand.Intn) })
		if name != "" {
			// Whatever fails meanwhile is what the faults are for.
			_ = b.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
		}
		_ = harness.Sleep(ctx, 30*time.Millisecond)
	}
}

// settle waits until all instances are active, and then until each ReplicaSet has had all its pods.
func (b *bench) settle(ctx context.Context) error {
	// The API server may be down.
	if err := harness.Await(ctx, soon, 100*time.Millisecond, "the instances", func(ctx context.Context) error {
		return harness.Settled(ctx, b.client, catalogue.WorkloadsRing, len(b.managers))
	}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	b.history.See((*census).forget)
	err := b.history.Await(ctx, "the pods", func(c *census) bool { return len(c.excess) > 0 || c.wasComplete() })
	return errors.Join(err, b.failure())
}
