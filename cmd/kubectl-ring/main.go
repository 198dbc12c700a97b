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
	"k8s.io/component-base/cli"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"k8s.io/kubernetes/pkg/ringtable"

	// Import to initialize client auth plugins.
	_ "k8s.io/client-go/plugin/pkg/client/auth"
)

func main() {
	if err := cli.RunNoErrOutput(newCommand()); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	flags := genericclioptions.NewConfigFlags(true)
	// A ring spans all namespaces.
	flags.Namespace = nil
	var watch bool
	command := &cobra.Command{
		Use:   "kubectl ring [RING]",
		Short: "Show how the instances of a ring share the hash keys",
		Long: `Show each ring, or one, as a table. It lists the instances in order of hash key, with the range of
hash keys (after, upTo] and the share of all keys that each owns.

The line below the table says whether the instances cover all hash keys, or which keys nobody works on.`,
		Example: `  # All rings
  kubectl ring

  # Follow the ring that ReplicaSets are on until Ctrl-C
  kubectl ring workloads --watch`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			config, err := flags.ToRESTConfig()
			if err != nil {
				return err
			}
			// Warnings would end up in the middle of the table.
			config.WarningHandlerWithContext = rest.NoWarnings{}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			screen := ringtable.NewScreen(os.Stdout)
			if watch {
				// Log lines, such as a lost connection, go above the table.
				klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(screen))))
			}
			ctx, stop := signal.NotifyContext(command.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return run(ctx, client, screen, args, watch)
		},
	}
	command.Flags().BoolVarP(&watch, "watch", "w", false, "Follow the rings until interrupted.")
	flags.AddFlags(command.Flags())
	command.AddCommand(newMoveCommand(flags))
	return command
}

// run shows the rings of these names, or all if none is given, once or until ctx ends.
func run(ctx context.Context, client kubernetes.Interface, screen *ringtable.Screen, names []string, watch bool) error {
	follower, err := ringtable.Follow(ctx, client)
	if err != nil {
		return err
	}
	err = follower.Each(ctx, screen.Interval(), func() (bool, error) {
		now := time.Now()
		if watch && !screen.Live() {
			// Without ages, a table is printed only when the ring changes.
			now = time.Time{}
		}
		text, err := rings(follower, names, screen.Width(), now)
		if err != nil {
			return false, err
		}
		return !watch, screen.Show(text)
	})
	if watch && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func rings(follower *ringtable.Follower, names []string, width int, now time.Time) (string, error) {
	present, err := follower.Names()
	if err != nil {
		return "", err
	}
	if len(names) == 0 {
		names = present
	}
	if len(names) == 0 {
		return "No ring has instances.\n", nil
	}
	var texts []string
	for _, name := range names {
		ring, err := follower.Ring(name)
		if err != nil {
			return "", err
		}
		text := ring.Text(width, now)
		if len(names) > 1 {
			text = name + ":\n" + text
		}
		if !slices.Contains(present, name) && len(present) > 0 {
			text += fmt.Sprintf("Rings with instances: %s\n", strings.Join(present, ", "))
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "\n"), nil
}
