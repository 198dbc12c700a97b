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
	"fmt"
	"strconv"
)

// size is a flag for a whole number within bounds, both inclusive.
type size struct {
	value, min, max int
}

func (s *size) String() string { return strconv.Itoa(s.value) }

func (s *size) Type() string { return "number" }

func (s *size) Set(text string) error {
	value, err := strconv.Atoi(text)
	if err != nil || value < s.min || value > s.max {
		return fmt.Errorf("it must be a whole number from %d to %d", s.min, s.max)
	}
	s.value = value
	return nil
}
