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
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"k8s.io/kubernetes/cmd/kubectl-ring/cluster"
	"k8s.io/kubernetes/pkg/ringtable"
)

func newTableCommand(flags *genericclioptions.ConfigFlags) *cobra.Command {
	o := tableOptions{}
	command := cluster.Command(flags, &cobra.Command{
		Use:         "kubectl-ring [RING]",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl ring"},
		Short:       "Show how the instances of a ring share the hash keys",
		Long: `Show each ring, or one, as a table. It lists the instances in order of hash key, with the range of
hash keys (after, upTo] and the share of all keys that each owns.

The lines below the table say whether the instances cover all hash keys, or which keys nobody works on,
and what is about to change. An instance that has died looks alive until its lease ends, after six
seconds by default.`,
		Example: `  # All rings
  kubectl ring

  # Follow the ring that ReplicaSets are on until Ctrl-C
  kubectl ring workloads --watch

  # For a script
  kubectl ring -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("there is no command %s, and one RING at most can be shown; kubectl ring --help lists the commands", args[0])
			}
			return nil
		},
		PreRunE: func(*cobra.Command, []string) error { return o.check() },
	}, func(ctx context.Context, s *cluster.Session) error {
		screen := ringtable.NewScreen(os.Stdout)
		if o.watch && screen.Live() {
			// Log lines go above the table.
			klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(screen))))
		}
		ctx, stop := cluster.UntilSignal(ctx)
		defer stop()
		o.contact = s.Contact
		return run(ctx, s.Client, screen, s.Args, o)
	})
	command.Flags().BoolVarP(&o.watch, "watch", "w", false, "Follow the rings until interrupted.")
	command.Flags().BoolVar(&o.count, "count", false, "Count the pods of the ReplicaSets that each instance owns. That lists and watches all ReplicaSets.")
	command.Flags().StringVarP(&o.output, "output", "o", "", "Print json or yaml, for programs, in place of tables, or wide: tables with more columns.")
	return command
}

// tableOptions say what is shown of rings, and how.
type tableOptions struct {
	watch, count bool
	output       string
	contact      *cluster.Contact
}

func (o *tableOptions) check() error {
	if o.output == "" || o.output == wide {
		return nil
	}
	if err := checkOutput(o.output, "json, yaml or wide"); err != nil {
		return err
	}
	if o.watch {
		return errors.New("--watch shows tables: give it without --output, or with --output=wide")
	}
	return nil
}

// wide is the value of --output for tables with more columns.
const wide = "wide"

// run shows the rings of these names, or all if none is given, once or until ctx ends.
func run(ctx context.Context, client kubernetes.Interface, screen *ringtable.Screen, names []string, o tableOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	follower, err := ringtable.Follow(ctx, client, o.count)
	if err != nil {
		return err
	}
	err = follower.Each(ctx, screen.Interval(), func() (bool, error) {
		now := time.Now()
		if o.watch && !screen.Live() {
			// Without ages, a table is printed only when the ring changes.
			now = time.Time{}
		}
		present, err := follower.Names()
		if err != nil {
			return false, err
		}
		shown := names
		if len(names) == 0 {
			shown = present
		}
		if err := cluster.Known(shown, present); err != nil && !o.watch {
			return false, err
		}
		var rings []*ringtable.Ring
		for _, name := range shown {
			ring, err := follower.Ring(name)
			if err != nil {
				return false, err
			}
			rings = append(rings, ring)
		}
		text := ""
		switch o.output {
		case "":
			text = tables(rings, present, func(r *ringtable.Ring) string { return r.Text(screen.Width(), now) })
		case wide:
			text = tables(rings, present, func(r *ringtable.Ring) string { return r.Wide(now) })
		default:
			if text, err = marshal(statesOf(rings), o.output); err != nil {
				return false, err
			}
		}
		if !o.watch {
			// All of it, however long.
			return true, screen.Print(text)
		}
		return false, screen.Show(o.contact.Lost(now) + text)
	})
	if o.watch && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// tables returns the rings as tables, each as table says. present are the names of those that have
// instances.
func tables(rings []*ringtable.Ring, present []string, table func(*ringtable.Ring) string) string {
	if len(rings) == 0 {
		return "No ring has instances.\n"
	}
	var texts []string
	for _, ring := range rings {
		text := table(ring)
		if len(rings) > 1 {
			text = ring.Name + ":\n" + text
		}
		if !slices.Contains(present, ring.Name) && len(present) > 0 {
			text += fmt.Sprintf("Rings with instances: %s\n", strings.Join(present, ", "))
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "\n")
}

// statesOf returns the rings for programs.
func statesOf(rings []*ringtable.Ring) []ringtable.State {
	states := []ringtable.State{}
	for _, ring := range rings {
		states = append(states, ring.State())
	}
	return states
}
