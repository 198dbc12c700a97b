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
	"slices"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// record is what etcd has stored about its history.
type record struct {
	// ID is the history's identity; empty where none is stored.
	ID string `json:"id"`
	// Cluster is etcd's cluster ID, in hexadecimal digits.
	Cluster string `json:"cluster"`
	// Lead is a lower bound of the lead when the record was written: no later lead is below it, in
	// the same history.
	Lead int64 `json:"lead"`
}

// looked is what a look at etcd has seen.
type looked struct {
	cluster  string
	revision int64
	// index is one of raft's log that was committed when the revision was read, or later, and applied
	// one that was applied soon after.
	index, applied int64
	// stored is the record, and modified the mod revision of its key, 0 where there is none.
	stored   record
	modified int64
}

// divergence returns why the history is another than that in which the record was written; "" if it
// may be the same.
func (l *looked) divergence(r record) string {
	switch most := l.index - l.revision; {
	case r.ID == "":
		return "it has no identity"
	case l.cluster != r.Cluster:
		return fmt.Sprintf("etcd has cluster ID %s, and had %s before", l.cluster, r.Cluster)
	case most < r.Lead:
		return fmt.Sprintf("raft's index less the revision is %d at most, and was %d or more before", most, r.Lead)
	}
	return ""
}

var (
	// errNoIndex says that the storage backend does not tell raft's index, now or ever.
	errNoIndex = errors.New("the storage backend tells no index of raft, as etcd does")
	// errNoMember says that no answer came from the member that had answered before.
	errNoMember = errors.New("the status of the member of etcd that answers reads cannot be had: is there a balancer or a proxy before etcd?")
)

const (
	// memberTries is how often the status of the member that answered a read is asked for.
	memberTries = 20
	// statusTimeout bounds one such request, of an endpoint that may be dead.
	statusTimeout = 30 * time.Second
)

// looker looks at an etcd.
type looker struct {
	*clientv3.Client
	key string
	// endpoints has those at which members have answered.
	endpoints map[uint64]string
}

func newLooker(c *clientv3.Client, key string) *looker {
	return &looker{Client: c, key: key, endpoints: map[uint64]string{}}
}

// look reads the record, and the index after the revision. It fails with errNoIndex or errNoMember
// where the latter cannot be told.
func (l *looker) look(ctx context.Context) (*looked, error) {
	// Linearizable: it has the revision of all that was committed before, and the member that
	// answers has applied that.
	read, err := l.KV.Get(ctx, l.key)
	if err != nil {
		return nil, err
	}
	status, err := l.statusOf(ctx, read.Header.MemberId)
	if err != nil {
		return nil, err
	}
	seen := &looked{
		cluster:  strconv.FormatUint(read.Header.ClusterId, 16),
		revision: read.Header.Revision,
		// What is being applied has raised the revision, perhaps, and is committed.
		index:   int64(max(status.RaftIndex, status.RaftAppliedIndex)),
		applied: int64(status.RaftAppliedIndex),
	}
	if len(read.Kvs) > 0 {
		seen.stored, seen.modified = parse(read.Kvs[0]), read.Kvs[0].ModRevision
	}
	return seen, nil
}

// parse returns the record at a key, an empty one if there is none.
func parse(kv *mvccpb.KeyValue) record {
	var r record
	if json.Unmarshal(kv.Value, &r) != nil {
		return record{}
	}
	return r
}

// statusOf returns the status of a member.
func (l *looker) statusOf(ctx context.Context, member uint64) (*clientv3.StatusResponse, error) {
	for range memberTries {
		if endpoint, ok := l.endpoints[member]; ok {
			status, err := l.status(ctx, endpoint)
			if err == nil && status.Header.MemberId == member {
				return status, nil
			}
			delete(l.endpoints, member)
		}
		if err := l.findMembers(ctx, member); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return nil, err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errNoMember
}

// findMembers asks endpoints who answers there, until that member has.
func (l *looker) findMembers(ctx context.Context, member uint64) error {
	type answer struct {
		endpoint string
		status   *clientv3.StatusResponse
		err      error
	}
	endpoints := l.Endpoints()
	answers := make(chan answer, len(endpoints))
	for _, endpoint := range endpoints {
		go func() {
			status, err := l.status(ctx, endpoint)
			answers <- answer{endpoint, status, err}
		}()
	}
	var errs []error
	for range endpoints {
		a := <-answers
		if a.err != nil {
			errs = append(errs, a.err)
			continue
		}
		l.endpoints[a.status.Header.MemberId] = a.endpoint
		if a.status.Header.MemberId == member {
			return nil
		}
	}
	switch err := errors.Join(errs...); {
	case len(errs) < len(endpoints):
		return nil
	case !slices.ContainsFunc(errs, func(err error) bool { return !isRefused(err) }):
		return fmt.Errorf("%w: %w", errNoIndex, err)
	default:
		return err
	}
}

// status asks the endpoint. It fails with errNoIndex if there is no raft.
func (l *looker) status(ctx context.Context, endpoint string) (*clientv3.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	status, err := l.Status(ctx, endpoint)
	if err == nil && status.RaftTerm == 0 {
		return nil, errNoIndex
	}
	return status, err
}

// isRefused says whether an error shows that the backend will not tell, however often it is asked.
func isRefused(err error) bool {
	if errors.Is(err, errNoIndex) {
		return true
	}
	code := status.Code(err)
	if known := (rpctypes.EtcdError{}); errors.As(err, &known) {
		code = known.Code()
	}
	return code == codes.Unimplemented || code == codes.PermissionDenied
}
