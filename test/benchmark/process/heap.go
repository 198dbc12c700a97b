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
	"bytes"
	"cmp"
	"context"
	"errors"
	"regexp"
	"slices"

	"github.com/google/pprof/profile"
)

// held is how much of a heap objects of a type take up, by a profile.
type held struct {
	object string
	bytes  int64
}

var (
	unmarshal = regexp.MustCompile(`\(\*(\w+)\)\.Unmarshal$`)
	// trimmed is what a leader keeps of pods.
	trimmed = regexp.MustCompile(`/podtrim\.`)
)

// heldBy returns what the objects that a process has decoded hold in its heap, most first.
func (b *benchmark) heldBy(ctx context.Context, m *manager) ([]held, error) {
	data, err := b.cluster.Get(ctx, m.name, "/debug/pprof/heap?gc=1")
	if err != nil {
		return nil, err
	}
	p, err := profile.Parse(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	inUse := slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool { return t.Type == "inuse_space" })
	if inUse < 0 {
		return nil, errors.New("the heap profile does not say what is in use")
	}
	bytes := map[string]int64{}
	for _, s := range p.Sample {
		bytes[objectOf(s)] += s.Value[inUse]
	}
	var all []held
	for object, n := range bytes {
		all = append(all, held{object, n})
	}
	slices.SortFunc(all, func(a, b held) int { return cmp.Compare(b.bytes, a.bytes) })
	return all, nil
}

// objectOf returns the type of the whole object for which memory was allocated, or "other".
func objectOf(s *profile.Sample) string {
	// The caller comes after what it calls.
	for _, location := range slices.Backward(s.Location) {
		for _, line := range slices.Backward(location.Line) {
			if trimmed.MatchString(line.Function.Name) {
				return "Pod"
			}
			if match := unmarshal.FindStringSubmatch(line.Function.Name); match != nil && match[1] != "Unknown" {
				return match[1]
			}
		}
	}
	return "other"
}
