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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/controller/daemon/util"
)

// daemonSet is the state of a DaemonSet at the present revision.
type daemonSet struct {
	uid                            types.UID
	name                           string
	generation, observedGeneration int64
	// changedAt is when its template was written last.
	changedAt time.Time
	status    apps.DaemonSetStatus
	// live has the Node of each live pod.
	live map[types.UID]string
}

// node is a Node, whether it is there or not.
type node struct {
	// fits says whether it is there and daemon pods may run on it, and unfitAt is when it was
	// last seen not to be so.
	fits    bool
	unfitAt time.Time
}

// daemonLag is how long after a change the last pod may be deleted because of it.
const daemonLag = 2 * time.Minute

// daemonSetWritten handles a write of a DaemonSet.
func (c *checker) daemonSetWritten(now *apps.DaemonSet, revision int64) {
	d := c.daemonSets[now.UID]
	if d == nil {
		d = &daemonSet{uid: now.UID, name: now.Name, live: map[types.UID]string{}}
		c.daemonSets[now.UID] = d
	} else if d.generation == now.Generation {
		c.allow(writeID{"write", now.UID, revision}, now.Name, now.Name, now.UID)
	}
	if d.generation != now.Generation {
		d.changedAt = time.Now()
	}
	d.generation, d.observedGeneration, d.status = now.Generation, now.Status.ObservedGeneration, now.Status
}

// nodeWritten handles a write of a Node, or its deletion.
func (c *checker) nodeWritten(now *v1.Node, deleted bool) {
	n := c.nodes[now.Name]
	if n == nil {
		n = &node{}
		c.nodes[now.Name] = n
	}
	if n.fits = !deleted && now.Labels[daemonLabel] == daemonsFit; !n.fits {
		n.unfitAt = time.Now()
	} else if n.unfitAt.IsZero() {
		// Nobody has seen it before.
		n.unfitAt = time.Now()
	}
}

// daemonPodWritten checks a write of a pod that belongs to a DaemonSet.
func (c *checker) daemonPodWritten(d *daemonSet, pod *v1.Pod) error {
	if _, known := d.live[pod.UID]; known {
		return nil
	}
	on, err := util.GetTargetNodeName(pod)
	if err != nil {
		return err
	}
	for _, other := range d.live {
		if other == on {
			c.violate(excess, "pod %s for DaemonSet %s, which had one on Node %s", pod.Name, d.name, on)
		}
	}
	d.live[pod.UID] = on
	c.expect(writeID{verb: "create", uid: pod.UID}, pod.Name, d.name, d.uid)
	return nil
}

// daemonPodGone checks a deletion of a pod that belongs to a DaemonSet: its template has just
// changed, or its Node has just been unfit for it.
func (c *checker) daemonPodGone(d *daemonSet, pod *v1.Pod) {
	on, ok := d.live[pod.UID]
	if !ok {
		return
	}
	since := time.Now().Add(-daemonLag)
	if n := c.nodes[on]; d.changedAt.Before(since) && n != nil && n.fits && n.unfitAt.Before(since) {
		c.violate(needless, "pod %s of DaemonSet %s, whose template and Node %s have not changed", pod.Name, d.name, on)
	}
	delete(d.live, pod.UID)
	// A pod also goes with its Node.
	c.allow(writeID{verb: "delete", uid: pod.UID}, pod.Name, d.name, d.uid)
}

// undaemoned lists the DaemonSets that do not have one pod on each Node that fits, or whose status
// does not say so.
func (c *checker) undaemoned() []string {
	fit := 0
	for _, n := range c.nodes {
		if n.fits {
			fit++
		}
	}
	var names []string
	for _, d := range c.daemonSets {
		s := d.status
		if len(d.live) != fit || int(s.DesiredNumberScheduled) != fit || int(s.UpdatedNumberScheduled) != fit || d.observedGeneration != d.generation {
			names = append(names, fmt.Sprintf("DaemonSet %s: %d pods on %d Nodes, reports %d of %d updated, generation %d observed %d",
				d.name, len(d.live), fit, s.UpdatedNumberScheduled, s.DesiredNumberScheduled, d.generation, d.observedGeneration))
		}
	}
	return names
}
