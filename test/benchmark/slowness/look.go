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
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/ring/member"
)

// period is between two looks at a process. What is measured by looking is as exact as this.
const period = 200 * time.Millisecond

// look looks at what a process works on, again and again.
func (s *side) look(ctx context.Context, m *manager) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		works, err := s.onRings(ctx, m)
		if errors.Is(err, context.DeadlineExceeded) {
			// It may work on what it worked on before.
			return
		}
		if err != nil {
			s.registry.Fail(err)
		}
		if s.isLeading(m) {
			works = everythingOf(s.unserved.controllers)
		}
		s.unserved.set(time.Now(), m.name, works)
	}, period)
}

// onRings returns what a process works on by its instances: nothing if it has none, or has ended.
func (s *side) onRings(ctx context.Context, m *manager) (serving, error) {
	if s.stock {
		return nil, nil
	}
	content, err := s.cluster.Get(ctx, m.name, "/ringz?format=json")
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, err
	}
	if err != nil {
		// Nobody listens.
		return nil, nil
	}
	var shown member.Process
	if err := json.Unmarshal(content, &shown); err != nil {
		return nil, err
	}
	return servingOf(shown)
}

// read follows the log of a process, to see when it begins to work as leader.
func (s *side) read(ctx context.Context, m *manager) {
	f, err := os.Open(s.cluster.LogFile(m.name))
	if err != nil {
		s.registry.Fail(err)
		return
	}
	defer f.Close()
	lines := bufio.NewReader(f)
	var line string
	var start start
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		for {
			part, err := lines.ReadString('\n')
			line += part
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				s.registry.Fail(err)
				return
			}
			if start.works(line) {
				s.lock.Lock()
				m.leads = true
				s.lock.Unlock()
			}
			line = ""
		}
	}, period)
}
