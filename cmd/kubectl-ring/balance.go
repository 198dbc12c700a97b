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
	"math/bits"
	"slices"

	"github.com/spf13/cobra"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/ring"
	"k8s.io/kubernetes/pkg/ringtable"
)

func newBalanceCommand(flags *genericclioptions.ConfigFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "balance [RING]",
		Short: "Show how the load of a ring is shared, and which moves would even it out",
		Long: `Show what each instance of a ring has of its load, in objects, and what it should have, so that all
processes hold as much. The process that leads holds other things, too, and should have less.

Below the table are the moves that would bring the ring nearer to that, one for each boundary. Where the
keys lie is taken from the weights, as if objects lay evenly in each range. After they are done, look again:
what is far from where it should be takes several rounds.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			client, err := connect(flags)
			if err != nil {
				return err
			}
			return balance(command.Context(), client, args, command.OutOrStdout())
		},
	}
	flags.AddFlags(command.Flags())
	return command
}

// balance prints the loads of the named ring, or of all, and the moves that would even them out.
func balance(ctx context.Context, client kubernetes.Interface, names []string, out io.Writer) error {
	rings, err := ringtable.List(ctx, client)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		rings = slices.DeleteFunc(rings, func(r *ringtable.Ring) bool { return r.Name != names[0] })
		if len(rings) == 0 {
			return fmt.Errorf("ring %s has no instance", names[0])
		}
	}
	if len(rings) == 0 {
		fmt.Fprintln(out, "No ring has instances.")
	}
	for i, r := range rings {
		if i > 0 {
			fmt.Fprintln(out)
		}
		plan := r.Plan(ring.DefaultPolicy)
		fmt.Fprintf(out, "%s:\n", r.Name)
		w := printers.GetNewTabWriter(out)
		fmt.Fprintln(w, "INSTANCE\tWEIGHT\tWANTED\tBESIDE THE RING")
		for _, part := range plan.Parts {
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\n", part.Name, part.Weight, part.Wanted, part.Own)
		}
		if err := w.Flush(); err != nil {
			return err
		}
		if len(plan.Shifts) == 0 {
			fmt.Fprintln(out, "Each has about what it should have.")
		}
		for _, s := range plan.Shifts {
			if key, ok := estimate(r.View(), s); ok {
				fmt.Fprintf(out, "kubectl ring move %s %s  # %s gives about %d objects to %s\n", s.Boundary, hashkey.Format(key), s.Donor, s.Load, s.Receiver)
			}
		}
	}
	return nil
}

// estimate returns the key to which the boundary is to move, if the donor's objects lie evenly in its
// range, and whether there is one.
func estimate(view *ring.View, s ring.Shift) (key int64, ok bool) {
	donor, _ := view.Get(s.Donor)
	if donor.Weight == 0 || s.Load >= donor.Weight {
		return 0, false
	}
	width := view.Owned(s.Donor).Width()
	high, low := bits.Mul64(width, uint64(s.Load))
	given, _ := bits.Div64(high, low, uint64(donor.Weight))
	boundary, _ := view.Get(s.Boundary)
	to := uint64(*boundary.Key) + given
	if s.Donor == s.Boundary {
		to = uint64(*boundary.Key) - given
	}
	key = int64(to & (hashkey.Limit - 1))
	return key, view.CheckMove(s.Boundary, key) == nil
}
