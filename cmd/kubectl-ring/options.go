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
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"k8s.io/client-go/tools/ring"
	"sigs.k8s.io/yaml"
)

// checkOutput says what is wrong with a value of --output that is to be for programs, and what the
// command takes.
func checkOutput(output, takes string) error {
	if !slices.Contains([]string{"", "json", "yaml"}, output) {
		return fmt.Errorf("--output is %q, want %s, or none for tables", output, takes)
	}
	return nil
}

// marshal returns the states of rings as JSON or YAML.
func marshal(states any, format string) (string, error) {
	data, err := json.MarshalIndent(map[string]any{"rings": states}, "", "  ")
	if err != nil {
		return "", err
	}
	text := ring.PrintableLines(string(data))
	if format == "yaml" {
		// JSON is YAML, and escapes what YAML has as it is, or cannot have.
		if data, err := yaml.JSONToYAML([]byte(text)); err == nil && ring.PrintableLines(string(data)) == string(data) {
			text = string(data)
		}
	}
	return strings.TrimSuffix(text, "\n"), nil
}

// addWaiting gives the command flags to wait for what until says, and returns how long to wait once
// they are parsed; 0: not at all.
func addWaiting(command *cobra.Command, until string) *time.Duration {
	var waits bool
	var timeout time.Duration
	command.Flags().BoolVar(&waits, "wait", false, until)
	command.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "How long to wait.")
	command.PreRunE = func(*cobra.Command, []string) error {
		switch {
		case command.Flags().Changed("timeout") && !waits:
			return errors.New("--timeout is how long --wait waits: give both")
		case timeout <= 0:
			return fmt.Errorf("--timeout is %v, want more than 0", timeout)
		case !waits:
			timeout = 0
		}
		return nil
	}
	return &timeout
}
