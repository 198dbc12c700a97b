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
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/component-base/cli"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"k8s.io/kubernetes/pkg/ringtable"

	// Import to initialize client auth plugins.
	_ "k8s.io/client-go/plugin/pkg/client/auth"
)

func main() {
	command, errors := newCommand(), ringtable.Printable(os.Stderr)
	command.SetOut(ringtable.Printable(os.Stdout))
	command.SetErr(errors)
	klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(errors))))
	if err := cli.RunNoErrOutput(command); err != nil {
		// No line of it looks like one of a table.
		fmt.Fprintln(errors, "error:", strings.ReplaceAll(err.Error(), "\n", "\n  "))
		os.Exit(1)
	}
}

// newCommand returns kubectl ring: it shows tables itself, and all else by commands.
func newCommand() *cobra.Command {
	flags := genericclioptions.NewConfigFlags(true)
	// A ring spans all namespaces.
	flags.Namespace = nil
	command := newTableCommand(flags)
	command.AddCommand(newStatusCommand(flags), newOwnerCommand(), newMoveCommand(flags), newCancelCommand(flags), newHistoryCommand(flags))
	command.AddCommand(newDrainCommand(flags), newUndrainCommand(flags), newReleaseCommand(flags), newBalanceCommand(flags), newBundleCommand(flags), newViewsCommand(flags))
	return command
}
