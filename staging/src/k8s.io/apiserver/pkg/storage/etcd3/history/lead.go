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

package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// record is what etcd has stored about its history.
type record struct {
	// ID is the history's identity.
	ID string `json:"id"`
	// Cluster is etcd's cluster ID, in hexadecimal digits.
	Cluster string `json:"cluster"`
	// Lead is a lower bound of the lead when the record was written: no later lead is below it, in
	// the same history.
	Lead int64 `json:"lead"`
}

// parse returns the record in a value, nil if it has none.
func parse(value []byte) *record {
	r := &record{}
	if err := json.Unmarshal(value, r); err != nil || r.ID == "" {
		return nil
	}
	return r
}

// looked is what a look at etcd has seen.
type looked struct {
	cluster string
	// The lead was min or more before the record was read, and max or less after it.
	min, max int64
	// stored is nil if there is none. revision is the mod revision of its key, 0 without one.
	stored   *record
	revision int64
}

// divergence returns why the history is another than that in which the record was written; "" if it
// may be the same.
func (l *looked) divergence(r *record) string {
	switch {
	case l.cluster != r.Cluster:
		return fmt.Sprintf("etcd has cluster ID %s, and had %s before", l.cluster, r.Cluster)
	case l.max < r.Lead:
		return fmt.Sprintf("raft's index less the revision is %d at most, and was %d or more before", l.max, r.Lead)
	}
	return ""
}

// errNoIndex says that the storage backend does not tell raft's index.
var errNoIndex = errors.New("the storage backend tells no index of raft for the member that answers, as etcd does")

// memberTries is how often a look tries to have one member answer both, behind a balancer.
const memberTries = 20

// look reads the record at that key, and bounds the lead. It fails with errNoIndex where that cannot
// be done.
func look(ctx context.Context, c *clientv3.Client, key string) (*looked, error) {
	for range memberTries {
		before, err := ask(ctx, c, func(*clientv3.StatusResponse) bool { return true })
		if err != nil {
			return nil, err
		}
		// Linearizable: it has the revision of all that was committed before, and the member that
		// answers has applied that.
		read, err := c.KV.Get(ctx, key)
		if err != nil {
			return nil, err
		}
		after, err := ask(ctx, c, func(s *clientv3.StatusResponse) bool { return s.Header.MemberId == read.Header.MemberId })
		if err != nil && !errors.Is(err, errNoIndex) {
			return nil, err
		}
		if after == nil {
			continue
		}
		l := &looked{
			cluster: strconv.FormatUint(read.Header.ClusterId, 16),
			min:     int64(before.RaftAppliedIndex) - read.Header.Revision,
			// What is being applied has raised the revision, perhaps, and is committed.
			max: int64(max(after.RaftIndex, after.RaftAppliedIndex)) - read.Header.Revision,
		}
		if len(read.Kvs) > 0 {
			l.revision, l.stored = read.Kvs[0].ModRevision, parse(read.Kvs[0].Value)
		}
		return l, nil
	}
	return nil, errNoIndex
}

// ask returns the status of a member that is wanted, the first to answer. It fails with errNoIndex if
// others answer alone, or without an index of raft, and with their errors if none answers.
func ask(ctx context.Context, c *clientv3.Client, wanted func(*clientv3.StatusResponse) bool) (*clientv3.StatusResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		status *clientv3.StatusResponse
		err    error
	}
	endpoints := c.Endpoints()
	answers := make(chan answer, len(endpoints))
	for _, endpoint := range endpoints {
		go func() {
			status, err := c.Status(ctx, endpoint)
			answers <- answer{status, err}
		}()
	}
	var errs []error
	for range endpoints {
		a := <-answers
		switch {
		case a.err != nil:
			errs = append(errs, a.err)
		case a.status.RaftTerm > 0 && wanted(a.status):
			return a.status, nil
		}
	}
	if len(errs) == len(endpoints) {
		return nil, errors.Join(errs...)
	}
	return nil, errNoIndex
}
