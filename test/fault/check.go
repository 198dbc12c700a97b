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
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// checker judges what happened by two independent accounts: what is in etcd after
// each revision, and who the API server's audit log says has written it. It knows
// nothing of the ring's code but the registry's meaning: an instance owns the keys
// above its predecessor's up to its own, the lowest also those above the highest.
type checker struct {
	revision  int64
	instances map[string]*instance
	sets      map[types.UID]*replicaSet
	podOwner  map[types.UID]types.UID

	// due has each write of a controller that the audit log has not told of yet,
	// told those of the audit log that etcd has not shown yet.
	due  map[writeID]claim
	told map[writeID]auditWrite
	// unclear has the processes whose writes the API server has answered with a
	// failure of its own, by verb and object: such a write may have been done.
	unclear map[string][]string
	// violations are what must not be.
	violations []violation
	// lost are the instances whose record has gone though they did not say that they
	// were leaving, left those that have deleted their record themselves.
	lost []*instance
	left map[string]bool
	// work counts the writes that were judged.
	work int
	// recent has the pods that were created and deleted for each ReplicaSet, by whom
	// and when, since the last reset.
	recent map[types.UID][]auditWrite
	// processOf names the process of the instance with that holderIdentity. It is nil
	// where there is no ring: then anybody may write.
	processOf func(holder string) string
}

func newChecker(processOf func(holder string) string) *checker {
	return &checker{
		processOf: processOf, recent: map[types.UID][]auditWrite{},
		instances: map[string]*instance{}, sets: map[types.UID]*replicaSet{}, podOwner: map[types.UID]types.UID{},
		due: map[writeID]claim{}, told: map[writeID]auditWrite{}, left: map[string]bool{}, unclear: map[string][]string{},
	}
}

// instance is a record of the registry.
type instance struct {
	name, holder string
	key, next    *int64
	donor        string
	phase        shardingv1alpha1.InstancePhase
}

// replicaSet is what is known of one, as of the present revision.
type replicaSet struct {
	uid             types.UID
	namespace, name string
	// wanted is spec.replicas by generation, from the observed one on.
	wanted                         map[int64]int32
	generation, observedGeneration int64
	statusReplicas                 int32
	live                           map[types.UID]bool
	created                        int
}

// writeID names a write: of a pod, of which there is one creation and one
// deletion, or of a ReplicaSet's status, of which each has its revision.
type writeID struct {
	verb     string
	uid      types.UID
	revision int64
}

// claim is who may have made a write.
type claim struct {
	writeID
	// object is the name of the pod or ReplicaSet that was written, set that of the
	// ReplicaSet it is for.
	object, set string
	revision    int64
	key         int64
	owner       *instance
}

// auditWrite is a write as the audit log has it.
type auditWrite struct {
	writeID
	process string
	set     types.UID
	at      time.Time
}

type violation struct {
	kind, text string
}

// The kinds of violation.
const (
	excess     = "creation in excess"
	needless   = "needless deletion"
	nonOwner   = "write by a non-owner"
	lostRecord = "record lost"
	untold     = "write that the audit log does not tell of"
	// needlessPause is a gate that shut for keys that did not change hands.
	needlessPause = "pause of a range that stays"
)

func (c *checker) violate(kind, format string, args ...any) {
	c.violations = append(c.violations, violation{kind, fmt.Sprintf("revision %d: %s: ", c.revision, kind) + fmt.Sprintf(format, args...)})
}

// ownerOf returns the instance that owns key now, or nil.
func (c *checker) ownerOf(key int64) *instance {
	var above, lowest *instance
	before := func(a, b *instance) bool {
		return b == nil || *a.key < *b.key || *a.key == *b.key && a.name < b.name
	}
	for _, i := range c.instances {
		if i.key == nil {
			continue
		}
		if before(i, lowest) {
			lowest = i
		}
		if *i.key >= key && before(i, above) {
			above = i
		}
	}
	if above != nil {
		return above
	}
	return lowest
}

// instanceWritten takes a record that was written.
func (c *checker) instanceWritten(r *shardingv1alpha1.ControllerInstance) {
	c.instances[r.Name] = &instance{name: r.Name, holder: r.Spec.HolderIdentity, key: r.Spec.HashKey, next: r.Spec.NextHashKey, donor: r.Spec.Donor, phase: r.Status.Phase}
}

// instanceGone takes the end of a record.
func (c *checker) instanceGone(name string) {
	if i := c.instances[name]; i != nil && i.phase != shardingv1alpha1.InstanceLeaving {
		c.lost = append(c.lost, i)
	}
	delete(c.instances, name)
}

func (c *checker) setWritten(rs *apps.ReplicaSet, revision int64) {
	s := c.sets[rs.UID]
	if s == nil {
		s = &replicaSet{uid: rs.UID, namespace: rs.Namespace, name: rs.Name, wanted: map[int64]int32{}, live: map[types.UID]bool{}}
		c.sets[rs.UID] = s
	} else if rs.Generation == s.generation {
		// Only a controller writes something else than the specification.
		c.expect(writeID{"status", rs.UID, revision}, rs.Name, s)
	}
	s.generation, s.observedGeneration, s.statusReplicas = rs.Generation, rs.Status.ObservedGeneration, rs.Status.Replicas
	s.wanted[rs.Generation] = *rs.Spec.Replicas
	for g := range s.wanted {
		if g < s.observedGeneration {
			delete(s.wanted, g)
		}
	}
}

// podCreated checks that the pod was wanted by some generation of its ReplicaSet
// that the controller may have looked at: the one that it last said it had
// observed, or any since.
func (c *checker) podCreated(pod *v1.Pod) {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil || c.sets[ref.UID] == nil {
		return
	}
	s := c.sets[ref.UID]
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
	c.expect(writeID{verb: "create", uid: pod.UID}, pod.Name, s)
}

// podDeleted checks that some such generation wanted fewer pods.
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
	}
	delete(s.live, pod.UID)
	delete(c.podOwner, pod.UID)
	c.expect(writeID{verb: "delete", uid: pod.UID}, pod.Name, s)
}

// expect takes note of who may have made a write. A writer may no longer be the
// owner when the write is in the log, so it is the owner before that counts: no
// change of the registry shares a revision with it.
func (c *checker) expect(id writeID, object string, s *replicaSet) {
	key := metav1.HashKeyOf(&apps.ReplicaSet{ObjectMeta: metav1.ObjectMeta{UID: s.uid}})
	c.due[id] = claim{writeID: id, object: object, set: s.name, revision: c.revision, key: key, owner: c.ownerOf(key)}
	c.join(id)
}

// written takes a write from the audit log.
func (c *checker) written(w auditWrite) {
	if _, again := c.told[w.writeID]; again {
		// An update that changes nothing names the revision of an earlier one.
		return
	}
	c.told[w.writeID] = w
	if w.verb != "status" {
		c.recent[w.set] = append(c.recent[w.set], w)
	}
	c.join(w.writeID)
}

// join judges a write that both accounts tell of.
func (c *checker) join(id writeID) {
	claim, ok := c.due[id]
	if !ok {
		return
	}
	w, ok := c.told[id]
	if !ok {
		return
	}
	delete(c.due, id)
	// The audit log's entry stays, so that a later one of the same name is known.
	c.judge(claim, w.process)
}

func (c *checker) judge(claim claim, process string) {
	c.work++
	if c.processOf == nil {
		return
	}
	switch {
	case claim.owner == nil:
		c.violate(nonOwner, "%s %s for ReplicaSet %s at revision %d by %s; nobody owned key %#x", claim.verb, claim.object, claim.set, claim.revision, process, claim.key)
	case c.processOf(claim.owner.holder) != process:
		c.violate(nonOwner, "%s %s for ReplicaSet %s at revision %d by %s; %s (%s) owned key %#x", claim.verb, claim.object, claim.set, claim.revision, process, claim.owner.name, claim.owner.holder, claim.key)
	}
}

// conclude judges the writes that the audit log only tells of as failed, once
// nothing is under way any more, and returns those that it does not tell of at all.
func (c *checker) conclude() (untold []claim) {
	for _, claim := range c.due {
		processes := c.unclear[claim.verb+" "+claim.object]
		if len(processes) == 0 {
			untold = append(untold, claim)
			continue
		}
		process := processes[0]
		for _, p := range processes {
			if claim.owner != nil && c.processOf != nil && c.processOf(claim.owner.holder) == p {
				process = p
			}
		}
		c.judge(claim, process)
	}
	clear(c.due)
	clear(c.unclear)
	return untold
}

// unsettled says which ReplicaSets do not have what they want, or whose status
// does not say so yet.
func (c *checker) unsettled() []string {
	var names []string
	for _, s := range c.sets {
		want := s.wanted[s.generation]
		if len(s.live) != int(want) || s.statusReplicas != want || s.observedGeneration != s.generation {
			names = append(names, fmt.Sprintf("%s: wants %d, has %d, reports %d, generation %d observed %d", s.name, want, len(s.live), s.statusReplicas, s.generation, s.observedGeneration))
		}
	}
	return names
}
