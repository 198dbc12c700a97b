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

// Command local-up-cluster runs a whole cluster on this machine, in which several
// kube-controller-managers share the ReplicaSets, and shows their ring.
// hack/local-up-cluster.sh calls it.
package main

import (
	"fmt"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/pkg/localcluster"
	"k8s.io/kubernetes/pkg/ringtable"
)

func main() {
	if err := cli.RunNoErrOutput(newCommand()); err != nil {
		fmt.Fprintln(ringtable.Printable(os.Stderr), "error:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	o := options{
		instances:   size{value: 3, min: 1, max: 20},
		nodes:       size{value: 10, min: 1, max: 5000},
		replicaSets: size{value: 20, min: 0, max: 100000},
		pods:        size{value: 200, min: 0, max: 1000000},
		apiPort:     size{value: 6443, min: 1, max: 65535},
	}
	command := &cobra.Command{
		Use:   "local-up-cluster",
		Short: "Run a cluster on this machine whose controller managers share its workloads",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return up(o) },
		// An invalid number is reported in one line.
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	flags := command.PersistentFlags()
	flags.StringVar(&o.dir, "dir", "_output/local", "Directory of the cluster: kubeconfig, pids, logs, data.")

	flags = command.Flags()
	flags.StringVar(&o.binDir, "bin-dir", "_output/bin", "Directory of the binaries.")
	flags.Var(&o.instances, "instances", "Number of kube-controller-managers.")
	flags.Var(&o.nodes, "nodes", "Number of nodes.")
	flags.Var(&o.replicaSets, "replicasets", fmt.Sprintf("Number of ReplicaSets, besides those of %d Deployments.", deployments))
	flags.Var(&o.pods, "pods", "Number of pods, spread over the ReplicaSets and the Deployments.")
	flags.Var(&o.apiPort, "api-port", "Port of the API server on 127.0.0.1.")

	command.AddCommand(&cobra.Command{
		Use:   "add",
		Short: "Add a kube-controller-manager to the cluster that runs in --dir",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return add(o.dir) },
	})
	return command
}

// add asks the process that runs the cluster for one more controller manager.
func add(dir string) error {
	pid, err := localcluster.LauncherPID(dir)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil {
		return fmt.Errorf("ask process %d for one more controller manager: %w", pid, err)
	}
	fmt.Println("Asked for one more controller manager; the table of the cluster shows it in a few seconds.")
	return nil
}
