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
	"testing"
	"time"
)

func TestChosen(t *testing.T) {
	got, err := chosen([]string{"memory", "kill"})
	if err != nil || len(got) != 2 || got[0].name != "memory" || got[1].name != "kill" {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := chosen([]string{"kill", "none"}); err == nil {
		t.Error("a name that there is not was accepted")
	}
}

func TestEveryDeathIsDescribed(t *testing.T) {
	for _, section := range []string{"kill", "kill-load", "vanish"} {
		if describeDeaths[section] == "" {
			t.Error(section)
		}
	}
}

func TestQuantile(t *testing.T) {
	all := []time.Duration{5, 1, 4, 2, 3}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 3, 0.8: 4, 0.9: 5, 1: 5} {
		if got := quantile(all, q); got != want {
			t.Errorf("%v: got %d, want %d", q, got, want)
		}
	}
}
