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

import "testing"

func TestALeaderWorksWhenAllCachesAreFilled(t *testing.T) {
	const other = "whatever"
	log := []string{
		// It stands by.
		startLine, waitingLine, syncedLine, other,
		// It is on a ring.
		`"Starting controller" ring="workloads" name="replicaset"`, waitingLine + ` ring="workloads"`, syncedLine + ` ring="workloads"`,
		// It leads.
		leadLine, waitingLine, waitingLine, syncedLine, other, syncedLine,
		// A cache is filled later.
		waitingLine, syncedLine,
		// It was started again.
		startLine, leadLine, waitingLine, syncedLine,
	}
	var s start
	var works []int
	for i, line := range log {
		if s.works("I1127 02:57:05.079655   10640 file.go:1] " + line + "\n") {
			works = append(works, i)
		}
	}
	if len(works) != 2 || works[0] != 12 || works[1] != 18 {
		t.Errorf("works from lines %v, want 12 and 18", works)
	}
}
