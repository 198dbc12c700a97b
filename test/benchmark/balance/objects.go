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
	"log"
	"math/rand/v2"
	"strings"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/objects"
	"k8s.io/utils/ptr"
)

const (
	// spaces is how many namespaces there are. The ring of namespaces shares them evenly, so no
	// process holds much more of them than others.
	spaces = 100
	// podsPerSet is how many pods a ReplicaSet has that has any.
	podsPerSet = 40
	// writers is how many requests are under way while objects are created.
	writers = 16
	// While objects come and go there are about so many Deployments of up to mostReplicas, and so
	// many are created or deleted in a second; more are until there are that many.
	churnDeployments = 1000
	mostReplicas     = 4
	churnRate        = 5
	fillRate         = 20
)

func space(i int) string { return fmt.Sprintf("balance-%02d", i%spaces) }

// fill creates the objects before there is a controller manager, so it has nothing to create: half
// of them pods, and the others ReplicationControllers without pods. Unlike ReplicaSets, no other
// controller of the ring reads these.
func (b *bench) fill(ctx context.Context) error {
	begin := time.Now()
	for i := range spaces {
		if err := objects.Create(ctx, b.client, "", objects.Namespace(space(i))); err != nil {
			return err
		}
	}
	sets := b.objects / 2 / podsPerSet
	if err := harness.Parallel(ctx, writers, sets, func(ctx context.Context, i int) error {
		return objects.CreateWithPods(ctx, b.client, space(i), objects.ReplicaSet(fmt.Sprintf("set-%05d", i), podsPerSet, podTemplate(fmt.Sprintf("set-%05d", i))))
	}); err != nil {
		return err
	}
	log.Printf("%d ReplicaSets with %d pods created in %.0f s", sets, sets*podsPerSet, time.Since(begin).Seconds())
	return b.createControllers(ctx, b.objects-sets*(podsPerSet+1))
}

// createControllers creates n ReplicationControllers without pods.
func (b *bench) createControllers(ctx context.Context, n int) error {
	begin := time.Now()
	if err := harness.Parallel(ctx, writers, n, func(ctx context.Context, i int) error {
		name := fmt.Sprintf("controller-%05d", i)
		return objects.Create(ctx, b.client, space(i), objects.ReplicationController(name, 0, podTemplate(name)))
	}); err != nil {
		return err
	}
	log.Printf("%d ReplicationControllers created in %.0f s", n, time.Since(begin).Seconds())
	return nil
}

// podTemplate returns one for pods of about a kilobyte that nothing schedules.
func podTemplate(app string) v1.PodTemplateSpec {
	return v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}, Annotations: map[string]string{"example.com/config": strings.Repeat("x", 500)}},
		Spec: v1.PodSpec{
			AutomountServiceAccountToken: ptr.To(false), SchedulerName: "none",
			Containers: []v1.Container{{Name: "container", Image: "registry.example.com/some/team/image:v1.2.3"}},
		},
	}
}

// grow has one ReplicaSet get as many pods as all others have.
func (b *bench) grow(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	pods := int32(b.objects/2/podsPerSet-1) * podsPerSet
	const name = "set-00000"
	sets := b.client.AppsV1().ReplicaSets(space(0))
	set, err := sets.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	// The controller's own writes of the status do not conflict with this.
	scale := fmt.Appendf(nil, `[{"op": "replace", "path": "/spec/replicas", "value": %d}]`, pods)
	if set, err = sets.Patch(ctx, name, "application/json-patch+json", scale, metav1.PatchOptions{}); err != nil {
		return err
	}
	for set.Status.Replicas < pods {
		if err := harness.Sleep(ctx, time.Second); err != nil {
			return fmt.Errorf("%s has %d of %d pods: %w", name, set.Status.Replicas, pods, err)
		}
		if set, err = sets.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// deleteAll deletes all objects, and waits until they are gone.
func (b *bench) deleteAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	client, err := metadata.NewForConfig(b.cluster.RESTConfig())
	if err != nil {
		return err
	}
	background := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}
	// Who creates others comes first.
	for _, of := range []struct {
		what     string
		resource schema.GroupVersionResource
	}{
		{"Deployments", apps.SchemeGroupVersion.WithResource("deployments")},
		{"ReplicaSets", apps.SchemeGroupVersion.WithResource("replicasets")},
		{"ReplicationControllers", v1.SchemeGroupVersion.WithResource("replicationcontrollers")},
		{"pods", v1.SchemeGroupVersion.WithResource("pods")},
	} {
		api := client.Resource(of.resource)
		begin := time.Now()
		for {
			if err := harness.Parallel(ctx, writers, spaces, func(ctx context.Context, i int) error {
				// The garbage collector may be faster, and one request too short for all: the next goes
				// on.
				if err := api.Namespace(space(i)).DeleteCollection(ctx, background, metav1.ListOptions{}); err != nil && !apierrors.IsNotFound(err) {
					log.Printf("a request to delete %s ended early: %v", of.what, err)
				}
				return ctx.Err()
			}); err != nil {
				return err
			}
			left, err := api.List(ctx, metav1.ListOptions{Limit: 1})
			if err != nil {
				return err
			}
			if len(left.Items) == 0 {
				break
			}
			if err := harness.Sleep(ctx, time.Second); err != nil {
				return err
			}
		}
		log.Printf("all %s are deleted after %.0f s", of.what, time.Since(begin).Seconds())
	}
	return nil
}

// churned has the Deployments that come and go, each in the namespace of its number.
type churned struct {
	next int
	live []int
}

// comeAndGo creates and deletes Deployments at random, and kills and restarts a controller manager
// from time to time.
func (b *bench) comeAndGo(ctx context.Context) error {
	// The same in both modes.
	random := rand.New(rand.NewPCG(1, 2))
	every := min(killEvery, b.churn/2)
	begin, kills := time.Now(), 0
	for {
		since := time.Since(begin)
		if since >= b.churn {
			return nil
		}
		if int(since/every) > kills {
			name := b.managers[kills%len(b.managers)]
			kills++
			if err := b.count(ctx, name); err != nil {
				return err
			}
			if err := b.cluster.Kill(name); err != nil {
				return err
			}
			if err := b.cluster.StartAgain(ctx, name); err != nil {
				return err
			}
			h := replay(b.records.all())
			log.Printf("killed and restarted %s; before that max : mean was %.2f, with %d Deployments", name, h.loads[len(h.loads)-1].ratio, len(b.churned.live))
		}
		if err := b.churnOnce(ctx, random); err != nil {
			return err
		}
		rate := churnRate
		if b.churned.next < churnDeployments {
			rate = fillRate
		}
		if err := harness.Sleep(ctx, time.Second/time.Duration(rate)); err != nil {
			return err
		}
	}
}

// churnOnce creates or deletes a Deployment, the rather the fewer there are.
func (b *bench) churnOnce(ctx context.Context, random *rand.Rand) error {
	c := &b.churned
	if c.next >= churnDeployments && random.IntN(2*churnDeployments) < len(c.live) {
		n := random.IntN(len(c.live))
		i := c.live[n]
		c.live[n] = c.live[len(c.live)-1]
		c.live = c.live[:len(c.live)-1]
		return b.client.AppsV1().Deployments(space(i)).Delete(ctx, fmt.Sprintf("churn-%06d", i), metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
	}
	i := c.next
	c.next++
	c.live = append(c.live, i)
	name := fmt.Sprintf("churn-%06d", i)
	return objects.Create(ctx, b.client, space(i), objects.Deployment(name, random.Int32N(mostReplicas+1), podTemplate(name)))
}
