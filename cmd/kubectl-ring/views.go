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
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/member"
	"k8s.io/kubernetes/cmd/kubectl-ring/cluster"
	"k8s.io/kubernetes/pkg/ringtable"
)

const (
	// hangTime is how long ago an instance that does not hang has decided something.
	hangTime = 10 * time.Second
	// maxDifferences is how many differences a table shows of an instance, and how many instances it
	// names that have the same settings.
	maxDifferences = 3
)

func newViewsCommand(flags *genericclioptions.ConfigFlags) *cobra.Command {
	var output, authority string
	timeout := 3 * time.Second
	command := cluster.Command(flags, &cobra.Command{
		Use:   "views [RING]",
		Short: "Ask each instance how it sees its ring, and say which of them the registry contradicts",
		Long: `Ask each instance of a ring, or of all rings, how it sees the ring, and compare that with the registry. An
instance does not agree either if its record says that it works, and its gate is shut. One that differs is
asked again for a moment, as its view may only lag. The exit code is 1 if one does not agree, or cannot
be asked. Below the table it says if the settings files of a ring's instances even out the load in
different ways.

Each kube-controller-manager is asked on /ringz, at the host and the port in its instance's
spec.holderIdentity; an operator's instances, which need not serve that, only if their ring is named, or if
their holder begins with a host and a port. That needs the right to get the path (nonResourceURLs). The
serving certificate is not verified, since it is often self-signed: so the kubeconfig's client certificate
is sent, and never a token or a password. With --controllers-ca it is verified, and all that the kubeconfig
has is sent. An operator whose metrics are behind controller-runtime's filter takes nothing but a token.`,
		Example: `  # Does every instance see the ring that ReplicaSets are on as the registry has it?
  kubectl ring views workloads

  # Does every replica of an operator, which takes tokens alone?
  kubectl ring views virtualmachines --controllers-ca=ca.crt --token="$(kubectl create token viewer)"`,
		Args: cobra.MaximumNArgs(1),
		PreRunE: func(*cobra.Command, []string) error {
			if err := checkOutput(output, "json or yaml"); err != nil {
				return err
			}
			if timeout <= 0 {
				return fmt.Errorf("--timeout is %v, want more than 0", timeout)
			}
			return nil
		},
	}, func(ctx context.Context, s *cluster.Session) error {
		asker, err := newAsker(s.Config, authority, timeout)
		if err != nil {
			return err
		}
		ctx, stop := cluster.UntilSignal(ctx)
		defer stop()
		return views(ctx, s.Client, asker, s.Args, output, s.Out)
	})
	command.Flags().StringVarP(&output, "output", "o", "", "Print json or yaml, for programs, in place of a table.")
	command.Flags().DurationVar(&timeout, "timeout", timeout, "How long to wait for an answer.")
	command.Flags().StringVar(&authority, "controllers-ca", "", "The certificate authority of the serving certificates of those that are asked: a file. Default: they are not verified.")
	return command
}

// ringViews are a ring and how its instances see it, for programs.
type ringViews struct {
	Name      string         `json:"name"`
	Instances []instanceView `json:"instances"`
}

// instanceView is how an instance sees its ring.
type instanceView struct {
	Name string `json:"name"`
	Host string `json:"host"`
	// Agrees says that the registry says the same. If it does not, Differs says what differs, or
	// Error why the instance could not be asked.
	Agrees  bool     `json:"agrees"`
	Differs []string `json:"differs"`
	Error   string   `json:"error,omitempty"`
	// Lag is by how many revisions the newest record is ahead of the view.
	Lag int64 `json:"lag"`
	// Phase and Range are the instance's by the registry.
	Phase shardingv1alpha1.InstancePhase `json:"phase"`
	Range string                         `json:"range"`
	// Own is what the instance says of itself.
	Own *member.Snapshot `json:"own,omitempty"`
}

// views prints how the instances of the named ring, or of all, see it, and fails unless all agree
// with the registry.
func views(ctx context.Context, client kubernetes.Interface, asker *asker, names []string, output string, out io.Writer) error {
	rings, err := settledViews(ctx, client, asker, names)
	if err != nil {
		return err
	}
	asked, bad := 0, 0
	for _, r := range rings {
		for _, i := range r.Instances {
			asked++
			if !i.Agrees {
				bad++
			}
		}
	}
	switch {
	case output != "":
		text, err := marshal(rings, output)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, text)
	case asked == 0 && len(names) > 0:
		fmt.Fprintf(out, "No instance is on the ring %s.\n", names[0])
	case asked == 0:
		fmt.Fprintln(out, "No ring has instances that can be asked.")
	default:
		if err := printViews(out, rings); err != nil {
			return err
		}
		for _, r := range rings {
			if line := differentBalance(r); line != "" {
				fmt.Fprintln(out, line)
			}
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d instances do not agree with the registry, or could not be asked", bad, asked)
	}
	if asked > 0 && output == "" {
		fmt.Fprintf(out, "All instances agree with the registry: %d.\n", asked)
	}
	return nil
}

// differentBalance says which instances of the ring even out its load in which way, if not all do
// in the same.
func differentBalance(r ringViews) string {
	by := map[string][]string{}
	for _, i := range r.Instances {
		// One of an older version does not tell.
		if i.Own != nil && i.Own.Balance.Mode != "" {
			by[i.Own.Balance.String()] = append(by[i.Own.Balance.String()], i.Name)
		}
	}
	if len(by) < 2 {
		return ""
	}
	// The odd ones first.
	rarest := slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(by[a]), len(by[b])), cmp.Compare(a, b))
	})
	var ways []string
	for _, way := range rarest {
		ways = append(ways, fmt.Sprintf("%s at %s", ring.Printable(way), cluster.FirstOf(by[way], maxDifferences)))
	}
	return fmt.Sprintf("%s: the settings files even out the load in different ways: %s", r.Name, strings.Join(ways, "; "))
}

// settledViews asks the instances until all agree or, if some do not, for a moment. An instance
// that has agreed once is not asked again.
func settledViews(ctx context.Context, client kubernetes.Interface, asker *asker, names []string) ([]ringViews, error) {
	agreed := map[types.UID]instanceView{}
	var deadline time.Time
	for {
		rings, _, err := cluster.Present(ctx, client, names)
		if err != nil {
			return nil, err
		}
		if len(names) == 0 {
			rings = slices.DeleteFunc(rings, silent)
		}
		var addresses []string
		each(rings, func(_ *ringtable.Ring, i *ringtable.Instance, record ring.Record) {
			if _, done := agreed[record.UID]; !done {
				addresses = append(addresses, i.Host())
			}
		})
		slices.Sort(addresses)
		answers := asker.askAll(ctx, slices.Compact(addresses))
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		all, settled := []ringViews{}, true
		each(rings, func(r *ringtable.Ring, i *ringtable.Instance, record ring.Record) {
			view, done := agreed[record.UID]
			if !done {
				view = compare(r, i, record, answers[i.Host()])
			}
			if view.Agrees {
				agreed[record.UID] = view
			}
			settled = settled && view.Agrees
			if len(all) == 0 || all[len(all)-1].Name != r.Name {
				all = append(all, ringViews{Name: r.Name})
			}
			last := &all[len(all)-1]
			last.Instances = append(last.Instances, view)
		})
		switch {
		case settled || !deadline.IsZero() && time.Now().After(deadline):
			return all, nil
		case deadline.IsZero():
			// To ask all of a large ring takes a while.
			deadline = time.Now().Add(asker.settle)
		}
		select {
		case <-time.After(asker.settle / 4):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// each calls f for all instances.
func each(rings []*ringtable.Ring, f func(*ringtable.Ring, *ringtable.Instance, ring.Record)) {
	for _, r := range rings {
		for n := range r.Instances {
			record, _ := r.View().Get(r.Instances[n].Name)
			f(r, &r.Instances[n], record)
		}
	}
}

// compare returns how an instance sees the ring, by the answer of its process.
func compare(r *ringtable.Ring, i *ringtable.Instance, record ring.Record, got answer) instanceView {
	view := instanceView{Name: i.Name, Host: i.Host(), Differs: []string{}, Phase: i.Phase, Range: i.Owned.String()}
	if got.err != nil {
		view.Error = got.err.Error()
		return view
	}
	view.Own, view.Error = instanceOf(got.process, record)
	if view.Own == nil {
		return view
	}
	var newest int64
	for _, record := range r.View().Records() {
		newest = max(newest, record.Revision)
	}
	view.Lag = max(0, newest-view.Own.Revision)
	view.Differs = append(view.Differs, differences(view.Own.Records, member.RecordStates(r.View().Records()))...)
	if view.Own.Phase != i.Phase {
		view.Differs = append(view.Differs, fmt.Sprintf("it is in phase %s, registry: %s", view.Own.Phase, i.Phase))
	}
	if view.Own.Owned != view.Range {
		view.Differs = append(view.Differs, fmt.Sprintf("it owns %s, registry: %s", view.Own.Owned, view.Range))
	}
	view.Differs = append(view.Differs, idles(view.Own, i.Working)...)
	view.Agrees = len(view.Differs) == 0
	return view
}

// idles says why an instance does not work on what it owns, though its record says so: it is
// active, and works on these controllers.
func idles(own *member.Snapshot, working []string) []string {
	if own.Phase != shardingv1alpha1.InstanceActive {
		return nil
	}
	var lines []string
	if age := time.Duration(own.RoundAgeSeconds * float64(time.Second)); age > hangTime {
		lines = append(lines, fmt.Sprintf("it has decided nothing for %v", age.Round(time.Second)))
	}
	if own.BelievesForSeconds == 0 {
		lines = append(lines, "it takes its lease to have ended, and begins no work")
	}
	if own.Barred != "" {
		lines = append(lines, "none of its controllers may send a request: "+own.Barred)
	}
	if own.Open != own.Owned {
		lines = append(lines, "its gate is open for "+own.Open)
	}
	var shut []string
	for _, door := range own.Doors {
		if door.Open != own.Open && slices.Contains(working, door.Controller) {
			shut = append(shut, door.Controller)
		}
	}
	if len(shut) > 0 {
		lines = append(lines, "its gate is shut for "+strings.Join(shut, ", "))
	}
	return lines
}

// instanceOf returns the instance of that record in the process, or why it is not there.
func instanceOf(process member.Process, record ring.Record) (_ *member.Snapshot, why string) {
	for n := range process.Instances {
		own := &process.Instances[n]
		switch {
		case own.Ring != record.Ring:
		case own.Holder != record.Holder:
			return nil, "another process answers there: " + own.Holder
		case own.Name == "":
			return nil, "its process is not registered on the ring any more"
		case own.Name != record.Name || own.UID != record.UID:
			return nil, fmt.Sprintf("its process is registered as %s now", own.Name)
		default:
			return own, ""
		}
	}
	return nil, "its process is not on the ring"
}

// differences says what an instance knows of the records that the registry contradicts. What it
// knows of their load may be old.
func differences(own, registry []member.RecordState) []string {
	byName := func(states []member.RecordState) map[string]*member.RecordState {
		all := make(map[string]*member.RecordState, len(states))
		for i := range states {
			all[states[i].Name] = &states[i]
		}
		return all
	}
	known, present := byName(own), byName(registry)
	orNone := func(key string) string {
		if key == "" {
			return "none"
		}
		return key
	}
	var lines []string
	for _, there := range registry {
		here := known[there.Name]
		if here == nil || here.UID != there.UID {
			lines = append(lines, "it does not know "+there.Name)
			continue
		}
		for _, field := range []struct{ what, own, registry string }{
			{"key", orNone(here.HashKey), orNone(there.HashKey)},
			{"next key", orNone(here.NextHashKey), orNone(there.NextHashKey)},
			{"phase", string(here.Phase), string(there.Phase)},
			{"generation", strconv.FormatInt(here.Generation, 10), strconv.FormatInt(there.Generation, 10)},
		} {
			if field.own != field.registry {
				lines = append(lines, fmt.Sprintf("for it the %s of %s is %s, registry: %s", field.what, there.Name, field.own, field.registry))
			}
		}
	}
	for _, here := range own {
		if present[here.Name] == nil {
			lines = append(lines, fmt.Sprintf("it knows %s, which is gone", here.Name))
		}
	}
	return lines
}

// printViews prints the views as a table.
func printViews(out io.Writer, rings []ringViews) error {
	w := printers.GetNewTabWriter(out)
	fmt.Fprintln(w, "INSTANCE\tHOST\tREVISION\tLAG\tPHASE\tRANGE\tAGREES")
	for _, r := range rings {
		for _, i := range r.Instances {
			revision, lag, phase, owned := "-", "-", string(i.Phase), i.Range
			if i.Own != nil {
				revision, lag = strconv.FormatInt(i.Own.Revision, 10), strconv.FormatInt(i.Lag, 10)
				if i.Own.Phase != i.Phase {
					phase = fmt.Sprintf("%s (registry: %s)", i.Own.Phase, i.Phase)
				}
				owned = i.Own.Owned
			}
			cells := []string{i.Name, i.Host, revision, lag, phase, owned, i.agrees()}
			for n := range cells {
				cells[n] = ring.Printable(cells[n])
			}
			fmt.Fprintln(w, strings.Join(cells, "\t"))
		}
	}
	return w.Flush()
}

// agrees says for people whether the instance agrees and, if not, why.
func (i *instanceView) agrees() string {
	switch n := len(i.Differs); {
	case i.Agrees:
		return "yes"
	case i.Error != "":
		return "not known: " + i.Error
	case n > maxDifferences:
		return fmt.Sprintf("no: %s; and %d more", strings.Join(i.Differs[:maxDifferences], "; "), n-maxDifferences)
	}
	return "no: " + strings.Join(i.Differs, "; ")
}
