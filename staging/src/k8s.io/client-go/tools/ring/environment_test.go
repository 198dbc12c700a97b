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

package ring

import (
	"errors"
	"fmt"
	"strconv"
)

// environment reads what the environment asks a test for. It collects what is wrong.
type environment struct {
	getenv func(string) string
	errs   []error
}

func (e *environment) fail(format string, args ...any) {
	e.errs = append(e.errs, fmt.Errorf(format, args...))
}

// err says what was wrong so far.
func (e *environment) err() error { return errors.Join(e.errs...) }

// long says whether the test is to be long.
func (e *environment) long(name string) bool {
	value := e.getenv(name)
	if value != "" && value != "long" {
		e.fail("%s is %q, want long or nothing", name, value)
	}
	return value == "long"
}

// number returns a number from least to most; nil: there is none.
func (e *environment) number(name string, least, most uint64) *uint64 {
	value := e.getenv(name)
	if value == "" {
		return nil
	}
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil || n < least || n > most {
		e.fail("%s is %q, want a number from %d to %d", name, value, least, most)
	}
	return &n
}
