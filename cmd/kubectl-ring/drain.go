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
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/ring"
	"k8s.io/kubernetes/cmd/kubectl-ring/cluster"
	"k8s.io/kubernetes/pkg/ringtable"
)

const (
	// drainPeriod is between two looks at what is drained.
	drainPeriod = 500 * time.Millisecond
	// registerPeriod is ample for a process to register anew.
	registerPeriod = 15 * time.Second
)

func newDrainCommand(flags *genericclioptions.ConfigFlags) *cobra.Command {
	var timeout *time.Duration
	command := cluster.Command(flags, &cobra.Command{
		Use:   "drain INSTANCE",
		Short: "Have an instance give its range away, and stay on the ring without one",
		Long: `Have an instance give its range away, and stay on the ring without one until kubectl ring undrain. Its
successor fills its caches first; then the instance ends its work, and its record goes. Its process
registers anew, under another name, and waits there in phase Init. It owns a range only while no other
instance can, as when all others have died.

A process that is started anew is not drained.`,
		Example: `  # Before work on the host that it runs on
  kubectl ring drain workloads-x7k2p --wait`,
		Args: cobra.ExactArgs(1),
	}, func(ctx context.Context, s *cluster.Session) error {
		ctx, stop := cluster.UntilSignal(ctx)
		defer stop()
		return drain(ctx, s.Client, s.Args[0], *timeout, s.Out)
	})
	timeout = addWaiting(command, "Wait until it owns nothing, and say how far it is.")
	return command
}

// drain asks the instance of that name to give its range away and, unless timeout is 0, waits that
// long until its process owns nothing.
func drain(ctx context.Context, client kubernetes.Interface, name string, timeout time.Duration, out io.Writer) error {
	record, view, err := cluster.Find(ctx, client, name)
	if err != nil {
		return err
	}
	if record.Drained {
		fmt.Fprintf(out, "%s is drained already\n", name)
	} else {
		if err := checkDrain(record, view); err != nil {
			return err
		}
		if err := cluster.Set(ctx, client, record, cluster.Fields{"drained": true}); err != nil {
			return err
		}
	}
	if timeout > 0 {
		return waitDrained(ctx, client, record, timeout, out)
	}
	switch {
	case record.Key == nil && record.Next == nil:
		fmt.Fprint(out, hasDrained(record))
	case record.Drained && checkDrain(record, view) != nil:
		fmt.Fprintln(out, "It keeps its range until another instance can own it")
	default:
		fmt.Fprintf(out, "%s gives its range away%s, and its process registers anew under another name; follow it with:\n  kubectl ring %s --watch\n",
			name, to(record, view), record.Ring)
	}
	return nil
}

// checkDrain says why the instance is not to be drained; nil: it can be.
func checkDrain(record ring.Record, view *ring.View) error {
	if view.Spare(record.Name) {
		return nil
	}
	var drained []string
	for _, r := range view.Records() {
		if r.Name != record.Name && r.Drained && !r.Deleting && r.Phase != shardingv1alpha1.InstanceLeaving {
			drained = append(drained, r.Name)
		}
	}
	or := ""
	if len(drained) > 0 {
		or = fmt.Sprintf(", or undrain one of %s", strings.Join(drained, ", "))
	}
	return fmt.Errorf("no other instance of ring %s can take over from %s: its range would have no owner; start another one first%s", record.Ring, record.Name, or)
}

// successor returns who takes the range of the instance over, if that is known.
func successor(record ring.Record, view *ring.View) (ring.Record, bool) {
	for _, r := range view.Records() {
		if r.Name != record.Name && (r.Deleting || r.Phase == shardingv1alpha1.InstanceLeaving) {
			view = view.Without(r.Name)
		}
	}
	return view.Successor(record.Name)
}

// to says who takes the range of the instance over, if that is known.
func to(record ring.Record, view *ring.View) string {
	if next, ok := successor(record, view); ok {
		return " to " + next.Name
	}
	return ""
}

// follows says how much of a range that is left whoever takes it over has in its caches: where it
// has no room for it, nothing.
func follows(record ring.Record, view *ring.View) string {
	next, ok := successor(record, view)
	owned := view.Owned(record.Name)
	if !ok || record.Phase != shardingv1alpha1.InstanceLeaving || owned.Empty() {
		return ""
	}
	part := float64(next.Cached.Intersect(owned).Width()) / float64(owned.Width())
	return fmt.Sprintf(", whose caches follow %.0f %% of the range", 100*part)
}

// hasDrained says what has become of a drained instance.
func hasDrained(r ring.Record) string {
	return fmt.Sprintf("%s is drained: it owns no range; to let it own one again:\n  kubectl ring undrain %s\n", r.Name, r.Name)
}

// waitDrained waits until the process of the instance owns nothing on the ring, and says how far it
// is.
func waitDrained(ctx context.Context, client kubernetes.Interface, record ring.Record, timeout time.Duration, out io.Writer) error {
	last := ""
	var failed error
	var missing time.Time
	// known are the registrations at the first look.
	known := sets.New[types.UID]()
	err := wait.PollUntilContextTimeout(ctx, drainPeriod, timeout, true, func(ctx context.Context) (bool, error) {
		r, err := ringtable.Get(ctx, client, record.Ring)
		failed = err
		switch {
		case cluster.IsRefused(err):
			return false, err
		case err != nil:
			missing = time.Time{}
			return false, nil
		}
		if known.Len() == 0 {
			for _, other := range r.View().Records() {
				known.Insert(other.UID)
			}
		}
		text, done, err := drainState(record, r)
		if text != last {
			last = text
			fmt.Fprint(out, text)
		}
		if done || err != nil {
			return done, err
		}
		// A process that has ended does not register anew.
		isHere := func(other *ring.Record) bool { return other.UID == record.UID || other.Holder == record.Holder }
		if slices.ContainsFunc(r.View().Records(), isHere) {
			missing = time.Time{}
		} else if missing.IsZero() {
			missing = time.Now()
		}
		if missing.IsZero() || time.Since(missing) < registerPeriod {
			return false, nil
		}
		host := (&ringtable.Instance{Holder: record.Holder}).Host()
		for _, i := range r.Instances {
			if now, _ := r.View().Get(i.Name); i.Host() == host && !known.Has(now.UID) && !i.Drained {
				return false, fmt.Errorf("the process of %s has ended, and another has come on %s: %s, which is not drained; to drain it: kubectl ring drain %s",
					record.Name, host, i.Name, i.Name)
			}
		}
		fmt.Fprintln(out, "If it has ended, there is nothing to undrain")
		return true, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return errors.Join(fmt.Errorf("after %v, %s is not known to be drained; it goes on, look at it with: kubectl ring %s", timeout, record.Name, record.Ring), failed)
	}
	return err
}

// drainState says how far the process of the instance is, and whether it owns nothing.
func drainState(record ring.Record, r *ringtable.Ring) (text string, done bool, err error) {
	view := r.View()
	if now, ok := view.Get(record.Name); ok && now.UID == record.UID {
		switch {
		case !now.Drained:
			return "", false, fmt.Errorf("%s is not drained any more: somebody has undrained it", record.Name)
		case now.Key == nil && now.Next == nil && record.Key == nil:
			return hasDrained(now), true, nil
		}
		i := slices.IndexFunc(r.Instances, func(i ringtable.Instance) bool { return i.Name == record.Name })
		return drainProgress(&r.Instances[i], to(now, view)+follows(now, view)), false, nil
	}
	i := slices.IndexFunc(view.Records(), func(other *ring.Record) bool { return other.Holder == record.Holder })
	if i < 0 {
		return fmt.Sprintf("%s is gone; its process, %s, has not registered anew yet\n", record.Name, record.Holder), false, nil
	}
	switch now := *view.Records()[i]; {
	case !now.Drained:
		return "", false, fmt.Errorf("the process of %s has registered anew as %s, which is not drained: its record went before the process had read of the drain, or somebody has undrained it; to drain it again: kubectl ring drain %s", record.Name, now.Name, now.Name)
	case now.Key != nil || now.Next != nil:
		return fmt.Sprintf("%s is gone; its process is %s now, and owns a range, as no other instance can\n", record.Name, now.Name), false, nil
	default:
		return fmt.Sprintf("%s is gone; its process is %s now\n", record.Name, now.Name) + hasDrained(now), true, nil
	}
}

// drainProgress says how far an instance is that gives its range away.
func drainProgress(i *ringtable.Instance, to string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %d objects left", i.Name, cmp.Or(i.Phase, "has not told its phase yet"), i.Weight)
	if to != "" {
		fmt.Fprintf(&b, ", which go%s", to)
	}
	switch i.Busy {
	case 0:
	case 1:
		b.WriteString("; 1 piece of work under way")
	default:
		fmt.Fprintf(&b, "; %d pieces of work under way", i.Busy)
	}
	return b.String() + "\n"
}

func newUndrainCommand(flags *genericclioptions.ConfigFlags) *cobra.Command {
	return cluster.Command(flags, &cobra.Command{
		Use:   "undrain INSTANCE",
		Short: "Let an instance that was drained own a range again",
		Long: `Let an instance that was drained own a range again. INSTANCE is its present name, which it has had since
it gave its range away; kubectl ring shows it. It joins the ring as a new one does.`,
		Args: cobra.ExactArgs(1),
	}, func(ctx context.Context, s *cluster.Session) error {
		return undrain(ctx, s.Client, s.Args[0], s.Out)
	})
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
		if err := cluster.Set(ctx, client, record, cluster.Fields{"drained": nil}); err != nil {
			return err
		}
		_, err := fmt.Fprintf(out, "%s is not drained any more, and joins ring %s; follow it with:\n  kubectl ring %s --watch\n", name, r.Name, r.Name)
		return err
	}
	return fmt.Errorf("there is no ControllerInstance %q: one that is drained gets another name; %s", name, which)
}
