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
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/ring"
	"k8s.io/kubernetes/cmd/kubectl-ring/cluster"
	"k8s.io/kubernetes/pkg/ringtable"
)

func newHistoryCommand(flags *genericclioptions.ConfigFlags) *cobra.Command {
	return cluster.Command(flags, &cobra.Command{
		Use:   "history [RING]",
		Short: "Show what the instances of a ring have told of their handovers",
		Long: `Show the events of a ring's instances, or of all rings, in order of time: who joined, gave or took over
which hash keys, and why; and what went wrong. The API server keeps events for an hour, unless it is told
otherwise (--event-ttl).`,
		Args: cobra.MaximumNArgs(1),
	}, func(ctx context.Context, s *cluster.Session) error {
		return history(ctx, s.Client, s.Args, s.Out)
	})
}

// history prints the events of the named ring's instances, or of all.
func history(ctx context.Context, client kubernetes.Interface, names []string, out io.Writer) error {
	rings, present, err := cluster.Present(ctx, client, nil)
	if err != nil {
		return err
	}
	// Events of what is in no namespace lie in the default one.
	list, err := client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=ControllerInstance"})
	if err != nil {
		return fmt.Errorf("reading the events of instances, in namespace %s: %w", metav1.NamespaceDefault, err)
	}
	events := slices.DeleteFunc(list.Items, func(e v1.Event) bool {
		return e.InvolvedObject.Kind != "ControllerInstance" || len(names) > 0 && !isOn(names[0], e.InvolvedObject.Name, rings)
	})
	if len(events) == 0 {
		if err := cluster.Known(names, present); err != nil {
			return err
		}
		fmt.Fprintln(out, "No instance has told of a handover.")
		return nil
	}
	revision := func(e v1.Event) int64 {
		n, _ := strconv.ParseInt(e.ResourceVersion, 10, 64)
		return n
	}
	slices.SortStableFunc(events, func(a, b v1.Event) int {
		return cmp.Or(when(&a).Compare(when(&b)), cmp.Compare(revision(a), revision(b)))
	})
	w := printers.GetNewTabWriter(out)
	fmt.Fprintln(w, "TIME\tINSTANCE\tREASON\tTIMES\tWHAT")
	for i := range events {
		e := &events[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", when(e).UTC().Format(time.RFC3339), ring.Printable(e.InvolvedObject.Name), ring.Printable(e.Reason), max(e.Count, 1), ring.Printable(e.Message))
	}
	return w.Flush()
}

// isOn says whether an instance is on the ring or, if it is gone, has a name that the server makes
// for one.
func isOn(ring, instance string, present []*ringtable.Ring) bool {
	for _, r := range present {
		if _, ok := r.View().Get(instance); ok {
			return r.Name == ring
		}
	}
	suffix, ok := strings.CutPrefix(instance, ring+"-")
	return ok && len(suffix) == generatedLength
}

// generatedLength is how many characters the server adds to metadata.generateName.
const generatedLength = 5

// when returns the last time of an event.
func when(e *v1.Event) time.Time {
	if !e.LastTimestamp.IsZero() {
		return e.LastTimestamp.Time
	}
	return cmp.Or(e.EventTime.Time, e.CreationTimestamp.Time)
}
