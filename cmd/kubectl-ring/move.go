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

	"github.com/spf13/cobra"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/ring"
	"k8s.io/kubernetes/cmd/kubectl-ring/cluster"
)

func newMoveCommand(flags *genericclioptions.ConfigFlags) *cobra.Command {
	dryRun := false
	command := cluster.Command(flags, &cobra.Command{
		Use:   "move INSTANCE KEY",
		Short: "Move the upper end of an instance's range",
		Long: `Move the upper end of the range that an instance owns to KEY, in hexadecimal as the table shows it.
If KEY is lower than the present end, the successor on the ring receives the keys above KEY. If it is
higher, the successor hands over the keys up to KEY.

The instances take the steps of every handover: no object is worked on twice, and no other instance is
involved. KEY must lie between the keys of the two neighbours.

A boundary that was moved by hand is pinned: the instances do not move it to even out the load, until it
is released.`,
		Example: `  # Give more to an instance whose range ends at 3fffffffffffffff
  kubectl ring move workloads-x7k2p 5000000000000000

  # Who would give what to whom
  kubectl ring move workloads-x7k2p 5000000000000000 --dry-run`,
		Args: cobra.ExactArgs(2),
	}, func(ctx context.Context, s *cluster.Session) error {
		return move(ctx, s.Client, s.Args[0], s.Args[1], dryRun, s.Out)
	})
	command.Flags().BoolVar(&dryRun, "dry-run", false, "Only say who would give what to whom, after the server has checked it.")
	return command
}

// move asks the instance of that name to move the end of its range, and prints who gives what to
// whom, and how to follow it.
func move(ctx context.Context, client kubernetes.Interface, name, to string, dryRun bool, out io.Writer) error {
	key, err := hashkey.Parse(strings.TrimPrefix(to, "0x"))
	if err != nil {
		return fmt.Errorf("KEY: %w", err)
	}
	record, view, err := cluster.Find(ctx, client, name)
	if err != nil {
		return err
	}
	switch {
	case record.Key == nil:
		return fmt.Errorf("%s owns no range yet", name)
	case record.Next != nil:
		return fmt.Errorf("%s already moves the end of its range to %s; wait until that is done, or take it back with: kubectl ring cancel %s", name, hashkey.Format(*record.Next), name)
	}
	if len(view.Ring()) == 1 {
		return fmt.Errorf("%s owns all hash keys: there is no boundary to move", name)
	}
	if err := view.CheckMove(name, key); err != nil {
		return fmt.Errorf("KEY %s %w", hashkey.Format(key), err)
	}
	if err := setNext(ctx, client, record, cluster.Fields{"nextHashKey": hashkey.Format(key)}, dryRun); err != nil {
		return err
	}
	record.Next = &key
	will, follow := "will move", fmt.Sprintf("; follow it with:\n  kubectl ring %s --watch", record.Ring)
	if dryRun {
		will, follow = "would move", ""
	}
	fmt.Fprintf(out, "%s: the end of its range %s from %s to %s\n", name, will, hashkey.Format(*record.Key), hashkey.Format(key))
	for _, h := range view.With(record).Handovers() {
		if h.Record.Name != name {
			continue
		}
		owned := view.Owned(h.Donor)
		given := h.Share(h.Donor, owned)
		donor, _ := view.Get(h.Donor)
		part := float64(given.Width()) / float64(owned.Width())
		fmt.Fprintf(out, "%s gives %s to %s: %.1f%% of its keys, with about %.0f of its %d objects%s\n",
			h.Donor, given, h.Receiver, 100*part, part*float64(donor.Weight), donor.Weight, follow)
	}
	if !dryRun {
		fmt.Fprintf(out, "The boundary is pinned there: evening out the load does not move it. To release it:\n  kubectl ring release %s\n", name)
	}
	return nil
}

func newCancelCommand(flags *genericclioptions.ConfigFlags) *cobra.Command {
	return cluster.Command(flags, &cobra.Command{
		Use:   "cancel INSTANCE",
		Short: "Take back a move of the upper end of an instance's range",
		Long: `Take back a move of the upper end of an instance's range, if it is not done yet. What was to change
hands stays where it is, and is worked on again at once. A boundary that was pinned before stays pinned;
one that was not is not pinned any more.`,
		Args: cobra.ExactArgs(1),
	}, func(ctx context.Context, s *cluster.Session) error {
		return cancel(ctx, s.Client, s.Args[0], s.Out)
	})
}

// cancel takes a move of the end of the instance's range back.
func cancel(ctx context.Context, client kubernetes.Interface, name string, out io.Writer) error {
	record, _, err := cluster.Find(ctx, client, name)
	if err != nil {
		return err
	}
	switch {
	case record.Key == nil:
		return fmt.Errorf("%s owns no range yet: it joins the ring, and no boundary moves", name)
	case record.Next == nil:
		return fmt.Errorf("the end of the range of %s does not move: it is %s", name, hashkey.Format(*record.Key))
	}
	fields := cluster.Fields{"nextHashKey": nil}
	if record.PinnedKey != nil && *record.PinnedKey == *record.Next {
		fields["pinnedHashKey"] = nil
	}
	if err := setNext(ctx, client, record, fields, false); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: the end of its range stays %s, and does not move to %s\n", name, hashkey.Format(*record.Key), hashkey.Format(*record.Next))
	if !record.Pinned() {
		fmt.Fprintf(out, "It was to even out the load, and the instances may move it again. To keep them from that:\n  kubectl ring balance off %s\n", record.Ring)
	}
	return nil
}

// setNext writes fields of the instance's spec that say where the end of its range is to move, if
// its spec is still as it was.
func setNext(ctx context.Context, client kubernetes.Interface, record ring.Record, fields cluster.Fields, dryRun bool) error {
	options := metav1.PatchOptions{}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	err := cluster.Write(ctx, client, record, fields, true, options)
	if apierrors.IsInvalid(err) {
		if now, getErr := client.ShardingV1alpha1().ControllerInstances().Get(ctx, record.Name, metav1.GetOptions{}); getErr == nil && now.Generation != record.Generation {
			return fmt.Errorf("the range of %s has changed meanwhile: look at it, and try again (%w)", record.Name, err)
		}
	}
	return err
}

func newReleaseCommand(flags *genericclioptions.ConfigFlags) *cobra.Command {
	named := ""
	command := cluster.Command(flags, &cobra.Command{
		Use:   "release (INSTANCE | --ring=RING)",
		Short: "Let the instances of a ring move a boundary that was moved by hand",
		Long: `Let the instances of a ring move the upper end of an instance's range to even out the load, or all of a
ring. One that was moved by hand is pinned: it stays where it is until it is released.`,
		Example: `  # One boundary
  kubectl ring release workloads-x7k2p

  # All of a ring
  kubectl ring release --ring=workloads`,
		Args: cobra.MaximumNArgs(1),
		PreRunE: func(_ *cobra.Command, args []string) error {
			if (len(args) == 1) == (named != "") {
				return errors.New("give either INSTANCE, or --ring for all of a ring")
			}
			return nil
		},
	}, func(ctx context.Context, s *cluster.Session) error {
		if named != "" {
			return releaseRing(ctx, s.Client, named, s.Out)
		}
		return release(ctx, s.Client, s.Args[0], s.Out)
	})
	command.Flags().StringVar(&named, "ring", "", "Release all boundaries of this ring.")
	return command
}

// release unpins the end of the instance's range.
func release(ctx context.Context, client kubernetes.Interface, name string, out io.Writer) error {
	record, _, err := cluster.Find(ctx, client, name)
	if err != nil {
		return err
	}
	if record.PinnedKey == nil {
		_, err := fmt.Fprintf(out, "%s: the end of its range is not pinned\n", name)
		return err
	}
	return unpin(ctx, client, record, out)
}

// releaseRing unpins all boundaries of the ring.
func releaseRing(ctx context.Context, client kubernetes.Interface, name string, out io.Writer) error {
	r, err := cluster.Ring(ctx, client, name)
	if err != nil {
		return err
	}
	none := true
	for _, record := range r.View().Records() {
		if record.PinnedKey == nil {
			continue
		}
		none = false
		switch err := unpin(ctx, client, *record, out); {
		case cluster.IsGone(err):
			fmt.Fprintf(out, "%s: it is gone meanwhile, and its pin with it\n", record.Name)
		case err != nil:
			return err
		}
	}
	if none {
		fmt.Fprintf(out, "%s: no boundary is pinned\n", name)
	}
	return nil
}

func unpin(ctx context.Context, client kubernetes.Interface, record ring.Record, out io.Writer) error {
	if err := cluster.Set(ctx, client, record, cluster.Fields{"pinnedHashKey": nil}); err != nil {
		return err
	}
	what := "the end of its range is released: it was pinned to %s"
	if !record.Pinned() {
		what = "the end of its range was not pinned any more: it has left %s"
	}
	_, err := fmt.Fprintf(out, "%s: "+what+"\n", record.Name, hashkey.Format(*record.PinnedKey))
	return err
}
