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
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestTrafficCountsListsAndWhatWatchesBeginWith(t *testing.T) {
	for name, c := range map[string]struct {
		url    string
		status int
		chunks []string
		want   lists
	}{
		"a list":                       {"/api/v1/pods?limit=500", http.StatusOK, []string{"12345", "67"}, lists{all: listed{1, 7}}},
		"a list that is refused":       {"/api/v1/pods", http.StatusTooManyRequests, []string{"12345"}, lists{}},
		"one object":                   {"/api/v1/namespaces/default/pods/pod", http.StatusOK, []string{"12345"}, lists{}},
		"what is no resource":          {"/healthz", http.StatusOK, []string{"ok"}, lists{}},
		"a watch from a revision":      {"/api/v1/pods?watch=true&resourceVersion=1", http.StatusOK, []string{"12345"}, lists{}},
		"a watch that asks for a mark": {"/api/v1/pods?watch=true&sendInitialEvents=false", http.StatusOK, []string{"12345"}, lists{}},
		"a watch with what there is": {"/apis/apps/v1/replicasets?watch=1&sendInitialEvents=true", http.StatusOK,
			[]string{"12345", "67 k8s.io/initial-", "events-end: true", "later"}, lists{all: listed{1, 5 + 18 + 16}}},
		"a list of a range": {"/api/v1/pods?shardSelector=all", http.StatusOK, []string{"12345"}, lists{listed{1, 5}, listed{1, 5}}},
	} {
		var counted traffic
		a := counted.begin(httptest.NewRequest(http.MethodGet, "https://server"+c.url, nil), c.status)
		for _, chunk := range c.chunks {
			if n, err := a.Write([]byte(chunk)); n != len(chunk) || err != nil {
				t.Errorf("%s: wrote %d, %v", name, n, err)
			}
		}
		if got := counted.now(); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}
