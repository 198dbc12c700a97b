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
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/ring"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/test/harness/ownership"
)

// judge takes all that etcd has stored, in order, and judges each write of a controller
// by who could work on its object at that revision: the leader, if it runs that controller
// itself, and the owner of the object's hash key, if its record says that it works on that
// controller. Who wrote is taken from the audit log. Of the ring's code it uses only what
// reads a leader's signature.
type judge struct {
	accounts
	// processOf returns the process of the instance with that holderIdentity.
	processOf func(holder string) string

	revision  int64
	leader    ring.Leader
	instances ownership.Records
	workloads map[types.UID]*workload
	podOwner  map[types.UID]types.UID

	// deposed says that a leader loses its Lease while it works. Until it notices, what it
	// runs itself it runs beside the next leader, as upstream's leaders do.
	deposed bool

	// judged counts the writes that were judged.
	judged     int
	violations []violation
}

func newJudge(a accounts, processOf func(holder string) string) *judge {
	return &judge{
		accounts: a, processOf: processOf,
		instances: ownership.Records{}, workloads: map[types.UID]*workload{}, podOwner: map[types.UID]types.UID{},
	}
}

// workload is a ReplicaSet, a ReplicationController, a Deployment, a Job or a DaemonSet at the
// present revision.
type workload struct {
	uid              types.UID
	name, controller string
	// parent is the UID of its own controller, "" if it has none.
	parent types.UID
	// wanted has the number of pods by generation, from the observed generation on.
	wanted     map[int64]int32
	generation int64
	live       map[types.UID]bool
	// since has the processes that can work on it, with the revision from which they can.
	since map[string]int64
	// wrote has the revision of each process's last write.
	wrote map[string]int64
}

// violation is one broken rule.
type violation struct {
	kind, text string
}

// The kinds of violation.
const (
	excess     = "creation in excess"
	needless   = "needless deletion"
	twoWorkers = "two workers"
	nonWorker  = "write by a non-worker"
	// unfenced is either, by a controller that is on no ring, of a leader that was deposed.
	// It is counted, and fails no run.
	unfenced   = "unfenced write of a deposed leader"
	untold     = "write that is not in the audit log"
	unfinished = "unfinished"
	other      = "other"
)

func (j *judge) violate(kind, format string, args ...any) {
	j.violations = append(j.violations, violation{kind, fmt.Sprintf("revision %d: %s: ", j.revision, kind) + fmt.Sprintf(format, args...)})
}

// leads handles a write of the leader's Lease.
func (j *judge) leads(holder string) {
	if holder == j.leader.Holder {
		return
	}
	j.leader = ring.Leader{Holder: holder}
	j.shift()
}

// instanceWritten handles a write of a record.
func (j *judge) instanceWritten(r *shardingv1alpha1.ControllerInstance) {
	j.instances[r.Name] = r
	j.shift()
}

// instanceGone handles the deletion or expiry of a record.
func (j *judge) instanceGone(name string) {
	delete(j.instances, name)
	j.shift()
}

// shift works out anew who can work on what.
func (j *judge) shift() {
	for _, w := range j.workloads {
		j.staff(w)
	}
}

func (j *judge) staff(w *workload) {
	now := j.workers(w)
	for process := range w.since {
		if !slices.Contains(now, process) {
			delete(w.since, process)
		}
	}
	for _, process := range now {
		if _, already := w.since[process]; !already {
			w.since[process] = j.revision
		}
	}
}

// workers returns the processes that can work on the workload at this revision.
func (j *judge) workers(w *workload) []string {
	var out []string
	if j.leader.Runs(w.controller) {
		out = append(out, j.leaderProcess())
	}
	owner := j.instances.Owner(catalogue.WorkloadsRing, hashkey.OfUID(w.uid))
	if owner != nil && slices.ContainsFunc(owner.Status.Controllers, func(c shardingv1alpha1.ControllerState) bool { return c.Name == w.controller && c.Working }) {
		out = append(out, j.processOf(owner.Spec.HolderIdentity))
	}
	return out
}

// leaderProcess returns the process that leads.
func (j *judge) leaderProcess() string {
	if process, ok := j.leaders[j.leader.Holder]; ok {
		return process
	}
	return j.leader.Holder
}

// workloadWritten handles a write of a workload.
func (j *judge) workloadWritten(controller string, meta *metav1.ObjectMeta, replicas int32, observed int64) {
	w := j.workloads[meta.UID]
	if w == nil {
		w = &workload{
			uid: meta.UID, name: meta.Name, controller: controller,
			wanted: map[int64]int32{}, live: map[types.UID]bool{}, since: map[string]int64{}, wrote: map[string]int64{},
		}
		if ref := metav1.GetControllerOfNoCopy(meta); ref != nil {
			w.parent = ref.UID
		}
		j.workloads[meta.UID] = w
		j.staff(w)
	}
	w.generation = meta.Generation
	w.wanted[meta.Generation] = replicas
	for g := range w.wanted {
		if g < observed {
			delete(w.wanted, g)
		}
	}
	if by, ok := j.writers[writeID{w.uid, j.revision}]; ok {
		home := w
		if by.controller != w.controller {
			home = j.workloads[w.parent]
		}
		j.wrote(by, home, "write of "+w.name)
	}
}

// podCreated checks that some generation of the workload wanted the pod: the one that its
// controller last reported as observed, or a later one.
func (j *judge) podCreated(pod *v1.Pod) {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil || j.workloads[ref.UID] == nil {
		return
	}
	w := j.workloads[ref.UID]
	var allowed int32
	for _, n := range w.wanted {
		allowed = max(allowed, n)
	}
	if len(w.live) >= int(allowed) {
		j.violate(excess, "pod %s for %s, which had %d and wanted %d, by %s", pod.Name, w.name, len(w.live), allowed, j.writers[writeID{pod.UID, j.revision}].process)
	}
	w.live[pod.UID] = true
	j.podOwner[pod.UID] = w.uid
	j.expect(writeID{pod.UID, j.revision}, "create "+string(w.uid), w, "creation of pod "+pod.Name)
}

// podFinished handles that a pod of a Job has succeeded. The Job needs another.
func (j *judge) podFinished(pod *v1.Pod) {
	if w := j.workloads[j.podOwner[pod.UID]]; w != nil {
		delete(w.live, pod.UID)
	}
}

// podDeleted checks that one of those generations wanted fewer pods. Those of a DaemonSet are
// replaced when its template changes.
func (j *judge) podDeleted(pod *v1.Pod) {
	w := j.workloads[j.podOwner[pod.UID]]
	if w == nil {
		return
	}
	allowed := w.wanted[w.generation]
	for _, n := range w.wanted {
		allowed = min(allowed, n)
	}
	if len(w.live) <= int(allowed) && w.controller != daemonSetController {
		j.violate(needless, "pod %s of %s, which had %d and wanted %d, by %s", pod.Name, w.name, len(w.live), allowed, j.writers[writeID{uid: pod.UID}].process)
	}
	delete(w.live, pod.UID)
	delete(j.podOwner, pod.UID)
	j.expect(writeID{uid: pod.UID}, "delete "+pod.Name, w, "deletion of pod "+pod.Name)
}

// expect judges a write that only a controller can have made. If no answer tells who, it
// is one of those whose request has failed; nobody knows which.
func (j *judge) expect(id writeID, unclear string, w *workload, what string) {
	by, ok := j.writers[id]
	if candidates := j.unclear[unclear]; !ok && len(candidates) > 0 {
		by, ok = candidates[0], true
		for _, c := range candidates {
			if w.since[c.process] > 0 {
				by = c
			}
		}
	}
	if !ok {
		j.violate(untold, "%s of %s", what, w.name)
		return
	}
	j.wrote(by, w, what)
}

// wrote judges a controller's write for a workload.
func (j *judge) wrote(by writer, w *workload, what string) {
	j.judged++
	switch {
	case w == nil || by.controller != w.controller:
		j.violate(nonWorker, "%s by the %s of %s, which is not its controller", what, by.controller, by.process)
		return
	case w.since[by.process] == 0:
		j.violate(j.kindOf(by, nonWorker), "%s for %s by the %s of %s; its workers were %s", what, w.name, by.controller, by.process, w.staff())
	}
	for process, since := range w.since {
		if last := w.wrote[process]; process != by.process && last >= since {
			j.violate(j.kindOf(by, twoWorkers), "%s for %s by the %s of %s, while %s worked on it, which last wrote at revision %d", what, w.name, by.controller, by.process, process, last)
		}
	}
	w.wrote[by.process] = j.revision
}

// kindOf returns the kind of a violation of a rule.
func (j *judge) kindOf(by writer, rule string) string {
	if j.deposed && by.controller == deploymentController {
		return unfenced
	}
	return rule
}

// staff lists the processes that can work on the workload.
func (w *workload) staff() string {
	if len(w.since) == 0 {
		return "none"
	}
	var out []string
	for process, since := range w.since {
		out = append(out, fmt.Sprintf("%s since revision %d", process, since))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// conclude judges the end: every workload has the pods that it wants.
func (j *judge) conclude() {
	for _, w := range j.workloads {
		if want := int(w.wanted[w.generation]); w.controller != deploymentController && len(w.live) != want {
			j.violate(unfinished, "%s has %d pods and wants %d", w.name, len(w.live), want)
		}
	}
}
