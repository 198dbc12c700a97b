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
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/test/harness/audit"
)

// story is what has come of one run.
type story struct {
	took []took
	// objects are those at the end, each with what of it controllers decide about.
	objects map[string]string
	// writes has how often each kind of write was made.
	writes map[string]int
	// stopped has how long each controller did nothing after the leader was killed.
	stopped map[string]time.Duration
}

type took struct {
	chapter string
	time    time.Duration
}

// objects returns what is there at the end, by resource and name.
func (r *run) objects(ctx context.Context) (map[string]string, error) {
	all := map[string]string{}
	for _, namespace := range []string{ownersNamespace, volumesNamespace, nodesNamespace} {
		pods, err := r.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			what := []string{pod.Spec.NodeName, string(pod.Status.Phase), fmt.Sprintf("going %v, owned by %d, %d volumes, IP %s", pod.DeletionTimestamp != nil, len(pod.OwnerReferences), len(pod.Spec.Volumes), pod.Status.PodIP)}
			for _, condition := range pod.Status.Conditions {
				what = append(what, fmt.Sprintf("%s %s", condition.Type, condition.Status))
			}
			all["pods "+namespace+"/"+pod.Name] = strings.Join(what, ", ")
		}
		maps, err := r.client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, m := range maps.Items {
			all["configmaps "+namespace+"/"+m.Name] = fmt.Sprintf("owned by %d, finalizers %v", len(m.OwnerReferences), m.Finalizers)
		}
		// What a quota says follows a little later.
		var used string
		if err := r.await(ctx, "a quota", func(ctx context.Context) (bool, error) {
			quota, err := r.client.CoreV1().ResourceQuotas(namespace).Get(ctx, "quota", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			used = ""
			for _, name := range []v1.ResourceName{v1.ResourcePods, v1.ResourceRequestsCPU, v1.ResourceLimitsMemory, "count/configmaps"} {
				q := quota.Status.Used[name]
				used += fmt.Sprintf("%s %s ", name, q.String())
			}
			counted := quota.Status.Used[v1.ResourcePods]
			return counted.Value() == int64(len(pods.Items)), nil
		}); err != nil {
			return nil, err
		}
		all["quota "+namespace] = used
	}
	nodes, err := r.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, node := range nodes.Items {
		var taints []string
		for _, taint := range node.Spec.Taints {
			taints = append(taints, taint.Key)
		}
		all["nodes "+node.Name] = fmt.Sprintf("taints %v, %d conditions, %d volumes attached, %d images", taints, len(node.Status.Conditions), len(node.Status.VolumesAttached), len(node.Status.Images))
	}
	volumes, err := r.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, volume := range volumes.Items {
		all["persistentvolumes "+volume.Name] = fmt.Sprintf("%s, finalizers %v", volume.Status.Phase, volume.Finalizers)
	}
	attachments, err := r.client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, attachment := range attachments.Items {
		all["volumeattachments "+*attachment.Spec.Source.PersistentVolumeName] = attachment.Spec.NodeName
	}
	return all, nil
}

// auditPolicy records the writes of those controllers that the story is about.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users:
  - system:serviceaccount:kube-system:attachdetach-controller
  - system:serviceaccount:kube-system:generic-garbage-collector
  - system:serviceaccount:kube-system:node-controller
  - system:serviceaccount:kube-system:persistent-volume-binder
  - system:serviceaccount:kube-system:pod-garbage-collector
  - system:serviceaccount:kube-system:resourcequota-controller
  verbs: [create, update, patch, delete]
- level: None
`

// writes counts the writes in an audit log that have succeeded, by who made them to what. Events
// are not counted: their number depends on the rates of those that send them.
func writes(log string) (map[string]int, error) {
	all := map[string]int{}
	return all, audit.ReadAll(log, func(e audit.Event) error {
		if e.ResponseStatus.Code < 300 && e.ObjectRef.Resource != "events" {
			all[e.Controller()+" | "+e.Verb+" "+e.What()]++
		}
		return nil
	})
}

// byTime are writes whose number depends on what comes together in one, or is written again while a
// cache lags: the list of volumes of a node, its taints, the usage of a quota.
var byTime = []string{"patch nodes", "patch nodes/status", "update resourcequotas/status"}

// render returns what both have come to as Markdown, and how many differences there are.
func render(o options, stock, ours story) (report string, differences int) {
	var p strings.Builder
	fmt.Fprintf(&p, `# Controllers behind the leader's lease, beside stock

Generated by `+"`make leader`"+`. Do not edit.

%d owners are deleted, with pods or ConfigMaps that they own; volumes are attached and
detached %d times; %d of %d nodes fail, and are deleted. Stock is the same binaries with the
feature gate `+"`ControllerRing`"+` off.

| writes by | write | stock | ours |
| --- | --- | ---: | ---: |
`, o.owners, o.cycles, o.failed, 2*o.failed+volumeNodes)
	for _, kind := range keys(stock.writes, ours.writes) {
		note := ""
		if stock.writes[kind] != ours.writes[kind] {
			if slices.ContainsFunc(byTime, func(write string) bool { return strings.HasSuffix(kind, write) }) {
				note = ", by time"
			} else {
				note = ", **differs**"
				differences++
			}
		}
		fmt.Fprintf(&p, "| %s | %d | %d%s |\n", kind, stock.writes[kind], ours.writes[kind], note)
	}
	var differing []string
	all := keys(stock.objects, ours.objects)
	for _, object := range all {
		if stock.objects[object] != ours.objects[object] {
			differing = append(differing, fmt.Sprintf("- %s: in stock %q, in ours %q\n", object, stock.objects[object], ours.objects[object]))
		}
	}
	differences += len(differing)
	fmt.Fprintf(&p, "\nAt the end there are %d objects, of which %d differ.\n\n", len(all), len(differing))
	p.WriteString(strings.Join(differing[:min(20, len(differing))], ""))
	p.WriteString("| chapter | stock | ours |\n| --- | ---: | ---: |\n")
	for i := range stock.took {
		fmt.Fprintf(&p, "| %s | %.0f s | %.0f s |\n", stock.took[i].chapter, stock.took[i].time.Seconds(), ours.took[i].time.Seconds())
	}
	p.WriteString("\nThen the process of the leader is killed, of three. The longest time until something came of what\nwas asked for after that:\n\n| controller | stock | ours |\n| --- | ---: | ---: |\n")
	for _, controller := range keys(stock.stopped, ours.stopped) {
		fmt.Fprintf(&p, "| %s | %.1f s | %.1f s |\n", controller, stock.stopped[controller].Seconds(), ours.stopped[controller].Seconds())
	}
	return p.String(), differences
}

// keys returns the keys of two maps, sorted.
func keys[V any](a, b map[string]V) (all []string) {
	for _, m := range []map[string]V{a, b} {
		for key := range m {
			all = append(all, key)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
