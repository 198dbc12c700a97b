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

package app

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// However many changes there are, quotas are counted again soon after the first, and until a minute
// after the last.
func TestQuotasAreCountedAgainAfterChanges(t *testing.T) {
	for name, tc := range map[string]struct{ changes, want []time.Duration }{
		"none": {nil, nil},
		"one":  {[]time.Duration{0}, []time.Duration{2, 10, 30, 60}},
		"many": {[]time.Duration{0, 1, 2, 3, 4}, []time.Duration{2, 4, 6, 14, 34, 64}},
		"late": {[]time.Duration{0, 40}, []time.Duration{2, 10, 30, 42, 50, 70, 100}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				began := time.Now()
				changed := make(chan struct{})
				var got []time.Duration
				go recountAfterChanges(ctx, changed, func(context.Context) {
					got = append(got, time.Since(began)/time.Second)
				})
				for _, at := range tc.changes {
					time.Sleep(time.Until(began.Add(at*time.Second + time.Millisecond)))
					changed <- struct{}{}
				}
				time.Sleep(time.Hour)
				cancel()
				synctest.Wait()
				if !slices.Equal(got, tc.want) {
					t.Errorf("counted at %v, want %v", got, tc.want)
				}
			})
		})
	}
}
