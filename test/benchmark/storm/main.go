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

// Command storm measures what the restart of an API server costs when its watch cache no longer has
// the events that informers need. It starts one with etcd and creates pods. Informers follow a part
// of them each: ours by hash key, or upstream's with upstream's selector. Then the API server is
// killed and started again, in turns for each kind, and all of them list at once.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/localcluster"
	"k8s.io/kubernetes/test/benchmark/measure"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/objects"
)

func main() {
	b := &benchmark{}
	bin := flag.String("bin", "", "directory of the binaries")
	out := flag.String("out", "", "file to write the report to")
	flag.IntVar(&b.pods, "pods", 200_000, "number of pods")
	flag.IntVar(&b.informers, "informers", 8, "number of informers")
	flag.Parse()
	log.SetFlags(log.Ltime)
	harness.Main("storm", func(ctx context.Context) error { return b.run(ctx, *bin, *out) })
}

const (
	rounds  = 3
	writers = 16
)

type benchmark struct {
	pods, informers int
	cluster         *localcluster.Cluster
	client          kubernetes.Interface
	// marks numbers the changes to marked pods.
	marks int
}

// result is what a storm cost.
type result struct {
	requests, bytes int64
	// ready is when the API server was ready after it had been killed, and first and last are when the
	// first and the last informer were current.
	ready, first, last time.Duration
	// peak is the largest resident set of the API server, in bytes, and used its CPU time.
	peak uint64
	used time.Duration
}

func (b *benchmark) run(ctx context.Context, bin, out string) (err error) {
	b.cluster, err = localcluster.Start(ctx, localcluster.Config{
		BinDir: bin,
		Args:   map[localcluster.Component][]string{localcluster.Etcd: {"--quota-backend-bytes=8589934592"}},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.cluster.Stop(context.WithoutCancel(ctx))) }()
	b.client = b.cluster.Client()
	if err := b.createPods(ctx); err != nil {
		return err
	}
	results := map[string][]result{}
	for round := range rounds {
		for turn := range kinds {
			kind := kinds[(round+turn)%len(kinds)]
			r, err := b.storm(ctx, kind)
			if err != nil {
				return fmt.Errorf("%s: %w", kind.name, err)
			}
			results[kind.name] = append(results[kind.name], r)
			log.Printf("%d of %d storms: %s: %+v", round*len(kinds)+turn+1, rounds*len(kinds), kind.name, r)
		}
	}
	page := b.report(results)
	fmt.Print(page)
	if out == "" {
		return nil
	}
	return os.WriteFile(out, []byte(page), 0o644)
}

func podName(i int) string { return fmt.Sprintf("pod-%06d", i) }

func (b *benchmark) createPods(ctx context.Context) error {
	if err := objects.Create(ctx, b.client, metav1.NamespaceDefault, &v1.ServiceAccount{ObjectMeta: objects.Named("default")}); err != nil {
		return err
	}
	var created atomic.Int64
	no := false
	return harness.Parallel(ctx, writers, b.pods, func(ctx context.Context, i int) error {
		err := objects.Create(ctx, b.client, metav1.NamespaceDefault, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name:        podName(i),
				Labels:      map[string]string{"app": fmt.Sprintf("app-%d", i/20), "pod-template-hash": "5d69b4f8c7"},
				Annotations: map[string]string{"example.com/config": string(bytes.Repeat([]byte("0123456789"), 50))},
			},
			Spec: v1.PodSpec{
				SchedulerName: "none", AutomountServiceAccountToken: &no,
				Containers: []v1.Container{{Name: "main", Image: "registry.example.com/some/team/image:v1.2.3"}},
			},
		})
		if n := created.Add(1); err == nil && n%20_000 == 0 {
			log.Printf("%d of %d pods created", n, b.pods)
		}
		return err
	})
}

// storm restarts the API server under informers of a kind.
func (b *benchmark) storm(ctx context.Context, kind kind) (result, error) {
	server := string(localcluster.KubeAPIServer)
	var crowd []*informer
	traffic := &traffic{}
	defer func() {
		for _, i := range crowd {
			i.stop()
		}
	}()
	if kind.start != nil {
		for i := range b.informers {
			config := b.cluster.RESTConfig()
			config.ContentType = "application/vnd.kubernetes.protobuf"
			config.Wrap(traffic.wrap)
			informer, err := newInformer(ctx, kind, config, part(uint64(i), uint64(b.informers)))
			if err != nil {
				return result{}, err
			}
			crowd = append(crowd, informer)
		}
	}
	if err := b.current(ctx, crowd, nil); err != nil {
		return result{}, err
	}
	// The watches know nothing of these writes, and the cache of the new server begins after them.
	for i := range 100 {
		if err := objects.Create(ctx, b.client, metav1.NamespaceDefault, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: fmt.Sprintf("write-%d-", i)}}); err != nil {
			return result{}, err
		}
	}
	if err := b.cluster.Kill(server); err != nil {
		return result{}, err
	}
	killed := time.Now()
	traffic.reset()
	if err := b.cluster.StartAgain(ctx, server); err != nil {
		return result{}, err
	}
	r := result{ready: time.Since(killed)}
	if err := b.current(ctx, crowd, func(n int) {
		if n == 1 {
			r.first = time.Since(killed)
		}
		r.last = time.Since(killed)
	}); err != nil {
		return result{}, err
	}
	pid, err := b.cluster.PID(server)
	if err != nil {
		return result{}, err
	}
	if r.peak, r.used, err = measure.Usage(pid); err != nil {
		return result{}, err
	}
	r.requests, r.bytes = traffic.requests.Load(), traffic.received.Load()
	return r, nil
}

// current changes a pod in each informer's part, and waits until all of them have it. became is
// told how many have.
func (b *benchmark) current(ctx context.Context, crowd []*informer, became func(n int)) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	b.marks++
	mark := fmt.Sprint(b.marks)
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"mark":"%s"}}}`, mark)
	left := slices.Clone(crowd)
	for _, i := range crowd {
		if err := i.choose(ctx); err != nil {
			return err
		}
		if _, err := b.client.CoreV1().Pods(metav1.NamespaceDefault).Patch(ctx, i.marked, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	for len(left) > 0 {
		left = slices.DeleteFunc(left, func(i *informer) bool {
			is := i.has(mark)
			if is && became != nil {
				became(len(crowd) - len(left) + 1)
			}
			return is
		})
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d informers are not current: %w", len(left), len(crowd), ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}
