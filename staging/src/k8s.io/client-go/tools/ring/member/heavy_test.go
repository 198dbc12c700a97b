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

package member

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/client-go/tools/ring"
)

func TestOfAHeavyKeyIsWarnedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		r := newRegistry(t)
		i := newInstance(t, r, func(c *Config) { c.Describe = func(int64) string { return "namespace a" } })
		term := i.owner(ctx)
		term.machine.Apply(ring.Record{Name: "b", Revision: 11, Key: key(99), Controllers: listed, Weight: 1000})
		d := ring.Decision{Phase: shardingv1alpha1.InstanceActive, Owned: hashkey.All()}
		warnings := func() (n int) {
			i.told.lock.Lock()
			defer i.told.lock.Unlock()
			for _, line := range i.told.lines {
				if strings.HasPrefix(line, "event "+eventHeavy) {
					n++
				}
			}
			return n
		}
		for _, tc := range []struct {
			what  string
			after time.Duration
			keys  []int64
			warns bool
		}{
			{"an even load", time.Hour, make([]int64, 1000), false},
			{"a heavy key", time.Hour, make([]int64, 9000), false},
			{"that for a while", heavyAfter / 2, make([]int64, 9000), false},
			{"that for longer", heavyAfter / 2, make([]int64, 19000), true},
			{"that for ever", time.Hour, make([]int64, 19000), false},
			{"another key", time.Hour, slices.Repeat([]int64{7}, 19000), false},
			{"the other for long", heavyAfter, slices.Repeat([]int64{7}, 19000), true},
			{"less", time.Hour, nil, false},
			{"the other again", time.Hour, slices.Repeat([]int64{7}, 19000), false},
			{"the other for long again", heavyAfter, slices.Repeat([]int64{7}, 19000), true},
		} {
			time.Sleep(tc.after)
			i.sources[0].keys = tc.keys
			i.told.take()
			term.reported(ctx, d)
			if warns := warnings() > 0; warns != tc.warns {
				t.Errorf("%s: warned %v, want %v", tc.what, warns, tc.warns)
			}
		}
	})
}
