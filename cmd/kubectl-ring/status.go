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
	"strings"
	"time"

	"github.com/spf13/cobra"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/cmd/kubectl-ring/cluster"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/pkg/ringtable"
)

// statusPeriod is between two looks at what is waited for.
const statusPeriod = time.Second

func newStatusCommand(flags *genericclioptions.ConfigFlags) *cobra.Command {
	var timeout *time.Duration
	command := cluster.Command(flags, &cobra.Command{
		Use:   "status [RING...]",
		Short: "Say whether every hash key is owned and worked on",
		Long: `Say of the rings that are named whether every hash key is owned and worked on, for all their
controllers. If not, say what is not, and end with exit code 1. Without names, those of
kube-controller-manager count, and all others that have instances. Where no settings file lists a
controller of a ring, nobody is on it: name the others.

An instance that has died looks alive until its record is gone: after two to three seconds by
default, 15 where presences are off.`,
		Example: `  # In a script, after controller managers were restarted
  kubectl ring status --wait --timeout=2m`,
	}, func(ctx context.Context, s *cluster.Session) error {
		ctx, stop := cluster.UntilSignal(ctx)
		defer stop()
		return status(ctx, s.Client, s.Args, *timeout, s.Out)
	})
	timeout = addWaiting(command, "Wait until it is so.")
	return command
}

// status prints what of these rings, or all, is not worked on, and fails unless everything is, by
// the end of timeout.
func status(ctx context.Context, client kubernetes.Interface, names []string, timeout time.Duration, out io.Writer) error {
	var last string
	look := func(ctx context.Context) (bool, error) {
		text, ok, err := state(ctx, client, names)
		if err == nil && text != last {
			last = text
			fmt.Fprint(out, text)
		}
		return ok, err
	}
	if timeout == 0 {
		ok, err := look(ctx)
		if err == nil && !ok {
			err = errors.New("not every hash key is owned and worked on")
		}
		return err
	}
	var failed error
	err := wait.PollUntilContextTimeout(ctx, statusPeriod, timeout, true, func(ctx context.Context) (ok bool, err error) {
		ok, failed = look(ctx)
		if cluster.IsRefused(failed) {
			return false, failed
		}
		return ok && failed == nil, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return errors.Join(fmt.Errorf("after %v, not every hash key is known to be owned and worked on", timeout), failed)
	}
	return err
}

// state returns what is to be said of these rings, or of all, and whether all is well.
func state(ctx context.Context, client kubernetes.Interface, names []string) (text string, ok bool, err error) {
	rings, err := ringtable.List(ctx, client, names...)
	if err != nil {
		return "", false, err
	}
	var b strings.Builder
	ok = true
	for _, r := range rings {
		problems := r.Problems()
		if len(problems) == 0 {
			owners := len(r.View().Ring())
			fmt.Fprintf(&b, "%s: every hash key is owned and worked on, by %d instance", r.Name, owners)
			if owners > 1 {
				b.WriteString("s")
			}
			if others := len(r.Instances) - owners; others > 0 {
				own := "owns"
				if others > 1 {
					own = "own"
				}
				fmt.Fprintf(&b, ", and %d that %s nothing", others, own)
			}
			b.WriteString("\n")
			for _, note := range r.Notes() {
				fmt.Fprintf(&b, "%s: %s\n", r.Name, note)
			}
		}
		for _, p := range problems {
			ok = false
			fmt.Fprintf(&b, "%s: %s\n", r.Name, p)
		}
		if _, described := catalogue.RingNamed(r.Name); len(r.Instances) == 0 && !described {
			fmt.Fprintf(&b, "%s: it is no ring of kube-controller-manager: is that its name? kubectl ring shows those with instances\n", r.Name)
		}
	}
	return b.String(), ok, nil
}
