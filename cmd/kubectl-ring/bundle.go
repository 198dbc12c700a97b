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
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/ring"
	"k8s.io/kubernetes/cmd/kubectl-ring/cluster"
	"k8s.io/kubernetes/pkg/ringtable"
	"sigs.k8s.io/yaml"
)

const (
	// bundleStep is how long one part of a bundle may take.
	bundleStep = 30 * time.Second
	// bundleAnswer is how long a controller manager may take to answer.
	bundleAnswer = 3 * time.Second
	// bundleWidth is that of tables in a bundle, which have room for everything.
	bundleWidth = 200
	// bundleSuffix is that of a bundle's file.
	bundleSuffix = ".tar.gz"
)

func newBundleCommand(flags *genericclioptions.ConfigFlags) *cobra.Command {
	var output, authority string
	command := cluster.Command(flags, &cobra.Command{
		Use:   "bundle",
		Short: "Collect what a bug report on the rings needs, in one archive",
		Long: `Collect what a bug report on the rings needs, in one archive: the ControllerInstances, their events, the
leader's Lease, the tables that the other commands print, what each controller manager that can be reached
tells of its rings and of what it has decided lately, and the metrics of the API server that answers about
them. What cannot be read is listed in errors.txt.

It has no Secrets, no tokens and no kubeconfig; it does name hosts, processes and ControllerInstances.`,
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if output != "" && !strings.HasSuffix(output, bundleSuffix) {
				return fmt.Errorf("--output is %q, want a name that ends with %s", output, bundleSuffix)
			}
			return nil
		},
	}, func(ctx context.Context, s *cluster.Session) error {
		now := time.Now()
		file := output
		if file == "" {
			file = "ring-" + now.UTC().Format("20060102T150405Z") + bundleSuffix
		}
		asker, err := newAsker(s.Config, authority, bundleAnswer)
		if err != nil {
			return err
		}
		asker.recorded = true
		ctx, stop := cluster.UntilSignal(ctx)
		defer stop()
		b := bundler{
			client: s.Client,
			raw: func(ctx context.Context, path string) ([]byte, error) {
				return s.Client.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(ctx)
			},
			ask: asker.askAll,
			now: now,
		}
		return b.write(ctx, file, s.Out)
	})
	command.Flags().StringVar(&output, "output", "", "The archive to write, FILE"+bundleSuffix+"; it must not exist yet. Default: a name with the time, here.")
	command.Flags().StringVar(&authority, "controllers-ca", "", "As of kubectl ring views, which says what is sent to the controller managers.")
	return command
}

// bundler collects the files of a bundle.
type bundler struct {
	client kubernetes.Interface
	// raw returns what the API server answers on a path.
	raw func(ctx context.Context, path string) ([]byte, error)
	// ask asks the controller managers at these addresses what they know of their rings.
	ask func(ctx context.Context, addresses []string) map[string]answer
	now time.Time
}

// write collects what it can, and writes it into the file, which it creates.
func (b *bundler) write(ctx context.Context, file string, out io.Writer) error {
	// Not after a minute of collecting.
	if _, err := os.Lstat(file); err == nil {
		return fmt.Errorf("%s exists already: name another with --output, or remove it", file)
	}
	files, failed := b.collect(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("nothing could be read: %w", errors.Join(failed...))
	}
	if len(failed) > 0 {
		var lines strings.Builder
		for _, err := range failed {
			fmt.Fprintln(&lines, ring.Printable(err.Error()))
		}
		files["errors.txt"] = []byte(lines.String())
	}
	for name, content := range files {
		// People will look at it in a terminal.
		files[name] = []byte(ring.PrintableLines(string(content)))
	}
	if err := writeArchive(file, files, b.now); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(out, "%9d  %s\n", len(files[name]), name)
	}
	if len(failed) > 0 {
		fmt.Fprintf(out, "%d parts are missing or not complete: errors.txt says why\n", len(failed))
	}
	if _, err := fmt.Fprintf(out, "Wrote %s\n", file); err != nil {
		return err
	}
	if _, ok := files[instancesFile]; !ok {
		return errors.New("the bundle says little: the ControllerInstances could not be read")
	}
	return nil
}

// instancesFile is the one without which a bundle says little.
const instancesFile = "controllerinstances.yaml"

// collect returns the files by name, and why some are missing.
func (b *bundler) collect(ctx context.Context) (files map[string][]byte, failed []error) {
	files = map[string][]byte{}
	step := func(what string, read func(ctx context.Context) ([]byte, error)) {
		ctx, cancel := context.WithTimeout(ctx, bundleStep)
		defer cancel()
		content, err := read(ctx)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", what, err))
		}
		if len(content) > 0 {
			files[what] = content
		}
	}
	step("version.json", func(ctx context.Context) ([]byte, error) { return b.raw(ctx, "/version") })
	step("metrics-of-api-server.txt", func(ctx context.Context) ([]byte, error) {
		all, err := b.raw(ctx, "/metrics")
		return aboutRings(all), err
	})
	step(instancesFile, func(ctx context.Context) ([]byte, error) {
		list, err := b.client.ShardingV1alpha1().ControllerInstances().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		list.SetGroupVersionKind(shardingv1alpha1.SchemeGroupVersion.WithKind("ControllerInstanceList"))
		return yaml.Marshal(list)
	})
	step("lease.yaml", func(ctx context.Context) ([]byte, error) {
		lease, err := b.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, "kube-controller-manager", metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		lease.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
		return yaml.Marshal(lease)
	})
	step("events.yaml", func(ctx context.Context) ([]byte, error) {
		list, err := b.client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=ControllerInstance"})
		if err != nil {
			return nil, err
		}
		list.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind("EventList"))
		return yaml.Marshal(list)
	})
	var present, addresses []string
	step("rings.txt", func(ctx context.Context) ([]byte, error) {
		rings, err := ringtable.List(ctx, b.client)
		if err != nil {
			return nil, err
		}
		for _, r := range rings {
			if len(r.Instances) > 0 {
				present = append(present, r.Name)
			}
			if silent(r) {
				continue
			}
			for _, i := range r.Instances {
				addresses = append(addresses, i.Host())
			}
		}
		return []byte(tables(rings, present, func(r *ringtable.Ring) string { return r.Text(bundleWidth, b.now) })), nil
	})
	step("status.txt", func(ctx context.Context) ([]byte, error) {
		text, _, err := state(ctx, b.client, nil)
		return []byte(text), err
	})
	step("balance.txt", func(ctx context.Context) ([]byte, error) {
		var text bytes.Buffer
		err := printBalance(ctx, b.client, nil, "", &text)
		return text.Bytes(), err
	})
	for _, name := range present {
		step("history-of-"+name+".txt", func(ctx context.Context) ([]byte, error) {
			var text bytes.Buffer
			err := history(ctx, b.client, []string{name}, &text)
			return text.Bytes(), err
		})
	}
	slices.Sort(addresses)
	askCtx, cancel := context.WithTimeout(ctx, bundleStep)
	defer cancel()
	answers := b.ask(askCtx, slices.Compact(addresses))
	for _, address := range slices.Sorted(maps.Keys(answers)) {
		answer := answers[address]
		step("ringz-of-"+fileName.Replace(address)+".json", func(context.Context) ([]byte, error) { return answer.raw, answer.err })
	}
	return files, failed
}

// fileName makes an address part of the name of a file on any system.
var fileName = strings.NewReplacer("/", "_", ":", "_", "[", "", "]", "")

var ofRings = regexp.MustCompile(`controller_ring|range`)

// aboutRings returns the lines of metrics that tell of rings, ranges and the fence.
func aboutRings(metrics []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(metrics) {
		if ofRings.Match(line) {
			out.Write(line)
		}
	}
	return out.Bytes()
}

// writeArchive writes the files into a new archive, in one folder.
func writeArchive(name string, files map[string][]byte, now time.Time) (err error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			// Half an archive looks like a whole one.
			err = errors.Join(err, os.Remove(name))
		}
	}()
	compressed := gzip.NewWriter(f)
	w := tar.NewWriter(compressed)
	folder := strings.TrimSuffix(filepath.Base(name), bundleSuffix)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{Name: folder + "/" + file, Mode: 0o644, Size: int64(len(files[file])), ModTime: now}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := w.Write(files[file]); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), compressed.Close())
}
