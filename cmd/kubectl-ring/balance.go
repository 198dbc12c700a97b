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
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/balance"
	"k8s.io/kubernetes/cmd/kubectl-ring/cluster"
	"k8s.io/kubernetes/pkg/ringtable"
)

const (
	// balancePeriod is between two looks at whether all records say the same, and balanceTimeout ends
	// them.
	balancePeriod  = time.Second
	balanceTimeout = 30 * time.Second
)

func newBalanceCommand(flags *genericclioptions.ConfigFlags) *cobra.Command {
	output := ""
	command := cluster.Command(flags, &cobra.Command{
		Use:   "balance [RING]",
		Short: "Show how the load of a ring is shared, and which moves would even it out",
		Long: `Show what each instance of a ring has of its load, and what it should have, so that all processes hold as
much. The load is counted in objects: those that an instance holds for the keys it owns, more for one whose
workers have much to do and, on a ring of few objects, for a wide range. BESIDE THE RING is what its process
holds of other things, as the one that leads does: it should have that much less.

Below the table are the moves that would bring the ring nearer to that, one for each boundary, and what
the records say that holds them back. The instances make them by themselves unless balance is off. Where a
boundary would be is a guess: as if the load lay evenly in each range. An instance knows where its objects
lie.

What is taken to be even enough is the default. A controller manager's settings file can say otherwise, and
can have it move nothing; kubectl ring views says where files differ. For two minutes after an instance has
come or gone more moves, and what processes hold beside their rings counts as it was before, or not at all.
This command knows of the first only if an instance has registered since, and nothing of what was before.`,
		Args: cobra.MaximumNArgs(1),
		PreRunE: func(*cobra.Command, []string) error {
			return checkOutput(output, "json or yaml")
		},
	}, func(ctx context.Context, s *cluster.Session) error {
		return printBalance(ctx, s.Client, s.Args, output, s.Out)
	})
	command.Flags().StringVarP(&output, "output", "o", "", "Print json or yaml, for programs, in place of tables.")
	command.AddCommand(newSwitchCommand(flags, "on", "Have the instances even out the load of a ring, or of all", `Have the instances even out the load of a ring, or of all, as they do unless that was turned off.`, false),
		newSwitchCommand(flags, "off", "Keep the instances from evening out the load of a ring, or of all", `Keep the instances from moving boundaries to even out the load of a ring, or of all. What joins gets a
range still, and kubectl ring move works. The instances' records hold this: where all instances of a ring
have ended, it is forgotten.`, true))
	return command
}

func newSwitchCommand(flags *genericclioptions.ConfigFlags, name, short, long string, off bool) *cobra.Command {
	return cluster.Command(flags, &cobra.Command{
		Use:   name + " [RING]",
		Short: short,
		Long:  long,
		Args:  cobra.MaximumNArgs(1),
	}, func(ctx context.Context, s *cluster.Session) error {
		return switchBalance(ctx, s.Client, s.Args, off, s.Out)
	})
}

// balanceState is how even a ring is, for people and programs.
type balanceState struct {
	Name string `json:"name"`
	// OffBy is an instance whose record says that balance is off.
	OffBy string `json:"offBy,omitempty"`
	// JoinedLately says that an instance has come so lately, by this machine's clock, that moves have
	// no limit.
	JoinedLately bool          `json:"joinedLately"`
	Instances    []balancePart `json:"instances"`
	// MaxToMean is how many times the mean load the largest is; 0: there is no load.
	MaxToMean float64 `json:"maxToMean"`
	// Shifts are the moves that would bring the ring nearer to what each should have. There are none
	// where it is near enough.
	Shifts []balanceShift `json:"shifts"`
	// HeldBack says what keeps boundaries from moving now, in sentences.
	HeldBack []string `json:"heldBack"`
}

// balancePart is what an instance has of a ring's load, in objects.
type balancePart struct {
	Name   string `json:"name"`
	Weight int64  `json:"weight"`
	// Work is in thousandths.
	Work       int32 `json:"work"`
	Load       int64 `json:"load"`
	ShouldHave int64 `json:"shouldHave"`
	// BesideTheRing is what its process holds of other things.
	BesideTheRing int64 `json:"besideTheRing"`
	// Pinned says that the upper end of its range is.
	Pinned bool `json:"pinned,omitempty"`
}

// balanceShift is a move that would bring a ring nearer to what each should have.
type balanceShift struct {
	// Boundary is the instance whose upper end moves.
	Boundary string `json:"boundary"`
	Donor    string `json:"donor"`
	Receiver string `json:"receiver"`
	Load     int64  `json:"load"`
	// EstimatedHashKey is where the boundary is to be if the load lies evenly in the donor's range.
	EstimatedHashKey string `json:"estimatedHashKey,omitempty"`
}

// printBalance prints how the load of the named ring, or of all, is shared, and what would even it
// out.
func printBalance(ctx context.Context, client kubernetes.Interface, names []string, output string, out io.Writer) error {
	rings, present, err := cluster.Present(ctx, client, names)
	if err != nil {
		return err
	}
	states := []balanceState{}
	for _, r := range rings {
		states = append(states, balanceOf(r, balance.Default, time.Now()))
	}
	switch {
	case output != "":
		text, err := marshal(states, output)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, text)
	case len(states) == 0 && len(names) > 0:
		fmt.Fprintf(out, "ring %s has no instance; %s\n", names[0], cluster.WithInstances(present))
	case len(states) == 0:
		fmt.Fprintln(out, "No ring has instances.")
	}
	if output != "" {
		return nil
	}
	for i, s := range states {
		if i > 0 {
			fmt.Fprintln(out)
		}
		if err := s.print(out, balance.Default); err != nil {
			return err
		}
	}
	return nil
}

// balanceOf returns how even the ring is, and what its instances would do about it now, as far as
// the registry tells: it does not tell that an instance has gone lately.
func balanceOf(r *ringtable.Ring, settings balance.Settings, now time.Time) balanceState {
	// An age below zero tells that clocks differ, and no more.
	joined := func(i ringtable.Instance) bool {
		age := now.Sub(i.Created)
		return !i.Owned.Empty() && age >= 0 && age < settings.Free
	}
	view := r.View()
	free := slices.ContainsFunc(r.Instances, joined)
	plan := balance.NewPlan(view, settings, free, view)
	s := balanceState{Name: r.Name, JoinedLately: free, Instances: []balancePart{}, Shifts: []balanceShift{}, HeldBack: heldBack(view)}
	s.OffBy, _ = view.BalanceOff()
	var most, sum int64
	for i, part := range plan.Parts {
		r := view.Ring()[i]
		s.Instances = append(s.Instances, balancePart{Name: part.Name, Weight: part.Weight, Work: r.Work, Load: part.Load, ShouldHave: part.Wanted, BesideTheRing: part.Beside, Pinned: r.Pinned()})
		most, sum = max(most, part.Load), sum+part.Load
	}
	if sum > 0 {
		s.MaxToMean = float64(most) * float64(len(plan.Parts)) / float64(sum)
	}
	for _, flow := range plan.Flows {
		moves := balanceShift{Boundary: flow.Boundary, Donor: flow.Donor, Receiver: flow.Receiver, Load: flow.Load}
		i := slices.IndexFunc(plan.Parts, func(part balance.Part) bool { return part.Name == flow.Donor })
		if key, ok := estimate(view, flow, plan.Parts[i].Load); ok {
			moves.EstimatedHashKey = hashkey.Format(key)
		}
		s.Shifts = append(s.Shifts, moves)
	}
	return s
}

// heldBack says what keeps boundaries of the ring from moving now, whatever its load.
func heldBack(view *ring.View) []string {
	lines := []string{}
	for _, r := range view.Records() {
		leaves := r.Deleting || r.Phase == shardingv1alpha1.InstanceLeaving
		switch {
		case leaves:
			lines = append(lines, r.Name+" leaves")
		case r.Drained && r.Key != nil:
			lines = append(lines, r.Name+" is drained, and owns a range until another instance can")
		case r.Key == nil && !r.Drained:
			lines = append(lines, r.Name+" joins: whoever is to give to it does that first")
		case r.Key != nil && r.Phase != shardingv1alpha1.InstanceActive:
			lines = append(lines, fmt.Sprintf("%s is %s, not Active", r.Name, r.Phase))
		}
	}
	for _, h := range view.Handovers() {
		if h.Kind == ring.KindMove {
			lines = append(lines, fmt.Sprintf("a handover is open: %s gives to %s", h.Donor, h.Receiver))
		}
	}
	for _, r := range view.Ring() {
		if r.Pinned() {
			lines = append(lines, fmt.Sprintf("the end of the range of %s is pinned: no load passes it; to release it: kubectl ring release %s", r.Name, r.Name))
		}
	}
	return lines
}

// print prints the state for people.
func (s *balanceState) print(out io.Writer, settings balance.Settings) error {
	if s.OffBy == "" {
		fmt.Fprintf(out, "%s: balance is on, unless a settings file says otherwise\n", s.Name)
	} else {
		fmt.Fprintf(out, "%s: balance is off, by %s: the instances move no boundary to even out the load; to turn it on:\n  kubectl ring balance on %s\n", s.Name, s.OffBy, s.Name)
	}
	parts := map[string]balancePart{}
	w := printers.GetNewTabWriter(out)
	fmt.Fprintln(w, "INSTANCE\tWEIGHT\tWORK\tLOAD\tSHOULD HAVE\tBESIDE THE RING\tPINNED")
	for _, part := range s.Instances {
		parts[part.Name] = part
		pinned := "-"
		if part.Pinned {
			pinned = "yes"
		}
		fmt.Fprintf(w, "%s\t%d\t%d%%\t%d\t%d\t%d\t%s\n", part.Name, part.Weight, (part.Work+5)/10, part.Load, part.ShouldHave, part.BesideTheRing, pinned)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, shift := range s.Shifts {
		donor := parts[shift.Donor]
		fmt.Fprintf(out, "%s would give about %d to %s: %s has %d and should have %d", donor.Name, shift.Load, shift.Receiver, donor.Name, donor.Load, donor.ShouldHave)
		if shift.EstimatedHashKey != "" {
			fmt.Fprintf(out, "; by hand, about:\n  kubectl ring move %s %s", shift.Boundary, shift.EstimatedHashKey)
		}
		fmt.Fprintln(out)
	}
	switch {
	case len(s.Instances) < 2:
		fmt.Fprintln(out, "Nothing to even out: fewer than two instances own a range")
	case len(s.Shifts) == 0:
		fmt.Fprintf(out, "Even enough: the largest load is %.2f times the mean. A move is worth it where an instance has more than it should have by %.0f%% of the mean, and by %d\n",
			s.MaxToMean, 100*settings.Tolerance, settings.Least)
	default:
		fmt.Fprintf(out, "The largest load is %.2f times the mean\n", s.MaxToMean)
	}
	if s.JoinedLately {
		fmt.Fprintf(out, "An instance has come less than %v ago: until then any number of keys may move in a minute\n", settings.Free)
	}
	switch {
	case len(s.HeldBack) > 0:
		fmt.Fprintf(out, "Held back:\n  %s\n", strings.Join(s.HeldBack, "\n  "))
	case len(s.Shifts) > 0 && s.OffBy == "":
		fmt.Fprintln(out, "No record holds that back. It may wait still: while an instance has just gone, or many objects come or go,\nand for the keys that may move in a minute")
	}
	return nil
}

// estimate returns the key to which the boundary is to move, if the donor's load lies evenly in its
// range, and whether there is one.
func estimate(view *ring.View, f balance.Flow, load int64) (key int64, ok bool) {
	if load <= 0 || f.Load >= load {
		return 0, false
	}
	high, low := bits.Mul64(view.Owned(f.Donor).Width(), uint64(f.Load))
	given, _ := bits.Div64(high, low, uint64(load))
	boundary, _ := view.Get(f.Boundary)
	to := uint64(*boundary.Key) + given
	if f.Donor == f.Boundary {
		to = uint64(*boundary.Key) - given
	}
	key = int64(to & (hashkey.Limit - 1))
	return key, view.CheckMove(f.Boundary, key) == nil
}

// switchBalance turns balance off, or on, for the named ring, or for all.
func switchBalance(ctx context.Context, client kubernetes.Interface, names []string, off bool, out io.Writer) error {
	if len(names) > 0 {
		r, err := cluster.Ring(ctx, client, names[0])
		if err != nil {
			return err
		}
		return switchRing(ctx, client, r.Name, off, out)
	}
	rings, _, err := cluster.Present(ctx, client, nil)
	if err != nil {
		return err
	}
	if len(rings) == 0 {
		return errors.New("no ring has instances, whose records would hold it")
	}
	for _, r := range rings {
		if err := switchRing(ctx, client, r.Name, off, out); err != nil {
			return err
		}
	}
	return nil
}

// switchRing turns balance off, or on, in all records of the ring.
func switchRing(ctx context.Context, client kubernetes.Interface, name string, off bool, out io.Writer) error {
	value, word := any(nil), "on"
	if off {
		value, word = shardingv1alpha1.BalanceDisabled, "off"
	}
	changed, settled := map[string]bool{}, false
	var others []string
	err := wait.PollUntilContextTimeout(ctx, balancePeriod, balanceTimeout, true, func(ctx context.Context) (bool, error) {
		r, err := ringtable.Get(ctx, client, name)
		if err != nil {
			return false, err
		}
		others = nil
		for _, record := range r.View().Records() {
			if record.BalanceOff == off {
				continue
			}
			others = append(others, record.Name)
			switch err := cluster.Write(ctx, client, *record, cluster.Fields{"balance": value}, false, metav1.PatchOptions{}); {
			case err == nil:
				changed[record.Name] = true
			case !cluster.IsGone(err):
				return false, err
			}
		}
		// An instance that has registered meanwhile may have copied what others said before.
		done := len(others) == 0 && (off || settled || len(changed) == 0)
		settled = len(others) == 0
		return done, nil
	})
	switch {
	case wait.Interrupted(err) && ctx.Err() == nil:
		return fmt.Errorf("after %v, not all instances of ring %s say that balance is %s: %s; try again", balanceTimeout, name, word, strings.Join(others, ", "))
	case err != nil:
		return err
	case len(changed) == 0:
		fmt.Fprintf(out, "%s: balance is %s already\n", name, word)
	default:
		fmt.Fprintf(out, "%s: balance is %s\n", name, word)
	}
	return nil
}
