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
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	apps "k8s.io/api/apps/v1"
	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
)

// What a large cluster has beside pods.
const (
	mixedSets       = 20000
	mixedNodes      = 5000
	mixedSecrets    = 20000
	mixedConfigMaps = 20000
	mixedLeases     = 10000
)

// mix creates objects of many kinds, and measures what the process that leads has used then.
func (b *benchmark) mix(ctx context.Context) (u usage, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*soon)
	defer cancel()
	c, err := b.follow(ctx)
	if err != nil {
		return u, err
	}
	if err := b.createSpaces(ctx); err != nil {
		return u, err
	}
	data := strings.Repeat("x", 1000)
	options := metav1.CreateOptions{}
	for _, kind := range []struct {
		n      int
		create func(name, namespace string) error
	}{
		{mixedNodes, func(name, _ string) error {
			_, err := b.client.CoreV1().Nodes().Create(ctx, newNode(name), options)
			return err
		}},
		{mixedLeases, func(name, _ string) error {
			now := metav1.NowMicro()
			_, err := b.client.CoordinationV1().Leases("kube-node-lease").Create(ctx, &coordination.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec:       coordination.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: ptr.To[int32](40), RenewTime: &now},
			}, options)
			return err
		}},
		{mixedSecrets, func(name, namespace string) error {
			_, err := b.client.CoreV1().Secrets(namespace).Create(ctx, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"data": data}}, options)
			return err
		}},
		{mixedConfigMaps, func(name, namespace string) error {
			_, err := b.client.CoreV1().ConfigMaps(namespace).Create(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"data": data}}, options)
			return err
		}},
		{mixedSets, func(name, namespace string) error {
			spec := newDeployment(name).Spec
			_, err := b.client.AppsV1().ReplicaSets(namespace).Create(ctx, &apps.ReplicaSet{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec:       apps.ReplicaSetSpec{Replicas: ptr.To[int32](1), Selector: spec.Selector, Template: spec.Template},
			}, options)
			return err
		}},
	} {
		group, _ := errgroup.WithContext(ctx)
		group.SetLimit(creators)
		for i := range kind.n {
			group.Go(func() error { return kind.create(nameOf(i), evenly(i)) })
		}
		if err := group.Wait(); err != nil {
			return u, err
		}
	}
	if _, err := c.until(ctx, mixedSets); err != nil {
		return u, err
	}
	if err := b.still(ctx); err != nil {
		return u, err
	}
	return b.use(ctx, b.managers[0])
}

// still waits until the process that leads receives next to nothing any more.
func (b *benchmark) still(ctx context.Context) error {
	const period, little = 5 * time.Second, 64 << 10
	last := int64(-little)
	return wait.PollUntilContextCancel(ctx, period, true, func(context.Context) (bool, error) {
		received := b.managers[0].proxy.Received()
		defer func() { last = received }()
		return received-last < little, nil
	})
}

// newNode returns a Node of about 7 KiB, as a kubelet would report it.
func newNode(name string) *v1.Node {
	size := v1.ResourceList{v1.ResourceCPU: resource.MustParse("64"), v1.ResourceMemory: resource.MustParse("256Gi"), v1.ResourcePods: resource.MustParse("110")}
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name, v1.LabelOSStable: "linux", v1.LabelArchStable: "amd64"}},
		Status: v1.NodeStatus{
			Capacity: size, Allocatable: size,
			Addresses: []v1.NodeAddress{{Type: v1.NodeHostName, Address: name}},
			NodeInfo:  v1.NodeSystemInfo{KernelVersion: "6.1.0-example", OSImage: "Example OS 12", ContainerRuntimeVersion: "containerd://2.1.0", KubeletVersion: "v1.37.1"},
		},
	}
	for _, condition := range []v1.NodeConditionType{v1.NodeReady, v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure} {
		status := v1.ConditionFalse
		if condition == v1.NodeReady {
			status = v1.ConditionTrue
		}
		node.Status.Conditions = append(node.Status.Conditions, v1.NodeCondition{
			Type: condition, Status: status, Reason: "AsReported", Message: "what a kubelet says of " + string(condition),
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		})
	}
	for i := range 50 {
		image := fmt.Sprintf("registry.example.com/some/team/image-%02d", i)
		node.Status.Images = append(node.Status.Images, v1.ContainerImage{Names: []string{image + "@sha256:" + strings.Repeat("0f", 32), image + ":v1.2.3"}, SizeBytes: 100 << 20})
	}
	return node
}
