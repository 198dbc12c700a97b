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
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/ring/member"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/pkg/ringtable"
)

const (
	// viewsAtOnce is how many processes are asked at the same time.
	viewsAtOnce = 32
	// settleTime is how long a view that differs is asked for again: it may only lag.
	settleTime = 2 * time.Second
	// maxAnswer bounds an answer, in bytes.
	maxAnswer = 64 << 20
)

// asker asks controller managers what they know of their rings.
type asker struct {
	client *http.Client
	// withToken says that all credentials of the kubeconfig are sent.
	withToken bool
	// recorded has them tell what they have recorded, too.
	recorded bool
	// settle is for how long a view that differs is asked for again, a quarter of that apart.
	settle time.Duration
}

// newAsker returns an asker that verifies serving certificates if authority names a file.
func newAsker(config *rest.Config, authority string, timeout time.Duration) (*asker, error) {
	own := rest.AnonymousClientConfig(config)
	own.TLSClientConfig = rest.TLSClientConfig{
		Insecure: true,
		CertFile: config.CertFile, CertData: config.CertData, KeyFile: config.KeyFile, KeyData: config.KeyData,
	}
	if authority != "" {
		own = rest.CopyConfig(config)
		own.Insecure, own.ServerName, own.CAData, own.CAFile = false, "", nil, authority
	}
	own.Timeout = timeout
	client, err := rest.HTTPClientFor(own)
	if err != nil {
		return nil, err
	}
	// The credentials are for the controller manager alone.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &asker{client: client, withToken: authority != "", settle: settleTime}, nil
}

// answer is what a controller manager has answered.
type answer struct {
	process member.Process
	// raw is the process as it was sent.
	raw []byte
	err error
}

// askAll asks the controller managers at these addresses (host and port).
func (a *asker) askAll(ctx context.Context, addresses []string) map[string]answer {
	answers := make([]answer, len(addresses))
	for i := range answers {
		answers[i].err = errors.New("there was no time left to ask it")
	}
	workqueue.ParallelizeUntil(ctx, viewsAtOnce, len(addresses), func(i int) { answers[i] = a.ask(ctx, addresses[i]) })
	all := map[string]answer{}
	for i, address := range addresses {
		all[address] = answers[i]
	}
	return all
}

func (a *asker) ask(ctx context.Context, address string) (got answer) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return answer{err: errors.New("its holder names no host and port, so it serves nothing")}
	}
	where := url.URL{Scheme: "https", Host: address, Path: "/ringz"}
	if a.recorded {
		where.RawQuery = "recording=true"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, where.String(), nil)
	if err != nil {
		return answer{err: err}
	}
	request.Header.Set("Accept", "application/json")
	response, err := a.client.Do(request)
	if err != nil {
		if outer := (*url.Error)(nil); errors.As(err, &outer) {
			if err = outer.Err; outer.Timeout() {
				err = fmt.Errorf("no answer within %v", a.client.Timeout)
			}
		}
		return answer{err: err}
	}
	defer response.Body.Close()
	got.raw, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch {
	case err != nil:
		return answer{err: err}
	case response.StatusCode == http.StatusNotFound:
		return answer{err: errors.New("it has no /ringz: it is older, or is something else")}
	case response.StatusCode != http.StatusOK:
		err = fmt.Errorf("it answered %s", response.Status)
		if !a.withToken && (response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden) {
			err = fmt.Errorf("%w to the kubeconfig's client certificate; a token is sent only with --controllers-ca", err)
		}
		return answer{err: err}
	}
	if err := json.Unmarshal(got.raw, &got.process); err != nil {
		return answer{err: fmt.Errorf("it answered no JSON of /ringz: %w", err)}
	}
	return got
}

// silent says whether the ring is of another program that serves no /ringz.
func silent(r *ringtable.Ring) bool {
	_, described := catalogue.RingNamed(r.Name)
	return !described && !slices.ContainsFunc(r.Instances, func(i ringtable.Instance) bool {
		_, _, err := net.SplitHostPort(i.Host())
		return err == nil
	})
}
