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

package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func TestTheServerSaysWhatIsTooMuchAtOnce(t *testing.T) {
	flags := genericclioptions.NewTestConfigFlags().WithClientConfig(clientcmd.NewDefaultClientConfig(*clientcmdapi.NewConfig(), &clientcmd.ConfigOverrides{ClusterInfo: clientcmdapi.Cluster{Server: "https://127.0.0.1"}}))
	if s, err := connect(flags); err != nil || s.Config.QPS >= 0 {
		t.Errorf("got %+v, %v", s, err)
	}
}

type answers func() (*http.Response, error)

func (a answers) RoundTrip(*http.Request) (*http.Response, error) { return a() }

func TestLostContactIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Contact
		var response *http.Response
		var failure error
		client := c.wrap(answers(func() (*http.Response, error) { return response, failure }))
		for _, step := range []struct {
			what   string
			status int
			err    error
			want   string
		}{
			{"at first", 200, nil, ""},
			{"refused", 0, errors.New("connection refused"), "No contact with the API server for 0s, so what follows is old: connection refused\n"},
			{"refused again", 503, nil, "No contact with the API server for 7s, so what follows is old: it answers 503 Service Unavailable\n"},
			{"back", 200, nil, ""},
			{"lost again", 401, nil, "No contact with the API server for 0s, so what follows is old: it answers 401 Unauthorized\n"},
		} {
			response, failure = nil, step.err
			if failure == nil {
				response = &http.Response{StatusCode: step.status, Status: fmt.Sprint(step.status, " ", http.StatusText(step.status))}
			}
			if got, err := client.RoundTrip(&http.Request{}); got != response || !errors.Is(err, failure) {
				t.Errorf("%s: got %v, %v", step.what, got, err)
			}
			if got := c.Lost(time.Now()); got != step.want {
				t.Errorf("%s: %q, want %q", step.what, got, step.want)
			}
			if got := c.Lost(time.Time{}); (got != "") != (step.want != "") || strings.Contains(got, " for ") {
				t.Errorf("%s, without ages: %q", step.what, got)
			}
			time.Sleep(7 * time.Second)
		}
	})
}
