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
	"strings"
	"time"
)

// durations is the value of a flag: durations that are separated by commas.
type durations []time.Duration

// String returns the durations as the flag takes them.
func (d *durations) String() string {
	var parts []string
	for _, one := range *d {
		parts = append(parts, one.String())
	}
	return strings.Join(parts, ",")
}

// Set takes the place of what the flag was.
func (d *durations) Set(text string) error {
	*d = nil
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		one, err := time.ParseDuration(part)
		if err != nil {
			return err
		}
		*d = append(*d, one)
	}
	return nil
}
