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

// Package audit reads the audit logs of API servers, which name who has made a write.
package audit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/ring/fence"
)

// Flags writes a policy to a file in dir, and returns the flags by which an API server logs to
// another file what the policy asks for.
func Flags(dir, policy, log string) ([]string, error) {
	file := filepath.Join(dir, "audit-policy.yaml")
	return []string{"--audit-policy-file=" + file, LogTo(log), "--audit-log-maxsize=0"}, os.WriteFile(file, []byte(policy), 0o644)
}

// LogTo returns the flag that names the file of a log. The last one of an API server counts.
func LogTo(log string) string { return "--audit-log-path=" + log }

// Event has the fields of an audit event that are read here, but for its objects. Who reads these
// embeds it.
type Event struct {
	Verb, RequestURI, UserAgent string
	SourceIPs                   []string
	User                        struct {
		Username string
		Extra    map[string][]string
	}
	ObjectRef      struct{ APIGroup, Resource, Subresource, Namespace, Name string }
	Annotations    map[string]string
	ResponseStatus metav1.Status

	RequestReceivedTimestamp, StageTimestamp time.Time
}

// Done says whether the request was carried out.
func (e *Event) Done() bool { return e.ResponseStatus.Code/100 == 2 }

// Fenced says whether the API server refused the request because the instance does not own the
// object.
func (e *Event) Fenced() bool {
	details := e.ResponseStatus.Details
	return details != nil && slices.ContainsFunc(details.Causes, func(c metav1.StatusCause) bool { return c.Type == fence.CauseFenced })
}

// Controller returns the name of the service account that sent the request, without its namespace.
func (e *Event) Controller() string {
	return e.User.Username[strings.LastIndexByte(e.User.Username, ':')+1:]
}

// What returns the resource, with a subresource after a slash.
func (e *Event) What() string {
	if e.ObjectRef.Subresource == "" {
		return e.ObjectRef.Resource
	}
	return e.ObjectRef.Resource + "/" + e.ObjectRef.Subresource
}

// ReadAll passes each event of an audit log that has ended to take, until that fails.
func ReadAll[E any](file string, take func(E) error) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	for events := json.NewDecoder(f); ; {
		var event E
		err := events.Decode(&event)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = take(event)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
}

// Read passes each event of an audit log to take, as the log grows, until ctx ends. E has the
// fields of an event that take needs. The file may come to be later than the call.
func Read[E any](ctx context.Context, file string, take func(E)) error {
	var f *os.File
	for f == nil {
		var err error
		if f, err = os.Open(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if f == nil && !pause(ctx) {
			return nil
		}
	}
	defer f.Close()
	lines := bufio.NewReaderSize(f, 1<<20)
	var line []byte
	for {
		part, err := lines.ReadBytes('\n')
		line = append(line, part...)
		if errors.Is(err, io.EOF) {
			if !pause(ctx) {
				return nil
			}
			continue
		}
		if err != nil {
			return err
		}
		if event, ok := parse[E](line); ok {
			take(event)
		}
		line = line[:0]
	}
}

// parse reads a line. A killed server may leave half a line, to which the next server's first is
// appended.
func parse[E any](line []byte) (event E, ok bool) {
	if json.Unmarshal(line, &event) == nil {
		return event, true
	}
	var last E
	i := strings.LastIndex(string(line), `{"kind":"Event","apiVersion"`)
	return last, i > 0 && json.Unmarshal(line[i:], &last) == nil
}

// pause waits before a file is read again. It returns false if ctx has ended.
func pause(ctx context.Context) bool {
	select {
	case <-time.After(10 * time.Millisecond):
		return true
	case <-ctx.Done():
		return false
	}
}
