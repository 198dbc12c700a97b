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

// Package report has what the reports of programs share.
package report

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"
)

// Write writes a report to a file, or to standard output if that is "".
func Write(file, text string) error {
	if file == "" {
		fmt.Print(text)
		return nil
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

// Machine says with which Go, and on what, it was measured.
func Machine() string {
	return fmt.Sprintf("%s, %s/%s, %d CPUs", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
}

// Seconds returns a time in seconds.
func Seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// Megabytes returns a size in megabytes.
func Megabytes[N int64 | uint64](bytes N) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }

// Grouped returns a number from 0 with a comma between thousands.
func Grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Some returns the first texts of which there are most at most, and how many more there are.
func Some(texts []string, most int) []string {
	if more := len(texts) - most; more > 0 {
		return append(texts[:most:most], fmt.Sprintf("and %d more", more))
	}
	return texts
}

// Percentiles sorts what took so long, which is not empty, and returns the 50th and the 99th.
func Percentiles(all []time.Duration) (median, late time.Duration) {
	slices.Sort(all)
	return all[len(all)/2], all[len(all)*99/100]
}
