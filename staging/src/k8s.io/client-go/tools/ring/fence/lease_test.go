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

package fence

import (
	"testing"
	"time"
)

func TestConfidenceEndsASixthOfTheLeaseBeforeTheLease(t *testing.T) {
	if got := Confidence(6 * time.Second); got != 5*time.Second {
		t.Errorf("got %v of a lease of 6s, want 5s", got)
	}
}

func TestALeaseTakesWholeSecondsWithinItsBounds(t *testing.T) {
	for lease, ok := range map[time.Duration]bool{
		0:                       false,
		time.Second:             false,
		MinLease:                true,
		2500 * time.Millisecond: false,
		6 * time.Second:         true,
		MaxLease:                true,
		MaxLease + time.Second:  false,
	} {
		if err := CheckLease(lease); (err == nil) != ok {
			t.Errorf("%v: %v", lease, err)
		}
	}
}
