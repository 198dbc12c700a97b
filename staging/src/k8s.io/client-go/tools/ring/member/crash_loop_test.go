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
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/util/sets"
)

// A process crashes ten seconds after it has got a range, and is back ten seconds later. Each
// time its range has no worker until its lease has ended. Donors let it rest longer each time,
// and what is not its own does not suffer.
func TestACrashLoopTakesLittleDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const (
			tick    = 100 * time.Millisecond
			pause   = 10 * time.Second
			sampled = 64
		)
		r := newRegistry(t)
		var dead sets.Set[string]
		r.intercept(func(_ context.Context, q request) error {
			if q.identity != nil && dead.Has(q.identity.Name) {
				return errors.New("crashed")
			}
			return nil
		})
		var up []*instance
		for range 3 {
			i := newInstance(t, r)
			i.start()
			eventually(t, "it has a range", func() bool { return !i.gate.serving().Empty() })
			up = append(up, i)
		}

		var looping *instance
		var stop context.CancelFunc
		var worksSince, crashed time.Time
		var lost hashkey.Ranges
		crashes, own, others := 0, 0, 0
		hour := time.Now().Add(time.Hour)
		for ; time.Now().Before(hour); time.Sleep(tick) {
			synctest.Wait()
			switch {
			case looping == nil && time.Since(crashed) >= pause:
				looping = newInstance(t, r, func(cfg *Config) { cfg.HolderIdentity = fmt.Sprintf("host:1_%d", crashes) })
				stop, _ = looping.start()
				up, worksSince = append(up, looping), time.Time{}
			case looping != nil && looping.gate.serving().Empty():
			case looping != nil && worksSince.IsZero():
				worksSince = time.Now()
			case looping != nil && time.Since(worksSince) >= pause:
				lost, crashed = looping.gate.serving(), time.Now()
				self, _ := looping.gate.identity()
				dead = dead.Clone().Insert(self.Name)
				stop()
				up = slices.DeleteFunc(up, func(i *instance) bool { return i == looping })
				looping = nil
				crashes++
			}
			for n := range sampled {
				key := int64(uint64(n) << (63 - 6))
				switch {
				case slices.ContainsFunc(up, func(i *instance) bool { return i.door().Serves(key) && time.Now().Before(i.gate.Deadline()) }):
				case lost.Contains(key):
					own++
				default:
					others++
				}
			}
		}
		total := float64(time.Hour/tick) * sampled
		t.Logf("in an hour %d crashes; of all keys and times its ranges had no worker in %.3f %%, others in %.3f %%", crashes, 100*float64(own)/total, 100*float64(others)/total)
		if crashes < 5 || crashes > 30 {
			t.Errorf("%d crashes in an hour, want it to rest longer each time", crashes)
		}
		if float64(others)/total > 0.001 {
			t.Errorf("ranges of others had no worker in %.3f %% of the time, want 0.1 %% at most", 100*float64(others)/total)
		}
	})
}
