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

// Command watchers measures the CPU time that watches on disjoint parts of a collection
// cost a real kube-apiserver. It starts one with etcd, creates pods, and updates some
// while watchers with each kind of selector receive their parts over HTTP in protobuf.
// It prints a line for each kind:
//
//	KIND CPU-SECONDS EVENTS
//
// CPU-SECONDS is the API server's CPU time from the first update until the last watcher
// has received its last event. It is the median of three rounds, in which the kinds take
// turns.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/localcluster"
	"k8s.io/kubernetes/test/benchmark/measure"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/objects"
	"k8s.io/utils/ptr"
)

func main() {
	b := &benchmark{}
	bin := flag.String("bin", "", "directory of the binaries")
	flag.IntVar(&b.pods, "pods", 20_000, "number of pods")
	flag.IntVar(&b.watchers, "watchers", 64, "number of watchers")
	flag.IntVar(&b.updates, "updates", 5_000, "number of pod updates for each kind of selector")
	flag.Parse()
	if err := b.run(context.Background(), *bin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type benchmark struct {
	pods, watchers, updates int
	client                  kubernetes.Interface
	pid                     int
	names                   []string
	round                   int
}

func (b *benchmark) run(ctx context.Context, bin string) (err error) {
	cluster, err := localcluster.Start(ctx, localcluster.Config{BinDir: bin})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop(ctx)) }()
	if b.pid, err = cluster.PID(string(localcluster.KubeAPIServer)); err != nil {
		return err
	}
	b.client = cluster.Client()
	if err := b.createPods(ctx); err != nil {
		return err
	}
	kinds := []string{"no-watchers", sharding.HashKeyPath, sharding.ControllerHashKeyPath, "object.metadata.uid", "no-selector"}
	const rounds = 3
	used, events := map[string][]time.Duration{}, map[string]int64{}
	for round := range rounds {
		for turn := range kinds {
			kind := kinds[(round+turn)%len(kinds)] // vary the order, which affects the result
			took, received, err := b.measure(ctx, kind)
			if err != nil {
				return fmt.Errorf("%s: %w", kind, err)
			}
			used[kind], events[kind] = append(used[kind], took), received
		}
		fmt.Fprintf(os.Stderr, "%d of %d rounds measured\n", round+1, rounds)
	}
	for _, kind := range kinds {
		slices.Sort(used[kind])
		fmt.Printf("%s %.2f %d\n", kind, used[kind][rounds/2].Seconds(), events[kind])
	}
	return nil
}

const workers = 16

func (b *benchmark) createPods(ctx context.Context) error {
	if err := objects.Create(ctx, b.client, metav1.NamespaceDefault, &v1.ServiceAccount{ObjectMeta: objects.Named("default")}); err != nil {
		return err
	}
	b.names = make([]string, b.pods)
	owners := make([]types.UID, max(1, b.pods/10))
	for i := range owners {
		owners[i] = uuid.NewUUID()
	}
	var created atomic.Int64
	return harness.Parallel(ctx, workers, b.pods, func(ctx context.Context, i int) error {
		b.names[i] = fmt.Sprintf("pod-%05d", i)
		err := objects.Create(ctx, b.client, metav1.NamespaceDefault, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name:   b.names[i],
				Labels: map[string]string{"app": "watched"},
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "owner", UID: owners[i%len(owners)], Controller: ptr.To(true)}},
			},
			Spec: v1.PodSpec{
				SchedulerName: "none", // nothing schedules them
				Containers:    []v1.Container{{Name: "main", Image: "registry.example/watched"}},
			},
		})
		if n := created.Add(1); err == nil && n%5_000 == 0 {
			fmt.Fprintf(os.Stderr, "%d of %d pods created\n", n, b.pods)
		}
		return err
	})
}

// measure updates pods while watchers with one kind of selector follow them.
func (b *benchmark) measure(ctx context.Context, kind string) (used time.Duration, events int64, err error) {
	list, err := b.client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, 0, err
	}
	want := int64(b.updates)
	switch kind {
	case "no-watchers":
		want = 0
	case "no-selector":
		want *= int64(b.watchers)
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var received atomic.Int64
	all := make(chan struct{})
	if want > 0 {
		for i := range uint64(b.watchers) {
			w, err := b.client.CoreV1().Pods(metav1.NamespaceDefault).Watch(ctx, metav1.ListOptions{
				ResourceVersion: list.ResourceVersion, ShardSelector: selector(kind, i, uint64(b.watchers))})
			if err != nil {
				return 0, 0, err
			}
			defer w.Stop()
			wg.Go(func() {
				for event := range w.ResultChan() {
					if event.Type == watch.Modified && received.Add(1) == want {
						close(all)
					}
				}
			})
		}
	} else {
		close(all)
	}

	b.round++
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"round":"%d"}}}`, b.round)
	_, before, err := measure.Usage(b.pid)
	if err != nil {
		return 0, 0, err
	}
	if err := harness.Parallel(ctx, workers, b.updates, func(ctx context.Context, i int) error {
		_, err := b.client.CoreV1().Pods(metav1.NamespaceDefault).Patch(ctx, b.names[i%len(b.names)], types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}); err != nil {
		return 0, 0, err
	}
	select {
	case <-all:
	case <-time.After(5 * time.Minute):
		return 0, 0, fmt.Errorf("only %d of %d events were received", received.Load(), want)
	}
	_, after, err := measure.Usage(b.pid)
	return after - before, received.Load(), err
}

// selector returns the selector of part i of n, or "" if the kind has none.
func selector(kind string, i, n uint64) string {
	width := hashkey.Limit / n
	part := hashkey.NewRanges(hashkey.Range{Start: i * width, End: (i + 1) * width})
	switch kind {
	case "no-selector":
		return ""
	case "object.metadata.uid":
		// The hash of a UID is twice its hash key.
		end := fmt.Sprintf("%016x", (i+1)*2*width)
		if i+1 == n {
			end = "10000000000000000"
		}
		return fmt.Sprintf("shardRange(%s, '0x%016x', '0x%s')", kind, i*2*width, end)
	default:
		return part.Selector(kind)
	}
}
