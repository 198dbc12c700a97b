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
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// waiting are the flags of a command that can wait.
type waiting struct {
	waits   bool
	timeout time.Duration
}

// addWaiting gives the command these flags. until says what --wait waits for.
func addWaiting(command *cobra.Command, until string) *waiting {
	w := &waiting{}
	command.Flags().BoolVar(&w.waits, "wait", false, until)
	command.Flags().DurationVar(&w.timeout, "timeout", 5*time.Minute, "How long to wait.")
	return w
}

// limit returns how long the command is to wait; 0: not at all.
func (w *waiting) limit(command *cobra.Command) (time.Duration, error) {
	switch {
	case command.Flags().Changed("timeout") && !w.waits:
		return 0, errors.New("--timeout is how long --wait waits: give both")
	case w.timeout <= 0:
		return 0, fmt.Errorf("--timeout is %v, want more than 0", w.timeout)
	case !w.waits:
		return 0, nil
	}
	return w.timeout, nil
}

// isRefused says whether a server's answer would be the same later. Other failures may end, as when a
// server restarts.
func isRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err)
}
