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
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/test/harness/ownership"
)

// checker judges writes by two independent sources: the state of etcd after each
// revision, and the writer that the API server's audit log names. It shares no code
// with the ring. It relies only on the meaning of the registry, and on that the leader runs
// the controllers that its Lease names.
type checker struct {
	revision    int64
	seen        time.Time
	instances   ownership.Records
	sets        map[types.UID]*replicaSet
	deployments map[types.UID]*deployment
	jobs        map[types.UID]*job
	daemonSets  map[types.UID]*daemonSet
	nodes       map[string]*node
	teams       map[string]*team
	volumes     map[string]*v1.PersistentVolume
	podOwner    map[types.UID]types.UID
	// schedules has the Job that a CronJob has made for a time.
	schedules map[string]string

	// due has the writes that were seen in etcd but not yet in the audit log, and may those that
	// need not be there: others make such writes, too. told has all writes of the audit log.
	due, may map[writeID]claim
	told     map[writeID]auditWrite
	// disputed has the claims whose write the audit log first names another process for.
	disputed map[writeID]claim
	// unclear has the processes whose write the API server answered with an internal
	// failure, by verb and object. Such a write may have been done.
	unclear    map[string][]string
	violations []violation
	// lost has the instances whose record disappeared while they were not Leaving. left
	// has those that deleted their record themselves.
	lost []lostInstance
	left map[string]bool
	// work counts the judged writes.
	work int
	// moved counts the boundaries that have moved.
	moved int
	// late has how long each address of a Service was ready and not published.
	late []time.Duration
	// recent has the creations and deletions of pods since the last reset, by ReplicaSet.
	recent map[types.UID][]auditWrite
	// led are the controllers that the leader's Lease names, as in --controllers.
	led []string
	// changes has what was changed while a stock controller manager is compared with, by revision.
	changes map[int64][]change
	// processOf returns the name of the process with that holderIdentity. It is nil if
	// there is no ring; then every process may write.
	processOf func(holder string) string
}

func newChecker(processOf func(holder string) string) *checker {
	return &checker{
		processOf: processOf, recent: map[types.UID][]auditWrite{},
		instances: ownership.Records{}, sets: map[types.UID]*replicaSet{}, deployments: map[types.UID]*deployment{}, podOwner: map[types.UID]types.UID{},
		jobs: map[types.UID]*job{}, daemonSets: map[types.UID]*daemonSet{}, nodes: map[string]*node{}, teams: map[string]*team{}, volumes: map[string]*v1.PersistentVolume{}, schedules: map[string]string{},
		due: map[writeID]claim{}, may: map[writeID]claim{}, told: map[writeID]auditWrite{}, disputed: map[writeID]claim{}, left: map[string]bool{}, unclear: map[string][]string{},
	}
}

// replicaSet is the state of a ReplicaSet at the present revision.
type replicaSet struct {
	// parent is the Deployment that it belongs to, "" if it belongs to none.
	uid, parent     types.UID
	template        v1.PodTemplateSpec
	status          apps.ReplicaSetStatus
	namespace, name string
	// wanted has spec.replicas by generation, from the observed generation on. allowed has the most
	// pods that its Deployment might have when that generation was written.
	wanted                         map[int64]int32
	allowed                        map[int64]int
	generation, observedGeneration int64
	live                           map[types.UID]bool
	created                        int
}

// writeID identifies a write. An object has one creation and one deletion, or "expire" where that
// is because its time to live has ended. Updates, and those of a status, differ by revision, as do
// "write", which is any of them, and "expand", which is that of a claim whose volume is to grow.
type writeID struct {
	verb     string
	uid      types.UID
	revision int64
}

// claim is a write seen in etcd, with the instance that was allowed to make it.
type claim struct {
	writeID
	// object is the name of what was written, and home the name of the workload whose
	// controller wrote it.
	object, home string
	revision     int64
	key          int64
	owner        *shardingv1alpha1.ControllerInstance
	// led says that the leader may have made it.
	led bool
}

// auditWrite is a write in the audit log.
type auditWrite struct {
	writeID
	process string
	set     types.UID
	at      time.Time
}

// lostInstance is one whose record was seen to disappear then.
type lostInstance struct {
	*shardingv1alpha1.ControllerInstance
	at time.Time
}

// violation is one of a kind. home is the name of the workload, of those that may be excused.
type violation struct {
	kind, text, home string
}

// The kinds of violation.
const (
	excess     = "creation in excess"
	surge      = "more pods than a rollout may have"
	needless   = "needless deletion"
	nonOwner   = "write by a non-owner"
	lostRecord = "record lost"
	// untracked means that a Job may never count the pod.
	untracked = "finalizer removed too early"
	miscount  = "wrong count of pods"
	untold    = "write that is not in the audit log"
	// needlessPause means that a gate shut for keys that were not handed over.
	needlessPause = "pause of a range that stays"
)

func (c *checker) violate(kind, format string, args ...any) {
	c.violations = append(c.violations, violation{kind: kind, text: fmt.Sprintf("revision %d: %s: ", c.revision, kind) + fmt.Sprintf(format, args...)})
}

// instanceWritten handles a write of a record.
func (c *checker) instanceWritten(r *shardingv1alpha1.ControllerInstance) {
	if old := c.instances[r.Name]; old != nil && old.Spec.HashKey != nil && r.Spec.HashKey != nil && *old.Spec.HashKey != *r.Spec.HashKey {
		c.moved++
	}
	c.instances[r.Name] = r
}

// instanceGone handles the deletion or expiry of a record.
func (c *checker) instanceGone(name string) {
	if i := c.instances[name]; i != nil && i.Status.Phase != shardingv1alpha1.InstanceLeaving {
		c.lost = append(c.lost, lostInstance{i, time.Now()})
	}
	delete(c.instances, name)
}

func (c *checker) setWritten(rs *apps.ReplicaSet, revision int64) {
	s := c.sets[rs.UID]
	isNew := s == nil
	if isNew {
		s = &replicaSet{uid: rs.UID, parent: parentOf(rs), namespace: rs.Namespace, name: rs.Name, wanted: map[int64]int32{}, allowed: map[int64]int{}, live: map[types.UID]bool{}}
		c.sets[rs.UID] = s
	}
	before := *s
	s.template, s.status = templateOf(rs), rs.Status
	if d := c.deployments[s.parent]; d != nil && isNew {
		c.rolledOut(d, nil, s, revision)
	} else if d != nil {
		c.rolledOut(d, &before, s, revision)
	} else if !isNew && rs.Generation == s.generation {
		// Only a controller writes anything but the specification.
		c.expect(writeID{"status", rs.UID, revision}, rs.Name, rs.Name, rs.UID)
	}
	if d := c.deployments[s.parent]; d != nil && (isNew || rs.Generation != s.generation) {
		s.allowed[rs.Generation] = d.most()
	}
	s.generation, s.observedGeneration = rs.Generation, rs.Status.ObservedGeneration
	s.wanted[rs.Generation] = *rs.Spec.Replicas
	for g := range s.wanted {
		if g < s.observedGeneration {
			delete(s.wanted, g)
			delete(s.allowed, g)
		}
	}
}

// podCreated checks that some generation of the ReplicaSet wanted the pod: the one that
// the controller last reported as observed, or a later one.
func (c *checker) podCreated(pod *v1.Pod) {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		return
	}
	s := c.sets[ref.UID]
	if s == nil {
		// Its owner is gone, which its controller may not know yet.
		c.expect(writeID{verb: "create", uid: pod.UID}, pod.Name, ref.Name, ref.UID)
		return
	}
	var allowed int32
	for _, n := range s.wanted {
		allowed = max(allowed, n)
	}
	if len(s.live) >= int(allowed) {
		c.violate(excess, "pod %s for ReplicaSet %s, which had %d and wanted %d", pod.Name, s.name, len(s.live), allowed)
	}
	s.live[pod.UID] = true
	s.created++
	c.podOwner[pod.UID] = s.uid
	c.expect(writeID{verb: "create", uid: pod.UID}, pod.Name, s.name, s.uid)
	if d := c.deployments[s.parent]; d != nil {
		c.surged(d, s, pod.Name)
	}
}

// podDeleted checks that one of those generations wanted fewer pods.
func (c *checker) podDeleted(pod *v1.Pod) {
	s := c.sets[c.podOwner[pod.UID]]
	if s == nil {
		return
	}
	allowed := s.wanted[s.generation]
	for _, n := range s.wanted {
		allowed = min(allowed, n)
	}
	if len(s.live) <= int(allowed) {
		c.violate(needless, "pod %s of ReplicaSet %s, which had %d and wanted %d", pod.Name, s.name, len(s.live), allowed)
		c.violations[len(c.violations)-1].home = s.name
	}
	delete(s.live, pod.UID)
	delete(c.podOwner, pod.UID)
	c.expect(writeID{verb: "delete", uid: pod.UID}, pod.Name, s.name, s.uid)
}

// expect records which instance was allowed to make a write for a workload: the owner at the
// write's revision. By the time the write is in the audit log the owner may have changed.
func (c *checker) expect(id writeID, object, home string, uid types.UID) {
	c.due[id] = c.claim(id, object, home, catalogue.WorkloadsRing, hashkey.OfUID(uid))
	c.join(id)
}

// allow is expect for a write that others make, too.
func (c *checker) allow(id writeID, object, home string, uid types.UID) {
	c.may[id] = c.claim(id, object, home, catalogue.WorkloadsRing, hashkey.OfUID(uid))
	c.join(id)
}

// allowIn is allow for a write in a namespace by a controller whose keys are those of namespaces.
func (c *checker) allowIn(id writeID, object, namespace string) {
	c.may[id] = c.claim(id, object, namespace, catalogue.NamespacesRing, hashkey.OfNamespace(namespace))
	c.join(id)
}

// allowOn is allow for a write by a controller of that ring whose keys are the objects' own.
func (c *checker) allowOn(ring string, id writeID, object metav1.Object) {
	c.may[id] = c.claim(id, object.GetName(), object.GetName(), ring, metav1.HashKeyOf(object))
	c.join(id)
}

func (c *checker) claim(id writeID, object, home, ring string, key int64) claim {
	return claim{writeID: id, object: object, home: home, revision: c.revision, key: key, owner: c.instances.Owner(ring, key), led: c.leads(ring)}
}

// leads says whether the leader runs a controller of that ring.
func (c *checker) leads(ring string) bool {
	for _, r := range catalogue.Rings() {
		if r.Name == ring && slices.ContainsFunc(r.Controllers, func(of catalogue.Controller) bool {
			return slices.Contains(c.led, of.Name) || slices.Contains(c.led, "*") && !slices.Contains(c.led, "-"+of.Name)
		}) {
			return true
		}
	}
	return false
}

// leaderWritten notes what the holder of the leader's Lease runs: it stands behind its name, and
// without that it may be anything.
func (c *checker) leaderWritten(holder string) {
	_, controllers, signed := strings.Cut(holder, ";controllers=")
	if !signed && holder != "" {
		controllers = "*"
	}
	c.led = strings.Split(controllers, ",")
}

// written handles a write of the audit log.
func (c *checker) written(w auditWrite) {
	if _, again := c.told[w.writeID]; again {
		// An update that changes nothing names the revision of an earlier one, and an object that
		// is being deleted may be deleted again. Either may be logged before the write itself.
		if claim, ok := c.disputed[w.writeID]; ok && c.isOwner(claim, w.process) {
			delete(c.disputed, w.writeID)
			c.judge(claim, w.process)
		}
		return
	}
	c.told[w.writeID] = w
	if w.set != "" {
		c.recent[w.set] = append(c.recent[w.set], w)
	}
	c.join(w.writeID)
}

// join judges a write once both sources have it.
func (c *checker) join(id writeID) {
	claim, ok := c.due[id]
	if !ok {
		claim, ok = c.may[id]
	}
	if !ok {
		return
	}
	w, ok := c.told[id]
	if !ok {
		return
	}
	delete(c.due, id)
	delete(c.may, id)
	// The entry in told stays, so a repeated entry of the audit log is recognized.
	if c.isOwner(claim, w.process) {
		// The write that takes the last finalizer off an object names the revision that the object had.
		delete(c.disputed, id)
		c.judge(claim, w.process)
		return
	}
	c.disputed[id] = claim
}

// isOwner reports whether process was allowed to make that write. Without a ring every one was.
func (c *checker) isOwner(claim claim, process string) bool {
	return c.processOf == nil || claim.led || claim.owner != nil && c.processOf(claim.owner.Spec.HolderIdentity) == process
}

func (c *checker) judge(claim claim, process string) {
	c.work++
	switch {
	case c.isOwner(claim, process):
	case claim.owner == nil:
		c.violate(nonOwner, "%s %s for %s at revision %d by %s; nobody owned key %s", claim.verb, claim.object, claim.home, claim.revision, process, hashkey.Format(claim.key))
	default:
		c.violate(nonOwner, "%s %s for %s at revision %d by %s; %s (%s) owned key %s", claim.verb, claim.object, claim.home, claim.revision, process, claim.owner.Name, claim.owner.Spec.HolderIdentity, hashkey.Format(claim.key))
	}
}

// conclude is called once no write is under way. It judges the writes that the audit log
// has only as failed, or also by another than the owner, and returns those that it does not have
// at all.
func (c *checker) conclude() (untold []claim) {
	for _, claim := range c.due {
		processes := c.unclear[claim.verb+" "+claim.object]
		if len(processes) == 0 {
			untold = append(untold, claim)
			continue
		}
		c.judge(claim, c.ownerAmong(claim, processes))
	}
	for id, claim := range c.disputed {
		c.judge(claim, c.ownerAmong(claim, append([]string{c.told[id].process}, c.unclear[claim.verb+" "+claim.object]...)))
	}
	clear(c.due)
	clear(c.may)
	clear(c.disputed)
	clear(c.unclear)
	return untold
}

// excuse returns the violations without a needless deletion of a ReplicaSet for each deletion of
// its pods that no API server has answered: its controller takes an error for a pod that stays and,
// if its cache does not know better yet, deletes another. Upstream's does so, too.
func excuse(violations []violation, untold []claim) []violation {
	for _, claim := range untold {
		i := slices.IndexFunc(violations, func(v violation) bool {
			return claim.verb == "delete" && v.kind == needless && v.home == claim.home
		})
		if i >= 0 {
			violations = slices.Delete(violations, i, i+1)
		}
	}
	return violations
}

// ownerAmong returns that of the processes that was allowed to make the write, or else the first.
func (c *checker) ownerAmong(claim claim, processes []string) string {
	for _, p := range processes {
		if c.isOwner(claim, p) {
			return p
		}
	}
	return processes[0]
}

// unsettled lists the ReplicaSets that do not have the pods they want, or whose status
// does not say so yet.
func (c *checker) unsettled() []string {
	var names []string
	for _, s := range c.sets {
		want := s.wanted[s.generation]
		if len(s.live) != int(want) || s.status.Replicas != want || s.observedGeneration != s.generation {
			names = append(names, fmt.Sprintf("%s: wants %d, has %d, reports %d, generation %d observed %d", s.name, want, len(s.live), s.status.Replicas, s.generation, s.observedGeneration))
		}
	}
	return names
}
