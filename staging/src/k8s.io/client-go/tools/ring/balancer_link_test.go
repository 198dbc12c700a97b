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

package ring_test

import (
	"reflect"
	"time"

	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/balance"
)

// The policy of package balance is linked into the tests of package ring, which it imports.
func init() {
	ring.ByDefault.Rate, ring.ByDefault.Least, ring.ByDefault.Free = balance.Default.Rate, balance.Default.Least, balance.Default.Free
	ring.NewBalancer = func(instance string, atOnce bool) ring.Balancer {
		config := &balance.Config{Settings: balance.Default}
		if atOnce {
			config.Settings = balance.Settings{Tolerance: 0.1, Least: 1, Free: time.Hour}
		}
		return &balancer{*balance.New(instance, func() *balance.Config { return config })}
	}
}

type balancer struct{ balance.Policy }

func (b *balancer) Copy() ring.Balancer {
	c := *b
	return &c
}

func (b *balancer) CalmAt() (at [3]int64) {
	field := reflect.ValueOf(&b.Policy).Elem().FieldByName("calmAt")
	for i := range at {
		at[i] = field.Index(i).Int()
	}
	return at
}

func (b *balancer) Share(with ring.Balancer) { b.Log = with.(*balancer).Log }

func (b *balancer) Donors(view *ring.View) []string {
	return balance.NewPlan(view, balance.Default, true, nil).Donors()
}
