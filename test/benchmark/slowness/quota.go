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
	"errors"
	"fmt"
	"log"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/objects"
)

const (
	// quotaSets ReplicaSets want quotaPods pods each: as many as the quota allows.
	quotaSets, quotaPods = 8, 100
	// quotaBegun is how many pods exist when the first stall begins.
	quotaBegun = 40
	// quotaRest is how long after the last stall it is counted, and betweenStalls how long it goes on
	// between two.
	quotaRest, betweenStalls = 30 * time.Second, 2 * time.Second
	quotaName                = "all"
)

// charged is what stalls during creations have left behind in a namespace.
type charged struct {
	pods   int
	used   int64
	events int32
	counts
}

// quotaCell is what one kind of stalls did to both sides.
type quotaCell struct {
	what        string
	lasts       time.Duration
	times       int
	ours, stock charged
}

// measureQuotas stops etcd or the API server while pods are created under a quota.
func measureQuotas(ctx context.Context, b *benchmark) (string, error) {
	all, err := b.start(ctx, "quota", b.settings(), false, true)
	if err != nil {
		return "", err
	}
	defer all.end()
	if err := all.each(ctx, func(ctx context.Context, s *side) error { return s.addAll(ctx, managers, false) }); err != nil {
		return "", err
	}
	var cells []quotaCell
	for _, what := range []string{etcdName, apiServerName} {
		for _, lasts := range b.stalls {
			for _, times := range []int{1, 3} {
				c := quotaCell{what: what, lasts: lasts, times: times}
				err := all.each(ctx, func(ctx context.Context, s *side) error {
					of := &c.ours
					if s.stock {
						of = &c.stock
					}
					return s.stall(ctx, len(cells), c, of)
				})
				if err != nil {
					return renderQuotas(cells), err
				}
				log.Printf("quota: %+v", c)
				cells = append(cells, c)
			}
		}
	}
	return renderQuotas(cells), nil
}

// stall has a process stopped while pods are created in a namespace of their own, and counts what
// is there a while later.
func (s *side) stall(ctx context.Context, number int, c quotaCell, of *charged) error {
	namespace := fmt.Sprintf("quota-%d", number)
	core := s.client.CoreV1()
	if err := objects.Create(ctx, s.client, "", objects.Namespace(namespace)); err != nil {
		return err
	}
	quota := &v1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: quotaName}, Spec: v1.ResourceQuotaSpec{
		Hard: v1.ResourceList{v1.ResourcePods: *resource.NewQuantity(quotaSets*quotaPods, resource.DecimalSI)},
	}}
	if err := objects.Create(ctx, s.client, namespace, quota); err != nil {
		return err
	}
	if err := s.until(ctx, "a quota that counts", func(ctx context.Context) error {
		quota, err := core.ResourceQuotas(namespace).Get(ctx, quotaName, metav1.GetOptions{})
		if err == nil && len(quota.Status.Hard) == 0 {
			return errors.New("it counts nothing")
		}
		return err
	}); err != nil {
		return err
	}
	if err := s.cluster.AwaitServiceAccount(ctx, namespace); err != nil {
		return err
	}
	before := s.now()
	earlier, err := s.pods(ctx)
	if err != nil {
		return err
	}
	for i := range quotaSets {
		if err := objects.Create(ctx, s.client, namespace, newSet(i, quotaPods)); err != nil {
			return err
		}
	}
	if err := s.until(ctx, "the first pods", func(ctx context.Context) error {
		pods, err := s.pods(ctx)
		if err == nil && pods < earlier+quotaBegun {
			return fmt.Errorf("there are %d", pods-earlier)
		}
		return err
	}); err != nil {
		return err
	}
	for i := range c.times {
		if i > 0 {
			if err := harness.Sleep(ctx, betweenStalls); err != nil {
				return err
			}
		}
		if err := s.cluster.Signal(c.what, syscall.SIGSTOP); err != nil {
			return err
		}
		paused := harness.Sleep(ctx, c.lasts)
		if err := s.cluster.Signal(c.what, syscall.SIGCONT); err != nil {
			return err
		}
		if paused != nil {
			return paused
		}
	}
	if err := harness.Sleep(ctx, quotaRest); err != nil {
		return err
	}
	of.counts = s.since(before)
	return s.countCharged(ctx, namespace, of)
}

// countCharged counts pods, what is charged for them, and events that say that one could not be
// created.
func (s *side) countCharged(ctx context.Context, namespace string, of *charged) error {
	core := s.client.CoreV1()
	pods, err := core.Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	of.pods = len(pods.Items)
	quota, err := core.ResourceQuotas(namespace).Get(ctx, quotaName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	used := quota.Status.Used[v1.ResourcePods]
	of.used = used.Value()
	events, err := core.Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=FailedCreate"})
	if err != nil {
		return err
	}
	for _, e := range events.Items {
		of.events += max(e.Count, 1)
	}
	return nil
}

// until waits until nothing is left.
func (s *side) until(ctx context.Context, what string, left func(context.Context) error) error {
	return harness.Await(ctx, soon, 10*time.Millisecond, s.name+": "+what, left)
}

func renderQuotas(cells []quotaCell) string {
	var p strings.Builder
	fmt.Fprintf(&p, `
## Stalls while pods are created under a quota

%d ReplicaSets of %d pods in a namespace with a quota of %d pods. A process is stopped once %d pods
exist, and, of three times, again %v after it goes on. %v after the last stall there are so many
pods, so much is charged, and so many events say FailedCreate.

| stopped | for | times | ours: pods | charged | events | records lost | stock: pods | charged | events | leaders lost |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
`, quotaSets, quotaPods, quotaSets*quotaPods, quotaBegun, betweenStalls, quotaRest)
	for _, c := range cells {
		fmt.Fprintf(&p, "| %s | %v | %d | %d | %d | %d | %d | %d | %d | %d | %d |\n", c.what, c.lasts, c.times,
			c.ours.pods, c.ours.used, c.ours.events, c.ours.lost, c.stock.pods, c.stock.used, c.stock.events, c.stock.leaders)
	}
	return p.String()
}
