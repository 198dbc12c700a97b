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

// Command kubectl-ring is a plugin that kubectl finds on PATH and runs as
// "kubectl ring". It shows how the instances of a ring share the hash keys.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/ring"
	"k8s.io/component-base/cli"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/pkg/ringtable"
	"sigs.k8s.io/yaml"

	// Import to initialize client auth plugins.
	_ "k8s.io/client-go/plugin/pkg/client/auth"
)

func main() {
	command, errors := newCommand(), ringtable.Printable(os.Stderr)
	command.SetOut(ringtable.Printable(os.Stdout))
	command.SetErr(errors)
	klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(errors))))
	if err := cli.RunNoErrOutput(command); err != nil {
		// No line of it looks like one of a table.
		fmt.Fprintln(errors, "error:", strings.ReplaceAll(err.Error(), "\n", "\n  "))
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	flags := genericclioptions.NewConfigFlags(true)
	// A ring spans all namespaces.
	flags.Namespace = nil
	o := &tableOptions{contact: &contact{}}
	command := &cobra.Command{
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
		RunE: func(command *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			config, err := configure(flags)
			if err != nil {
				return err
			}
			config.Wrap(o.contact.wrap)
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			screen := ringtable.NewScreen(os.Stdout)
			if o.watch && screen.Live() {
				// Log lines go above the table.
				klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(screen))))
			}
			ctx, stop := signal.NotifyContext(command.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return run(ctx, client, screen, args, *o)
		},
	}
	command.Flags().BoolVarP(&o.watch, "watch", "w", false, "Follow the rings until interrupted.")
	command.Flags().BoolVar(&o.count, "count", false, "Count the pods of the ReplicaSets that each instance owns. That lists and watches all ReplicaSets.")
	command.Flags().StringVarP(&o.output, "output", "o", "", "Print json or yaml, for programs, in place of tables, or wide: tables with more columns.")
	flags.AddFlags(command.Flags())
	command.AddCommand(newStatusCommand(flags), newOwnerCommand(), newMoveCommand(flags), newCancelCommand(flags), newHistoryCommand(flags))
	command.AddCommand(newDrainCommand(flags), newUndrainCommand(flags), newReleaseCommand(flags), newBalanceCommand(flags), newBundleCommand(flags), newViewsCommand(flags))
	return command
}

// connect returns a client of the cluster that the flags name.
func connect(flags genericclioptions.RESTClientGetter) (kubernetes.Interface, error) {
	config, err := configure(flags)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// configure returns how to connect to the cluster that the flags name.
func configure(flags genericclioptions.RESTClientGetter) (*rest.Config, error) {
	config, err := flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	// Warnings would end up in the middle of the table.
	config.WarningHandlerWithContext = rest.NoWarnings{}
	// A ring has many records: what is too much at once the server says.
	config.QPS = -1
	return config, nil
}

// tableOptions say what is shown of rings, and how.
type tableOptions struct {
	watch, count bool
	output       string
	contact      *contact
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

// checkOutput says what is wrong with a value of --output that is to be for programs, and what the command
// takes.
func checkOutput(output, takes string) error {
	if !slices.Contains([]string{"", "json", "yaml"}, output) {
		return fmt.Errorf("--output is %q, want %s, or none for tables", output, takes)
	}
	return nil
}

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
		if err := known(shown, present); err != nil && !o.watch {
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
		return false, screen.Show(o.contact.text(now) + text)
	})
	if o.watch && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// listPresent returns the rings that have instances, those of these names if there are any, and the
// names of all that have. It fails for a name that known does not know.
func listPresent(ctx context.Context, client kubernetes.Interface, names []string) (rings []*ringtable.Ring, present []string, err error) {
	all, err := ringtable.List(ctx, client)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range all {
		if len(r.Instances) == 0 {
			continue
		}
		present = append(present, r.Name)
		if len(names) == 0 || slices.Contains(names, r.Name) {
			rings = append(rings, r)
		}
	}
	return rings, present, known(names, present)
}

// known fails for a ring that has no instance and is none of kube-controller-manager's.
func known(names, present []string) error {
	for _, name := range names {
		if _, described := catalogue.RingNamed(name); described || slices.Contains(present, name) {
			continue
		}
		return fmt.Errorf("there is no ring %s, and no such command; %s", name, withInstances(present))
	}
	return nil
}

// withInstances says which rings have instances.
func withInstances(present []string) string {
	if len(present) == 0 {
		return "no ring has instances"
	}
	return "rings with instances: " + strings.Join(present, ", ")
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

// marshal returns the states of rings as JSON or YAML.
func marshal(states any, format string) (string, error) {
	data, err := json.MarshalIndent(map[string]any{"rings": states}, "", "  ")
	if err != nil {
		return "", err
	}
	text := ring.PrintableLines(string(data))
	if format == "yaml" {
		// JSON is YAML, and escapes what YAML has as it is, or cannot have.
		if data, err := yaml.JSONToYAML([]byte(text)); err == nil && ring.PrintableLines(string(data)) == string(data) {
			text = string(data)
		}
	}
	return strings.TrimSuffix(text, "\n"), nil
}
