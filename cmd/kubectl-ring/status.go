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
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/ringtable"
)

// statusPeriod is between two looks at what is waited for.
const statusPeriod = time.Second

func newStatusCommand(flags *genericclioptions.ConfigFlags) *cobra.Command {
	var waits bool
	timeout := 5 * time.Minute
	command := &cobra.Command{
		Use:   "status [RING...]",
		Short: "Say whether every hash key is owned and worked on",
		Long: `Say of each ring, or of those that are named, whether every hash key is owned and worked on, for all its
controllers. If not, say what is not, and end with exit code 1. No ring at all is no success either.`,
		Example: `  # In a script, after controller managers were restarted
  kubectl ring status --wait --timeout=2m`,
		RunE: func(command *cobra.Command, args []string) error {
			switch {
			case command.Flags().Changed("timeout") && !waits:
				return errors.New("--timeout is how long --wait waits: give both")
			case timeout <= 0:
				return fmt.Errorf("--timeout is %v, want more than 0", timeout)
			}
			client, err := connect(flags)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(command.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if !waits {
				timeout = 0
			}
			return status(ctx, client, args, timeout, command.OutOrStdout())
		},
	}
	command.Flags().BoolVar(&waits, "wait", false, "Wait until it is so.")
	command.Flags().DurationVar(&timeout, "timeout", timeout, "How long to wait.")
	flags.AddFlags(command.Flags())
	return command
}

// status prints what of these rings, or all, is not worked on, and fails unless everything is, by the
// end of timeout.
func status(ctx context.Context, client kubernetes.Interface, names []string, timeout time.Duration, out io.Writer) error {
	var last string
	look := func(ctx context.Context) (bool, error) {
		text, ok, err := state(ctx, client, names)
		if err != nil {
			return false, err
		}
		if text != last {
			last = text
			fmt.Fprint(out, text)
		}
		return ok, nil
	}
	ok, err := look(ctx)
	switch {
	case err != nil:
		return err
	case ok:
		return nil
	case timeout == 0:
		return errors.New("not every hash key is owned and worked on")
	}
	var failed error
	err = wait.PollUntilContextTimeout(ctx, statusPeriod, timeout, false, func(ctx context.Context) (ok bool, err error) {
		// A server that restarts is waited for, too.
		ok, failed = look(ctx)
		return ok && failed == nil, nil
	})
	if err == nil {
		return nil
	}
	if wait.Interrupted(err) && ctx.Err() == nil {
		return errors.Join(fmt.Errorf("after %v, not every hash key is owned and worked on", timeout), failed)
	}
	return err
}

// state returns what is to be said of these rings, or all, and whether all is well.
func state(ctx context.Context, client kubernetes.Interface, names []string) (text string, ok bool, err error) {
	rings, err := ringtable.List(ctx, client)
	if err != nil {
		return "", false, err
	}
	if len(names) > 0 {
		var named []*ringtable.Ring
		for _, name := range names {
			i := slices.IndexFunc(rings, func(r *ringtable.Ring) bool { return r.Name == name })
			if i < 0 {
				named = append(named, &ringtable.Ring{Name: name})
			} else {
				named = append(named, rings[i])
			}
		}
		rings = named
	}
	if len(rings) == 0 {
		return "No ring has instances.\n", false, nil
	}
	var b strings.Builder
	ok = true
	for _, r := range rings {
		problems := r.Problems()
		if len(problems) == 0 {
			fmt.Fprintf(&b, "%s: every hash key is owned and worked on, by %d instances\n", r.Name, len(r.Instances))
		}
		for _, p := range problems {
			ok = false
			fmt.Fprintf(&b, "%s: %s\n", r.Name, p)
		}
	}
	return b.String(), ok, nil
}
