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
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/test/benchmark/measure"
	"k8s.io/kubernetes/test/harness"
)

// pollPeriod is between two looks at what is waited for.
const pollPeriod = 100 * time.Millisecond

// start starts n controller managers on rings, and waits until they share them; or stock's one for
// 0. They are there before the pods, so each begins with a part of nothing. With apart there is one
// more, the first, which leads and is on no ring.
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
			args = append(args, "--controllers=*,-"+strings.Join(catalogue.ControllerNames(), ",-"))
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
	return harness.Await(ctx, soon, pollPeriod, fmt.Sprintf("rings of %d", n), func(ctx context.Context) error {
		if _, err := b.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{}); err != nil || n == 0 {
			return err
		}
		for _, in := range catalogue.Rings() {
			if err := harness.Settled(ctx, b.client, in.Name, n); err != nil {
				return err
			}
		}
		return nil
	})
}
