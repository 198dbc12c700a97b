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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/member"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/pkg/ringtable"
)

const (
	// viewsAtOnce is how many processes are asked at the same time.
	viewsAtOnce = 32
	// settleTime is how long a view that differs is asked for again: it may only lag.
	settleTime = 2 * time.Second
	// hangTime is how long ago an instance that does not hang has decided something.
	hangTime = 10 * time.Second
	// maxAnswer bounds an answer, in bytes.
	maxAnswer = 64 << 20
	// maxDifferences is how many differences a table shows of an instance, and how many instances it
	// names that have the same settings.
	maxDifferences = 3
)

func newViewsCommand(flags *genericclioptions.ConfigFlags) *cobra.Command {
	var output, authority string
	timeout := 3 * time.Second
	command := &cobra.Command{
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
		RunE: func(command *cobra.Command, args []string) error {
			if err := checkOutput(output, "json or yaml"); err != nil {
				return err
			}
			if timeout <= 0 {
				return fmt.Errorf("--timeout is %v, want more than 0", timeout)
			}
			client, err := connect(flags)
			if err != nil {
				return err
			}
			config, err := flags.ToRESTConfig()
			if err != nil {
				return err
			}
			asker, err := newAsker(config, authority, timeout)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(command.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return views(ctx, client, asker, args, output, command.OutOrStdout())
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "", "Print json or yaml, for programs, in place of a table.")
	command.Flags().DurationVar(&timeout, "timeout", timeout, "How long to wait for an answer.")
	command.Flags().StringVar(&authority, "controllers-ca", "", "The certificate authority of the serving certificates of those that are asked: a file. Default: they are not verified.")
	flags.AddFlags(command.Flags())
	return command
}

// asker asks controller managers what they know of their rings.
type asker struct {
	client *http.Client
	// withToken says that all credentials of the kubeconfig are sent.
	withToken bool
	// settle is for how long a view that differs is asked for again, a quarter of that apart.
	settle time.Duration
}

// newAsker returns an asker that verifies serving certificates if authority names a file.
func newAsker(config *rest.Config, authority string, timeout time.Duration) (*asker, error) {
	own := rest.AnonymousClientConfig(config)
	own.TLSClientConfig = rest.TLSClientConfig{
		Insecure: true,
		CertFile: config.CertFile, CertData: config.CertData, KeyFile: config.KeyFile, KeyData: config.KeyData,
	}
	if authority != "" {
		own = rest.CopyConfig(config)
		own.Insecure, own.ServerName, own.CAData, own.CAFile = false, "", nil, authority
	}
	own.Timeout = timeout
	client, err := rest.HTTPClientFor(own)
	if err != nil {
		return nil, err
	}
	// The credentials are for the controller manager alone.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &asker{client: client, withToken: authority != "", settle: settleTime}, nil
}

// answer is what a controller manager has answered.
type answer struct {
	process member.Process
	// raw is the process as it was sent.
	raw []byte
	err error
}

// askAll asks the controller managers at these addresses (host and port).
func (a *asker) askAll(ctx context.Context, addresses []string) map[string]answer {
	answers := make([]answer, len(addresses))
	for i := range answers {
		answers[i].err = errors.New("there was no time left to ask it")
	}
	workqueue.ParallelizeUntil(ctx, viewsAtOnce, len(addresses), func(i int) { answers[i] = a.ask(ctx, addresses[i]) })
	all := map[string]answer{}
	for i, address := range addresses {
		all[address] = answers[i]
	}
	return all
}

func (a *asker) ask(ctx context.Context, address string) (got answer) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return answer{err: errors.New("its holder names no host and port, so it serves nothing")}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, (&url.URL{Scheme: "https", Host: address, Path: "/ringz"}).String(), nil)
	if err != nil {
		return answer{err: err}
	}
	request.Header.Set("Accept", "application/json")
	response, err := a.client.Do(request)
	if err != nil {
		if outer := (*url.Error)(nil); errors.As(err, &outer) {
			if err = outer.Err; outer.Timeout() {
				err = fmt.Errorf("no answer within %v", a.client.Timeout)
			}
		}
		return answer{err: err}
	}
	defer response.Body.Close()
	got.raw, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch {
	case err != nil:
		return answer{err: err}
	case response.StatusCode == http.StatusNotFound:
		return answer{err: errors.New("it has no /ringz: it is older, or is something else")}
	case response.StatusCode != http.StatusOK:
		err = fmt.Errorf("it answered %s", response.Status)
		if !a.withToken && (response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden) {
			err = fmt.Errorf("%w to the kubeconfig's client certificate; a token is sent only with --controllers-ca", err)
		}
		return answer{err: err}
	}
	if err := json.Unmarshal(got.raw, &got.process); err != nil {
		return answer{err: fmt.Errorf("it answered no JSON of /ringz: %w", err)}
	}
	return got
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

// differentBalance says which instances of the ring even out its load in which way, if not all do in
// the same.
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
		ways = append(ways, fmt.Sprintf("%s at %s", ring.Printable(way), firstOf(by[way], maxDifferences)))
	}
	return fmt.Sprintf("%s: the settings files even out the load in different ways: %s", r.Name, strings.Join(ways, "; "))
}

// silent says whether the ring is of another program that serves no /ringz.
func silent(r *ringtable.Ring) bool {
	_, described := catalogue.RingNamed(r.Name)
	return !described && !slices.ContainsFunc(r.Instances, func(i ringtable.Instance) bool {
		_, _, err := net.SplitHostPort(i.Host())
		return err == nil
	})
}

// settledViews asks the instances until all agree or, if some do not, for a moment. An instance that
// has agreed once is not asked again.
func settledViews(ctx context.Context, client kubernetes.Interface, asker *asker, names []string) ([]ringViews, error) {
	agreed := map[types.UID]instanceView{}
	var deadline time.Time
	for {
		rings, _, err := listPresent(ctx, client, names)
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

// idles says why an instance does not work on what it owns, though its record says so: it is active, and
// works on these controllers.
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
