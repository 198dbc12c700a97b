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

package fence

import (
	"slices"
	"strings"
)

// HistoryHeader is the HTTP header with which a request asks for the histories of the etcds that
// the API server reads. Its value is FormatHistories of those that the client knows, from answers
// before; any other value if it knows none. An API server that knows them answers with
// FormatHistories, and refuses a write of a client that knows another. A history whose identity has
// changed is another one: that etcd was restored to an earlier state.
const HistoryHeader = "Etcd-History"

// FormatHistories returns the value of a header with the identities of histories, by the names that
// API servers with the same flags give their etcds. Neither may contain "=" or ",".
func FormatHistories(histories map[string]string) string {
	var told []string
	for name, identity := range histories {
		told = append(told, name+"="+identity)
	}
	slices.Sort(told)
	return strings.Join(told, ",")
}

// ParseHistories returns the identities in the value of a header, by the names of etcds. It leaves
// out what it does not understand.
func ParseHistories(value string) map[string]string {
	histories := map[string]string{}
	for _, told := range strings.Split(value, ",") {
		if name, identity, ok := strings.Cut(told, "="); ok && name != "" && identity != "" {
			histories[name] = identity
		}
	}
	return histories
}
