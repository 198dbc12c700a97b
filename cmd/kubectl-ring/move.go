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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func newMoveCommand(flags *genericclioptions.ConfigFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "move INSTANCE KEY",
		Short: "Move the upper end of an instance's range",
		Long: `Move the upper end of the range that an instance owns to KEY, in hexadecimal as the table shows it.
If KEY is lower than the present end, the successor on the ring receives the keys above KEY. If it is
higher, the successor hands over the keys up to KEY.

The instances take the steps of every handover: no object is worked on twice, and no other instance is
involved. KEY must lie between the keys of the two neighbours.`,
		Example: `  # Give more to an instance whose range ends at 3fffffffffffffff
  kubectl ring move workloads-x7k2p 5000000000000000`,
		Args: cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, args []string) error {
			config, err := flags.ToRESTConfig()
			if err != nil {
				return err
			}
			config.WarningHandlerWithContext = rest.NoWarnings{}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			return move(command.Context(), client, args[0], args[1], command.OutOrStdout())
		},
	}
	flags.AddFlags(command.Flags())
	return command
}

// move asks the instance of that name to move the end of its range, and prints how to
// follow the move.
func move(ctx context.Context, client kubernetes.Interface, name, to string, out io.Writer) error {
	key, err := strconv.ParseInt(strings.TrimPrefix(to, "0x"), 16, 64)
	if err != nil || key < 0 {
		return fmt.Errorf("KEY is %q, want a hash key from 0 to %s, in hexadecimal", to, hashkey.Format(hashkey.Max))
	}
	instances := client.ShardingV1alpha1().ControllerInstances()
	instance, err := instances.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	switch {
	case instance.Spec.HashKey == nil:
		return fmt.Errorf("%s owns no range yet", name)
	case instance.Spec.NextHashKey != nil:
		return fmt.Errorf("%s already moves the end of its range to %s; wait until that is done", name, hashkey.Format(*instance.Spec.NextHashKey))
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": instance.UID, "resourceVersion": instance.ResourceVersion},
		"spec":     map[string]any{"nextHashKey": key},
	})
	if err != nil {
		return err
	}
	if _, err := instances.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: the end of its range will move from %s to %s; follow it with:\n  kubectl ring %s --watch\n",
		name, hashkey.Format(*instance.Spec.HashKey), hashkey.Format(key), instance.Spec.Ring)
	return err
}
