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

package member

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/tools/ring/fence"
)

func TestHistoriesNoticeAnother(t *testing.T) {
	for name, test := range map[string]struct {
		told []string
		// want is the number of answers that are believed.
		want int
	}{
		"the same":                          {[]string{"main=1", "main=1", "main=1"}, 3},
		"another":                           {[]string{"main=1", "main=2"}, 1},
		"an API server that tells nothing":  {[]string{"main=1", "", "main=1"}, 3},
		"another, after one without":        {[]string{"main=1", "", "main=2"}, 2},
		"an etcd more":                      {[]string{"main=1", "main=1,pods=5", "main=1,pods=5"}, 3},
		"an etcd less":                      {[]string{"main=1,pods=5", "main=1", "pods=5"}, 3},
		"another of the second":             {[]string{"main=1", "main=1,pods=5", "main=1", "main=1,pods=6"}, 3},
		"an API server that was not ended":  {[]string{"main=2", "main=2", "main=1"}, 2},
		"none at first":                     {[]string{"", "", "main=1", "main=1"}, 4},
		"what is not understood is nothing": {[]string{"?", "main=1", "?", "main=1"}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			var told, asks string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if asks = req.Header.Get(fence.HistoryHeader); asks == "" {
					t.Errorf("%s does not ask for the history", req.URL)
				}
				if told != "" {
					w.Header().Set(fence.HistoryHeader, told)
				}
			}))
			defer server.Close()
			changed := make(chan string, len(test.told))
			histories := NewHistories(func(reason string) { changed <- reason })
			// Clients of one process have seen what each of them has.
			clients := []*http.Client{{Transport: histories.WrapTransport(http.DefaultTransport)}, {Transport: histories.WrapTransport(http.DefaultTransport)}}
			for n, next := range test.told {
				told = next
				resp, err := clients[n%2].Get(server.URL)
				if err == nil {
					resp.Body.Close()
				}
				if n < test.want && err != nil {
					t.Fatalf("answer %d: %v", n, err)
				}
				if n >= test.want && (err == nil || !strings.Contains(err.Error(), "history of etcd")) {
					t.Fatalf("answer %d: got %v, want that the history is another", n, err)
				}
			}
			for range len(test.told) - test.want {
				<-changed
			}
			// What is deleted is told even so, and what another cluster's API server says is another's.
			for method, url := range map[string]string{http.MethodDelete: server.URL + "/apis/sharding.k8s.io/v1alpha1/controllerinstances/a", http.MethodGet: strings.Replace(server.URL, "127.0.0.1", "localhost", 1)} {
				req, err := http.NewRequest(method, url, nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := clients[0].Do(req)
				if err != nil {
					t.Fatalf("%s %s: %v", method, url, err)
				}
				resp.Body.Close()
				if asks != "?" {
					t.Errorf("%s %s says that it knows %q", method, url, asks)
				}
			}
			if len(changed) > 0 {
				t.Errorf("the process is told %s", <-changed)
			}
		})
	}
}

// The server refuses a write that was decided on what is lost, if it knows what that is.
func TestRequestsSayWhichHistoriesAreKnown(t *testing.T) {
	asks := ""
	told := []string{"", "main=1", "", "pods=5", "main=1,pods=5"}
	want := []string{"?", "?", "main=1", "main=1", "main=1,pods=5"}
	n := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		asks = req.Header.Get(fence.HistoryHeader)
		if told[n] != "" {
			w.Header().Set(fence.HistoryHeader, told[n])
		}
	}))
	defer server.Close()
	client := &http.Client{Transport: NewHistories(func(reason string) { t.Error(reason) }).WrapTransport(http.DefaultTransport)}
	for n = range told {
		resp, err := client.Post(server.URL, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if asks != want[n] {
			t.Errorf("request %d says that %q is known, want %q", n, asks, want[n])
		}
	}
}
