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
	"maps"
	"slices"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// deployment is the state of a Deployment at the present revision.
type deployment struct {
	uid  types.UID
	name string
	// allowed has the most pods that each generation allows, from the observed generation on.
	allowed                                 map[int64]int
	generation, observedGeneration          int64
	wanted, updatedReplicas, statusReplicas int32
	// template is the present one.
	template v1.PodTemplateSpec
}

// deploymentWritten handles a write of a Deployment.
func (c *checker) deploymentWritten(d *apps.Deployment, revision int64) error {
	s := c.deployments[d.UID]
	if s == nil {
		s = &deployment{uid: d.UID, name: d.Name, allowed: map[int64]int{}}
		c.deployments[d.UID] = s
	} else if d.Generation == s.generation {
		// Only a controller writes anything but the specification.
		c.expect(writeID{"status", d.UID, revision}, d.Name, d.Name, d.UID)
	}
	surge, err := intstr.GetScaledValueFromIntOrPercent(d.Spec.Strategy.RollingUpdate.MaxSurge, int(*d.Spec.Replicas), true)
	if err != nil {
		return err
	}
	s.generation, s.observedGeneration, s.wanted = d.Generation, d.Status.ObservedGeneration, *d.Spec.Replicas
	s.updatedReplicas, s.statusReplicas, s.template = d.Status.UpdatedReplicas, d.Status.Replicas, d.Spec.Template
	s.allowed[d.Generation] = int(*d.Spec.Replicas) + surge
	for g := range s.allowed {
		if g < s.observedGeneration {
			delete(s.allowed, g)
		}
	}
	return nil
}

// rolledOut checks a write of a ReplicaSet that a Deployment owns. before is nil if it is new.
func (c *checker) rolledOut(d *deployment, before, now *replicaSet, revision int64) {
	if before != nil {
		if !apiequality.Semantic.DeepEqual(before.status, now.status) {
			c.expect(writeID{"status", now.uid, revision}, now.name, now.name, now.uid)
		} else {
			c.expect(writeID{"update", now.uid, revision}, now.name, now.name, d.uid)
		}
		return
	}
	c.expect(writeID{verb: "create", uid: now.uid}, now.name, now.name, d.uid)
	for _, other := range c.sets {
		if other.parent == d.uid && other.uid != now.uid && apiequality.Semantic.DeepEqual(other.template, now.template) {
			c.violate(excess, "ReplicaSet %s for Deployment %s, which had %s with the same template", now.name, d.name, other.name)
		}
	}
}

// setDeleted handles the deletion of a ReplicaSet.
func (c *checker) setDeleted(rs *apps.ReplicaSet) {
	s := c.sets[rs.UID]
	if s == nil {
		return
	}
	delete(c.sets, rs.UID)
	if d := c.deployments[s.parent]; d != nil {
		c.expect(writeID{verb: "delete", uid: rs.UID}, rs.Name, rs.Name, d.uid)
		if len(s.live) > 0 {
			c.violate(needless, "ReplicaSet %s of Deployment %s, which had %d pods", rs.Name, d.name, len(s.live))
		}
	}
}

// most returns the most pods that some generation allows: the one that the controller of the
// Deployment last reported as observed, or a later one.
func (d *deployment) most() int {
	most := 0
	for _, n := range d.allowed {
		most = max(most, n)
	}
	return most
}

// surged checks that a Deployment with a new pod of that ReplicaSet has no more than it may have
// now, or might have when a generation was written that the ReplicaSet may still go by: one whose
// Deployment is scaled down goes on creating pods until it hears of that. What its other
// ReplicaSets are about to delete does not count: a rollout counts what they want, in stock, too.
func (c *checker) surged(d *deployment, by *replicaSet, pod string) {
	live := 0
	for _, s := range c.sets {
		switch {
		case s.parent != d.uid:
		case s == by:
			live += len(s.live)
		default:
			live += min(len(s.live), int(slices.Max(slices.Collect(maps.Values(s.wanted)))))
		}
	}
	allowed := d.most()
	for _, n := range by.allowed {
		allowed = max(allowed, n)
	}
	if live > allowed {
		c.violate(surge, "pod %s for Deployment %s, which has %d then and may have %d", pod, d.name, live, allowed)
	}
}

// unrolled lists the Deployments whose rollout is not complete.
func (c *checker) unrolled() []string {
	var names []string
	for _, d := range c.deployments {
		if d.observedGeneration != d.generation || d.updatedReplicas != d.wanted || d.statusReplicas != d.wanted {
			names = append(names, fmt.Sprintf("%s: wants %d, reports %d updated of %d, generation %d observed %d", d.name, d.wanted, d.updatedReplicas, d.statusReplicas, d.generation, d.observedGeneration))
		}
	}
	return names
}

// templateOf returns the template of a ReplicaSet without the label that its Deployment adds.
func templateOf(rs *apps.ReplicaSet) v1.PodTemplateSpec {
	template := *rs.Spec.Template.DeepCopy()
	delete(template.Labels, apps.DefaultDeploymentUniqueLabelKey)
	return template
}

// parentOf returns the UID of the controller of a ReplicaSet.
func parentOf(rs *apps.ReplicaSet) types.UID {
	if owner := metav1.GetControllerOfNoCopy(rs); owner != nil {
		return owner.UID
	}
	return ""
}
