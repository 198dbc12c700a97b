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
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/pkg/ringtable"
	"k8s.io/kubernetes/test/benchmark/measure"
)

// pollPeriod is between two looks at what is waited for.
const pollPeriod = 100 * time.Millisecond

// start starts n controller managers on rings, and waits until they share them; or stock's one for 0.
// They are there before the pods, so each begins with a part of nothing. With apart there is one more,
// the first, which leads and is on no ring.
func (b *benchmark) start(ctx context.Context, n int, apart bool) error {
	b.managers = nil
	alone := 0
	if apart {
		alone = 1
	}
	for i := range max(n+alone, 1) {
		proxy, err := measure.NewProxy(b.cluster)
		if err != nil {
			return err
		}
		args := []string{"--master=" + proxy.URL()}
		if i < alone {
			controllers := "*"
			for _, ring := range catalogue.Rings() {
				controllers += ",-" + strings.Join(ring.ControllerNames(), ",-")
			}
			args = append(args, "--controllers="+controllers)
		}
		name, err := b.cluster.AddControllerManager(ctx, args...)
		if err != nil {
			return err
		}
		pid, err := b.cluster.PID(name)
		if err != nil {
			return err
		}
		b.managers = append(b.managers, &manager{name, pid, proxy})
		// The first leads.
		if err := b.settle(ctx, min(n, len(b.managers)-alone)); err != nil {
			return err
		}
	}
	log.Printf("%d controller managers, rings of %d", len(b.managers), n)
	return nil
}

// settle waits until each ring has n Active instances that cover all keys, and the namespace its
// service account, so that somebody leads.
func (b *benchmark) settle(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	var left error
	err := wait.PollUntilContextCancel(ctx, pollPeriod, true, func(ctx context.Context) (bool, error) {
		if _, left = b.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{}); left != nil || n == 0 {
			return left == nil, nil
		}
		for _, in := range catalogue.Rings() {
			var ring *ringtable.Ring
			if ring, left = ringtable.Get(ctx, b.client, in.Name); left != nil {
				return false, nil
			}
			if len(ring.Instances) != n || ring.Active() != n || !ring.Gap.Empty() {
				left = fmt.Errorf("%s: %d instances, %d Active, nobody works on %s", in.Name, len(ring.Instances), ring.Active(), ring.Gap)
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for rings of %d: %w", n, errors.Join(err, left))
	}
	return nil
}
