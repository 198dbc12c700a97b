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

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/ringtable"
)

func newUndrainCommand(flags *genericclioptions.ConfigFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "undrain INSTANCE",
		Short: "Let an instance that was drained own a range again",
		Long: `Let an instance that was drained own a range again. INSTANCE is its present name, which it has had since
it gave its range away; kubectl ring shows it. It joins the ring as a new one does.`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			client, err := connect(flags)
			if err != nil {
				return err
			}
			return undrain(command.Context(), client, args[0], command.OutOrStdout())
		},
	}
	flags.AddFlags(command.Flags())
	return command
}

// undrain lets the instance of that name own a range again.
func undrain(ctx context.Context, client kubernetes.Interface, name string, out io.Writer) error {
	rings, err := ringtable.List(ctx, client)
	if err != nil {
		return err
	}
	which := "no instance is drained"
	var drained []string
	for _, r := range rings {
		for _, i := range r.Instances {
			if i.Drained {
				drained = append(drained, i.Name)
			}
		}
	}
	if len(drained) > 0 {
		which = "drained: " + strings.Join(drained, ", ")
	}
	for _, r := range rings {
		record, ok := r.View().Get(name)
		switch {
		case !ok:
			continue
		case !record.Drained:
			_, err := fmt.Fprintf(out, "%s is not drained; %s\n", name, which)
			return err
		}
		if err := setSpec(ctx, client, record, specFields{"drained": nil}); err != nil {
			return err
		}
		_, err := fmt.Fprintf(out, "%s is not drained any more, and joins ring %s; follow it with:\n  kubectl ring %s --watch\n", name, r.Name, r.Name)
		return err
	}
	return fmt.Errorf("there is no ControllerInstance %q: one that is drained gets another name; %s", name, which)
}
