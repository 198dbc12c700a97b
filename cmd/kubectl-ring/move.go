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
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/ring"
	"k8s.io/kubernetes/pkg/ringtable"
)

func newMoveCommand(flags *genericclioptions.ConfigFlags) *cobra.Command {
	dryRun := false
	command := &cobra.Command{
		Use:   "move INSTANCE KEY",
		Short: "Move the upper end of an instance's range",
		Long: `Move the upper end of the range that an instance owns to KEY, in hexadecimal as the table shows it.
If KEY is lower than the present end, the successor on the ring receives the keys above KEY. If it is
higher, the successor hands over the keys up to KEY.

The instances take the steps of every handover: no object is worked on twice, and no other instance is
involved. KEY must lie between the keys of the two neighbours.`,
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
	digits := strings.TrimPrefix(to, "0x")
	key, err := strconv.ParseInt(digits, 16, 64)
	// A narrow table cuts keys short, and those would be other keys.
	if err != nil || key < 0 || len(digits) != len(hashkey.Format(0)) {
		return fmt.Errorf("KEY is %q, want a hash key of 16 hexadecimal digits, up to %s", to, hashkey.Format(hashkey.Max))
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
	if err := setNext(ctx, client, record, &key, dryRun); err != nil {
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
	return nil
}

func newCancelCommand(flags *genericclioptions.ConfigFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "cancel INSTANCE",
		Short: "Take back a move of the upper end of an instance's range",
		Long: `Take back a move of the upper end of an instance's range, if it is not done yet. What was to change
hands stays where it is, and is worked on again at once.`,
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
	next := *record.Next
	if err := setNext(ctx, client, record, nil, false); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: the end of its range stays %s, and does not move to %s\n", name, hashkey.Format(*record.Key), hashkey.Format(next))
	return err
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
	return ring.Record{}, nil, fmt.Errorf("there is no ControllerInstance %q; there are %s", name, strings.Join(names, ", "))
}

// setNext writes where the end of the instance's range is to move, nil: nowhere, if its spec is still
// as it was. News in the status may have come meanwhile.
func setNext(ctx context.Context, client kubernetes.Interface, record ring.Record, next *int64, dryRun bool) error {
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": record.UID},
		{"op": "test", "path": "/metadata/generation", "value": record.Generation},
		{"op": "add", "path": "/spec/nextHashKey", "value": next},
	})
	if err != nil {
		return err
	}
	options := metav1.PatchOptions{}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	_, err = client.ShardingV1alpha1().ControllerInstances().Patch(ctx, record.Name, types.JSONPatchType, patch, options)
	if apierrors.IsInvalid(err) {
		if now, getErr := client.ShardingV1alpha1().ControllerInstances().Get(ctx, record.Name, metav1.GetOptions{}); getErr == nil && now.Generation != record.Generation {
			return fmt.Errorf("the range of %s has changed meanwhile: look at it, and try again (%w)", record.Name, err)
		}
	}
	return err
}
