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
	"k8s.io/kubernetes/pkg/ringtable"
)

// maxNames is how many names of instances an error lists.
const maxNames = 20

func newMoveCommand(flags *genericclioptions.ConfigFlags) *cobra.Command {
	dryRun := false
	command := &cobra.Command{
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
		RunE: func(command *cobra.Command, args []string) error {
			client, err := connect(flags)
			if err != nil {
				return err
			}
			return move(command.Context(), client, args[0], args[1], dryRun, command.OutOrStdout())
		},
	}
	command.Flags().BoolVar(&dryRun, "dry-run", false, "Only say who would give what to whom, after the server has checked it.")
	flags.AddFlags(command.Flags())
	return command
}

// move asks the instance of that name to move the end of its range, and prints who gives what to
// whom, and how to follow it.
func move(ctx context.Context, client kubernetes.Interface, name, to string, dryRun bool, out io.Writer) error {
	key, err := hashkey.Parse(strings.TrimPrefix(to, "0x"))
	if err != nil {
		return fmt.Errorf("KEY: %w", err)
	}
	record, view, err := find(ctx, client, name)
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
	if err := setNext(ctx, client, record, specFields{"nextHashKey": hashkey.Format(key)}, dryRun); err != nil {
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
	command := &cobra.Command{
		Use:   "cancel INSTANCE",
		Short: "Take back a move of the upper end of an instance's range",
		Long: `Take back a move of the upper end of an instance's range, if it is not done yet. What was to change
hands stays where it is, and is worked on again at once. A boundary that was pinned before stays pinned;
one that was not is not pinned any more.`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			client, err := connect(flags)
			if err != nil {
				return err
			}
			return cancel(command.Context(), client, args[0], command.OutOrStdout())
		},
	}
	flags.AddFlags(command.Flags())
	return command
}

// cancel takes a move of the end of the instance's range back.
func cancel(ctx context.Context, client kubernetes.Interface, name string, out io.Writer) error {
	record, _, err := find(ctx, client, name)
	if err != nil {
		return err
	}
	switch {
	case record.Key == nil:
		return fmt.Errorf("%s owns no range yet: it joins the ring, and no boundary moves", name)
	case record.Next == nil:
		return fmt.Errorf("the end of the range of %s does not move: it is %s", name, hashkey.Format(*record.Key))
	}
	fields := specFields{"nextHashKey": nil}
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

// find returns the record of that name, and the view of its ring.
func find(ctx context.Context, client kubernetes.Interface, name string) (ring.Record, *ring.View, error) {
	rings, err := ringtable.List(ctx, client)
	if err != nil {
		return ring.Record{}, nil, err
	}
	var names []string
	for _, r := range rings {
		if record, ok := r.View().Get(name); ok {
			return record, r.View(), nil
		}
		for _, i := range r.Instances {
			names = append(names, i.Name)
		}
	}
	if len(names) == 0 {
		return ring.Record{}, nil, fmt.Errorf("there is no ControllerInstance %q: no ring has instances", name)
	}
	more := ""
	if len(names) > maxNames {
		more = "; kubectl ring lists them"
	}
	return ring.Record{}, nil, fmt.Errorf("there is no ControllerInstance %q; there are %s%s", name, firstOf(names, maxNames), more)
}

// firstOf returns the first most of the names, and how many more there are, for people.
func firstOf(names []string, most int) string {
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// setNext writes fields of the instance's spec that say where the end of its range is to move, if its
// spec is still as it was.
func setNext(ctx context.Context, client kubernetes.Interface, record ring.Record, fields specFields, dryRun bool) error {
	options := metav1.PatchOptions{}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	err := writeSpec(ctx, client, record, fields, true, options)
	if apierrors.IsInvalid(err) {
		if now, getErr := client.ShardingV1alpha1().ControllerInstances().Get(ctx, record.Name, metav1.GetOptions{}); getErr == nil && now.Generation != record.Generation {
			return fmt.Errorf("the range of %s has changed meanwhile: look at it, and try again (%w)", record.Name, err)
		}
	}
	return err
}
