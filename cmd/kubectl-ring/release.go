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

	"github.com/spf13/cobra"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/ring"
	"k8s.io/kubernetes/pkg/ringtable"
)

func newReleaseCommand(flags *genericclioptions.ConfigFlags) *cobra.Command {
	named := ""
	command := &cobra.Command{
		Use:   "release (INSTANCE | --ring=RING)",
		Short: "Let the instances of a ring move a boundary that was moved by hand",
		Long: `Let the instances of a ring move the upper end of an instance's range to even out the load, or all of a
ring. One that was moved by hand is pinned: it stays where it is until it is released.`,
		Example: `  # One boundary
  kubectl ring release workloads-x7k2p

  # All of a ring
  kubectl ring release --ring=workloads`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if (len(args) == 1) == (named != "") {
				return errors.New("give either INSTANCE, or --ring for all of a ring")
			}
			client, err := connect(flags)
			if err != nil {
				return err
			}
			if named != "" {
				return releaseRing(command.Context(), client, named, command.OutOrStdout())
			}
			return release(command.Context(), client, args[0], command.OutOrStdout())
		},
	}
	command.Flags().StringVar(&named, "ring", "", "Release all boundaries of this ring.")
	flags.AddFlags(command.Flags())
	return command
}

// release unpins the end of the instance's range.
func release(ctx context.Context, client kubernetes.Interface, name string, out io.Writer) error {
	record, _, err := find(ctx, client, name)
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
	r, err := ringWithInstances(ctx, client, name)
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
		case isGone(err):
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
	if err := setSpec(ctx, client, record, specFields{"pinnedHashKey": nil}); err != nil {
		return err
	}
	what := "the end of its range is released: it was pinned to %s"
	if !record.Pinned() {
		what = "the end of its range was not pinned any more: it has left %s"
	}
	_, err := fmt.Fprintf(out, "%s: "+what+"\n", record.Name, hashkey.Format(*record.PinnedKey))
	return err
}

// ringWithInstances returns the ring of that name, and fails if it has no instance.
func ringWithInstances(ctx context.Context, client kubernetes.Interface, name string) (*ringtable.Ring, error) {
	rings, err := ringtable.List(ctx, client)
	if err != nil {
		return nil, err
	}
	var present []string
	for _, r := range rings {
		switch {
		case len(r.Instances) == 0:
		case r.Name == name:
			return r, nil
		default:
			present = append(present, r.Name)
		}
	}
	return nil, fmt.Errorf("ring %s has no instance; %s", name, withInstances(present))
}
