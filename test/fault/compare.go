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
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/test/harness/objects"
)

const (
	// atRest is the name of the comparison in the table of faults.
	atRest = "at rest"
	// restWithin is how long the load that is judged at rest may take to come to rest.
	restWithin = time.Minute
	// cronWithin is how long it takes at most until each CronJob has had its minute, and its Job.
	cronWithin = 90 * time.Second
	// marker is a pod that ends the audit log of the comparison.
	marker = "marker"
)

// The kinds of violation at rest.
const (
	restless = "not at rest"
	byStock  = "write by a stock controller manager"
)

// change is a change of an object in etcd.
type change struct {
	key         string
	before, now *mvccpb.KeyValue
	deleted     bool
}

// stockWrite is a write that a stock controller manager has sent.
type stockWrite struct {
	controller, verb, resource, namespace, name string
	code                                        int32
	// revision is that of the object in the answer, 0 without one.
	revision int64
}

// comparison is what a stock controller manager has sent.
type comparison struct {
	process *process
	writes  []stockWrite
	// ended is closed once the audit log has reached the marker.
	ended chan struct{}
}

// hear handles an event of the audit log.
func (c *comparison) hear(e auditEvent, p *process) {
	o := e.ObjectRef
	switch {
	case p == nil && o.Name == marker && e.Verb == "create":
		close(c.ended)
	case p == c.process && e.Verb != "get" && e.Verb != "list" && e.Verb != "watch":
		w := stockWrite{
			controller: e.Controller(), verb: e.Verb, resource: e.What(), namespace: o.Namespace, name: o.Name, code: e.ResponseStatus.Code,
		}
		if e.ResponseObject != nil {
			w.revision, _ = strconv.ParseInt(e.ResponseObject.ResourceVersion, 10, 64)
			if w.name == "" {
				w.name = e.ResponseObject.Name
			}
		}
		c.writes = append(c.writes, w)
	}
}

// compare has a fresh stock controller manager look at what there is, once everything is at rest
// and all others have left, and judges what it writes.
func (r *run) compare(ctx context.Context, into *result) error {
	begin := time.Now()
	into.times++
	fmt.Printf("%s: waiting for the load to end\n", atRest)
	if err := r.rest(ctx, into); err != nil {
		return fmt.Errorf("%s: %w", atRest, err)
	}
	fmt.Printf("%s: what is there is compared with what a stock controller manager makes of it\n", atRest)
	c, err := r.stockWrites(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", atRest, err)
	}
	var changes map[int64][]change
	r.history.See(func(c *checker) { changes = c.changes })
	into.violations = append(into.violations, c.judge(os.Stdout, changes)...)
	into.violations = append(into.violations, r.judge(fault{name: atRest}, into)...)
	printRound(atRest, time.Since(begin), nil, into.violations)
	return nil
}

// rest ends the load, and waits until it has come to rest. What does not is a violation, and a
// stock controller manager will show what it lacks.
func (r *run) rest(ctx context.Context, into *result) error {
	bounded, cancel := context.WithTimeoutCause(ctx, soon, errors.New("not within 3 minutes"))
	defer cancel()
	if err := r.allMade(bounded); err != nil {
		return err
	}
	notYet := func(within time.Duration, look func(context.Context) ([]string, error)) error {
		var left []string
		bounded, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		err := wait.PollUntilContextCancel(bounded, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			now, err := look(ctx)
			if ctx.Err() == nil {
				left = now
			}
			return err == nil && len(left) == 0, err
		})
		if err != nil && (ctx.Err() != nil || bounded.Err() == nil) {
			return err
		}
		for _, what := range left {
			into.violations = append(into.violations, violation{kind: restless, text: fmt.Sprintf("%s: not within %v: %s", restless, within, what)})
		}
		return nil
	}
	if err := notYet(cronWithin, r.unscheduled); err != nil {
		return err
	}
	if err := r.suspend(ctx); err != nil {
		return err
	}
	if err := r.settle(ctx); err != nil {
		return err
	}
	if err := notYet(restWithin, func(ctx context.Context) (left []string, err error) {
		r.history.See(func(c *checker) { left = c.unrested() })
		more, err := r.unmade(ctx)
		return append(left, more...), err
	}); err != nil {
		return err
	}
	for _, p := range r.running() {
		if err := r.idle(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// unrested lists what may be settled and is not at rest.
func (c *checker) unrested() (left []string) {
	for _, j := range c.jobs {
		switch {
		case !j.finished || j.deleting:
			left = append(left, "Job "+j.name+" has not finished")
		case j.spec.TTLSecondsAfterFinished != nil:
			left = append(left, "Job "+j.name+" is still there after its time to live")
		}
		for uid, p := range j.pods {
			if p.tracked {
				left = append(left, fmt.Sprintf("pod %s of Job %s is still tracked", uid, j.name))
			}
		}
	}
	for name, t := range c.teams {
		if t.scaler == nil {
			continue
		}
		if is, want := t.scaler.Status.CurrentReplicas, *t.sets[autoSet].Spec.Replicas; is != want {
			left = append(left, fmt.Sprintf("%s: the autoscaler says %d replicas, want %d", name, is, want))
		}
		for pod := range t.pods {
			if t.pods[pod].DeletionTimestamp != nil {
				left = append(left, fmt.Sprintf("%s: pod %s is being deleted", name, pod))
			}
		}
	}
	return left
}

// unscheduled lists the CronJobs that have yet to run in this minute, or have one that runs.
func (r *run) unscheduled(ctx context.Context) (left []string, err error) {
	all, err := r.client.BatchV1().CronJobs(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	minute := time.Now().Truncate(time.Minute)
	for _, cj := range all.Items {
		last := cj.Status.LastScheduleTime
		switch {
		case len(cj.Status.Active) > 0:
			left = append(left, fmt.Sprintf("CronJob %s/%s: its Job runs", cj.Namespace, cj.Name))
		case cj.CreationTimestamp.Time.Before(minute) && (last == nil || last.Time.Before(minute)):
			left = append(left, fmt.Sprintf("CronJob %s/%s has no Job for %s", cj.Namespace, cj.Name, minute.Format(time.TimeOnly)))
		}
	}
	return left, nil
}

// suspend suspends all CronJobs.
func (r *run) suspend(ctx context.Context) error {
	all, err := r.client.BatchV1().CronJobs(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, cj := range all.Items {
		if _, err := r.client.BatchV1().CronJobs(cj.Namespace).Patch(ctx, cj.Name, types.MergePatchType, []byte(`{"spec":{"suspend":true}}`), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return nil
}

var queueLine = regexp.MustCompile(`(?m)^(workqueue_depth|workqueue_unfinished_work_seconds|workqueue_adds_total)\{[^}]*name="([^"]*)"[^}]*\} (\S+)$`)

// idle waits until a process has nothing in its queues, and nothing is added from one look to the
// next.
func (r *run) idle(ctx context.Context, p *process) error {
	bounded, cancel := context.WithTimeoutCause(ctx, soon, errors.New("not within 3 minutes"))
	defer cancel()
	var adds map[string]string
	var busy []string
	err := wait.PollUntilContextCancel(bounded, 300*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		metrics, err := r.cluster.Get(ctx, p.name, "/metrics")
		if err != nil {
			return false, err
		}
		before := adds
		adds, busy = map[string]string{}, nil
		for _, match := range queueLine.FindAllSubmatch(metrics, -1) {
			metric, queue, value := string(match[1]), string(match[2]), string(match[3])
			switch {
			case metric == "workqueue_adds_total":
				adds[queue] = value
			case value != "0":
				busy = append(busy, fmt.Sprintf("%s: %s is %s", queue, metric, value))
			}
		}
		for queue, n := range adds {
			// Autoscalers are looked at again and again.
			if before[queue] != n && queue != "horizontalpodautoscaler" {
				busy = append(busy, fmt.Sprintf("%s: %s additions, were %s", queue, n, before[queue]))
			}
		}
		return len(busy) == 0 && len(adds) > 0, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s to have empty queues: %w; busy: %v", p.name, err, busy)
	}
	return nil
}

// stockWrites stops all controller managers, starts a fresh stock one, waits until it has worked
// on all that there is, and returns what it has sent.
func (r *run) stockWrites(ctx context.Context) (*comparison, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, soon, errors.New("not within 3 minutes"))
	defer cancel()
	// What it makes of its own namespace says nothing.
	if err := r.createNamespace(ctx, canaryNamespace); err != nil {
		return nil, err
	}
	var stopped []error
	for _, p := range r.running() {
		stopped = append(stopped, r.cluster.StopProcess(ctx, p.name))
	}
	if err := errors.Join(stopped...); err != nil {
		return nil, err
	}
	// No stock controller manager may lead while there is a record.
	if err := r.history.Await(ctx, "all instances to leave", func(c *checker) bool { return len(c.instances) == 0 }); err != nil {
		return nil, err
	}
	c := &comparison{ended: make(chan struct{})}
	r.history.See(func(c *checker) { c.changes = map[int64][]change{} })
	p, err := r.addStock(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := r.createCanaries(ctx); err != nil {
		return nil, err
	}
	if err := r.awaitCanaries(ctx); err != nil {
		return nil, errors.Join(err, errors.New(r.cluster.LogTail(p.name)))
	}
	if err := r.idle(ctx, p); err != nil {
		return nil, err
	}
	if err := r.cluster.StopProcess(ctx, p.name); err != nil {
		return nil, err
	}
	// All that it has sent was sent before that, to the same API server.
	if err := objects.Create(ctx, r.client, canaryNamespace, objects.Pod(marker, objects.Pods(nil))); err != nil {
		return nil, err
	}
	select {
	case <-c.ended:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the end of the audit log: %w", context.Cause(ctx))
	}
	return c, r.history.Await(ctx, "the end of etcd's history", func(c *checker) bool {
		for _, changes := range c.changes {
			if slices.ContainsFunc(changes, func(c change) bool { return strings.HasSuffix(c.key, "/"+marker) }) {
				return true
			}
		}
		return false
	})
}

// excuse returns why a write says nothing about what was there, "" if it does.
func (w stockWrite) excuse(diff []string) string {
	switch {
	case w.namespace == canaryNamespace || w.namespace == "" && w.name == canaryNamespace:
		return "made to see it at work"
	case w.resource == "serviceaccounts/token":
		return "its credentials"
	case w.resource == "horizontalpodautoscalers/status" && len(diff) > 0 && !slices.ContainsFunc(diff, func(d string) bool { return !strings.HasPrefix(d, "status.conditions") }):
		return "time: how long an autoscaler has held still"
	case w.resource == "poddisruptionbudgets/status" && slices.ContainsFunc(diff, func(d string) bool { return strings.HasPrefix(d, "status.disruptedPods") }):
		return "time: an eviction is two minutes old"
	case w.resource == "pods/status" && w.controller == "disruption-controller":
		return "time: an eviction is two minutes old"
	case len(diff) == 0 && w.code == http.StatusOK && (w.verb == "update" || w.verb == "patch"):
		return "changes nothing"
	}
	return ""
}

// judge prints a table of the writes, and returns those that are not excused as violations.
func (c *comparison) judge(out io.Writer, changes map[int64][]change) (violations []violation) {
	type row struct{ controller, verb, resource, excuse string }
	rows := map[row]int{}
	for _, w := range c.writes {
		diff := w.diff(changes)
		excuse := w.excuse(diff)
		rows[row{w.controller, w.verb, w.resource, excuse}]++
		if excuse == "" {
			if len(diff) == 0 {
				diff = []string{"nothing was stored"}
			}
			violations = append(violations, violation{kind: byStock, text: fmt.Sprintf("%s: %s: %s %s %s/%s: %d; %s", byStock, w.controller, w.verb, w.resource, w.namespace, w.name, w.code, strings.Join(diff, ", "))})
		}
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "writes of a stock controller manager\tverb\tresource\tcount\texcused\t")
	total := 0
	for _, r := range slices.SortedFunc(maps.Keys(rows), func(a, b row) int {
		return strings.Compare(a.excuse+"\t"+a.controller+a.resource+a.verb, b.excuse+"\t"+b.controller+b.resource+b.verb)
	}) {
		excuse := r.excuse
		if excuse == "" {
			excuse = "NO"
			total += rows[r]
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t\n", r.controller, r.verb, r.resource, rows[r], excuse)
	}
	fmt.Fprintf(table, "not excused\t\t\t%d\t\t\n", total)
	table.Flush()
	return violations
}

// diff lists what a write has changed, nothing if nothing was stored.
func (w stockWrite) diff(changes map[int64][]change) []string {
	resource, _, _ := strings.Cut(w.resource, "/")
	// ReplicationControllers have an older name there.
	resource = strings.TrimPrefix(resource, "replication")
	for _, revision := range slices.Sorted(maps.Keys(changes)) {
		for _, c := range changes[revision] {
			if path.Base(c.key) != w.name || !strings.Contains(c.key, "/"+resource+"/") || w.namespace != "" && path.Base(path.Dir(c.key)) != w.namespace {
				continue
			}
			before, now := asMap(c.before), asMap(c.now)
			switch {
			case c.deleted:
				// The answer to an update that ends an object names its last revision.
				if w.verb == "delete" || c.before != nil && c.before.ModRevision == w.revision {
					return []string{"deleted"}
				}
			case w.verb == "delete":
				if diff := differences("", before, now); slices.ContainsFunc(diff, func(d string) bool { return strings.HasPrefix(d, "metadata.deletionTimestamp:") }) {
					return diff
				}
			case revision != w.revision:
			case before == nil:
				return []string{"created " + described(now)}
			default:
				return differences("", before, now)
			}
		}
	}
	return nil
}

// described returns what tells most about a new object.
func described(object map[string]any) string {
	metadata, _ := object["metadata"].(map[string]any)
	short := map[string]any{"labels": metadata["labels"], "ownerReferences": metadata["ownerReferences"]}
	text, err := json.Marshal(short)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// asMap returns an object as etcd has it, nil if there is none.
func asMap(kv *mvccpb.KeyValue) map[string]any {
	if kv == nil || len(kv.Value) == 0 {
		return nil
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(kv.Value, nil, nil)
	if err == nil {
		var fields map[string]any
		if fields, err = runtime.DefaultUnstructuredConverter.ToUnstructured(object); err == nil {
			if metadata, ok := fields["metadata"].(map[string]any); ok {
				delete(metadata, "managedFields")
			}
			return fields
		}
	}
	return map[string]any{"undecoded": fmt.Sprint(err, bytes.Clone(kv.Value))}
}

// differences lists the fields that differ, with both values.
func differences(field string, a, b any) (out []string) {
	before, ok := a.(map[string]any)
	now, also := b.(map[string]any)
	if !ok || !also {
		if !reflect.DeepEqual(a, b) {
			was, err1 := json.Marshal(a)
			is, err2 := json.Marshal(b)
			if err := errors.Join(err1, err2); err != nil {
				return []string{field + ": " + err.Error()}
			}
			return []string{fmt.Sprintf("%s: %s -> %s", strings.TrimPrefix(field, "."), was, is)}
		}
		return nil
	}
	names := map[string]bool{}
	for name := range before {
		names[name] = true
	}
	for name := range now {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out = append(out, differences(field+"."+name, before[name], now[name])...)
	}
	return out
}
