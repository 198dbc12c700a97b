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

// Command memory measures how much memory informers use and how many bytes they fetch.
// It compares upstream's informers with those that follow a range, with pods of about
// 5 KiB from a real API server. Each case runs in a process of its own.
//
//	memory --bin-dir=_output/bin --out=docs/benchmarks/memory.md [--pods=10000] [--cases=REGEXP]
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubernetes/pkg/localcluster"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/objects"
	"k8s.io/kubernetes/test/harness/report"
)

const (
	// writers is the number of concurrent requests that write pods.
	writers = 8
	// podsPerController is the number of pods with the same controller.
	podsPerController = 20
)

func main() {
	binDir := flag.String("bin-dir", "_output/bin", "directory of the cluster's binaries")
	out := flag.String("out", "", "file for the results; standard output if empty")
	pods := flag.Int("pods", 10000, "number of pods")
	only := flag.String("cases", "", "run only the cases whose name matches this regular expression")
	bars := flag.Bool("bars", false, "fail if a bar on live bytes is missed")
	kubeconfig := flag.String("kubeconfig", "", "for the processes of cases")
	name := flag.String("case", "", "for the processes of cases")
	flag.Parse()
	harness.Main("memory", func(ctx context.Context) error {
		if *name != "" {
			return runCase(ctx, *kubeconfig, *name, *pods)
		}
		return runAll(ctx, *binDir, *out, *pods, *only, *bars)
	})
}

func runAll(ctx context.Context, binDir, out string, pods int, only string, bars bool) (err error) {
	match, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	cluster, err := localcluster.Start(ctx, localcluster.Config{
		BinDir: binDir,
		Args:   map[localcluster.Component][]string{localcluster.KubeAPIServer: {"--disable-admission-plugins=ServiceAccount"}},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop(context.WithoutCancel(ctx))) }()
	w := &writer{client: cluster.Client(), pods: pods}
	begin := time.Now()
	if err := w.create(ctx); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d pods created in %v\n", pods, time.Since(begin).Round(time.Second))

	var results []result
	for _, c := range cases {
		if !match.MatchString(c.name) {
			continue
		}
		r, err := w.runChild(ctx, cluster.Kubeconfig(), c.name)
		if err != nil {
			return fmt.Errorf("case %q: %w", c.name, err)
		}
		fmt.Fprintf(os.Stderr, "%s: %+v\n", c.name, r)
		results = append(results, r)
	}
	page, missed := render(results, pods)
	if err := report.Write(out, page); err != nil {
		return err
	}
	if bars && len(missed) > 0 {
		return fmt.Errorf("bars missed: %s", strings.Join(missed, "; "))
	}
	return nil
}

// writer writes the pods.
type writer struct {
	client kubernetes.Interface
	pods   int
	// writes numbers the changes, so each differs from the one before.
	writes atomic.Int64
}

func podName(i int) string { return fmt.Sprintf("pod-%06d", i) }

// newPod returns a pod of about 5 KiB, spread over controllers.
func newPod(i int) *v1.Pod {
	yes, no := true, false
	controller := i / podsPerController
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:        podName(i),
			Labels:      map[string]string{"app": fmt.Sprintf("app-%d", controller), "pod-template-hash": "5d69b4f8c7", "index": strconv.Itoa(i)},
			Annotations: map[string]string{"example.com/config": strings.Repeat(fmt.Sprintf("%08d", i), 100)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: fmt.Sprintf("app-%d", controller),
				UID: types.UID(uuid.NewSHA1(uuid.NameSpaceOID, []byte(strconv.Itoa(controller))).String()), Controller: &yes, BlockOwnerDeletion: &yes,
			}},
		},
		Spec: v1.PodSpec{AutomountServiceAccountToken: &no, SchedulerName: "none", Containers: objects.Containers(strconv.Itoa(i), 12)},
	}
}

func (w *writer) create(ctx context.Context) error {
	return harness.Parallel(ctx, writers, w.pods, func(ctx context.Context, i int) error {
		return objects.Create(ctx, w.client, metav1.NamespaceDefault, newPod(i))
	})
}

// change changes the first n pods.
func (w *writer) change(ctx context.Context, n int) error {
	patch := []byte(fmt.Sprintf(`{"metadata":{"annotations":{"example.com/change":"%d"}}}`, w.writes.Add(1)))
	return harness.Parallel(ctx, writers, n, func(ctx context.Context, i int) error {
		_, err := w.client.CoreV1().Pods(metav1.NamespaceDefault).Patch(ctx, podName(i), types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
}

// runChild runs a case in a process of its own. For each line with a number, which that
// process prints, it changes so many pods. The last line is the result.
func (w *writer) runChild(ctx context.Context, kubeconfig, name string) (result, error) {
	self, err := os.Executable()
	if err != nil {
		return result{}, err
	}
	cmd := exec.CommandContext(ctx, self, "--kubeconfig="+kubeconfig, "--case="+name, "--pods="+strconv.Itoa(w.pods))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return result{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return result{}, err
	}
	if err := cmd.Start(); err != nil {
		return result{}, err
	}
	var r result
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if n, err := strconv.Atoi(lines.Text()); err == nil {
			if err := w.change(ctx, n); err != nil {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				return result{}, err
			}
			_, _ = io.WriteString(in, "changed\n")
			continue
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return result{}, fmt.Errorf("%w in %q", err, lines.Text())
		}
	}
	return r, cmd.Wait()
}

// configFor returns the configuration of a client whose traffic m measures.
func configFor(kubeconfig string, m *meter) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	// HTTP/2 would buffer the bytes that are not read while the heap is measured.
	config.NextProtos = []string{"http/1.1"}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return withMeter(config, m), nil
}

func withMeter(config *rest.Config, m *meter) *rest.Config {
	config.Wrap(m.wrap)
	return config
}
