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

import "strings"

// The lines in the log of a process by which it tells that it works as leader.
const (
	startLine   = `"Golang settings"`
	leadLine    = `"Starting controller" name="replicaset"`
	waitingLine = `"Waiting for caches to sync"`
	syncedLine  = `"Caches are synced"`
	// ringNote is in the lines of what works on a ring.
	ringNote = ` ring="`
)

// start is how far a process has started as leader, by its log. Its controllers start once it
// leads, and then all of their caches have to be filled. Lines do not say whose these are.
type start struct {
	// leads says that controllers have started, waiting counts those whose caches are not filled, and
	// told is that none of them is left.
	leads, told bool
	waiting     int
}

// works takes the next line of the log, and says whether it is that by which the process begins to
// work as leader: once in its life. The log goes on where a process is started again.
func (s *start) works(line string) bool {
	switch {
	case strings.Contains(line, ringNote):
		return false
	case strings.Contains(line, startLine):
		*s = start{}
	case strings.Contains(line, leadLine):
		s.leads = true
	case strings.Contains(line, waitingLine):
		s.waiting++
	case strings.Contains(line, syncedLine):
		s.waiting--
	}
	// The first of them has yet to say that it waits when it has said that it starts.
	if s.told || !s.leads || s.waiting > 0 || !strings.Contains(line, syncedLine) {
		return false
	}
	s.told = true
	return true
}
