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

package fenced

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3/presence/inquest"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/klog/v2"
)

// Presence is the request that an instance keeps open for as long as its process lives. Its number
// is stored under the lease of the record, so the newest opening is known to all API servers, and
// its end is void once there is another.
type Presence struct {
	presences *presences
	self      fence.Identity
	record    string
	lease     clientv3.LeaseID
	stored    string
	note      Note
	// opened is when.
	opened time.Time
	opening
}

// Note writes into a record of that revision when the presence of its instance ended, the zero time
// to unset that, and returns the revision that this makes. It fails with a storage error if the
// record is of another one.
type Note func(ctx context.Context, self fence.Identity, revision int64, ended time.Time) (int64, error)

// opening is what is stored of a presence.
type opening struct {
	// Process has the presence: the holder identity in the record.
	Process string `json:"process"`
	// ID tells it from others of the same instance.
	ID string `json:"id"`
	// Lost says that it was opened in place of one that had ended by itself.
	Lost bool `json:"lost,omitempty"`
}

// presences are those that are open at this API server, and what is known of others.
type presences struct {
	*registry
	limits inquest.Limits
	// prefix begins the keys of openings, silences those of what API servers announce, and removals
	// those of what was removed of late.
	prefix, silences, removals string
	// own is the key of what this server announces.
	own string

	sampling sync.Once
	lock     sync.Mutex
	// samples are revisions of etcd, the oldest first.
	samples []sample
	// silent has when each process was announced.
	silent map[string]time.Time
}

type sample struct {
	at       time.Time
	revision int64
}

const (
	// samplePeriod is how often the revision is asked for, once a presence was opened.
	samplePeriod = time.Second
	// samplesKept reach further back than an inquest asks as it begins.
	samplesKept = 8
	// announcedFor is how long other servers see what one announces, in seconds: for longer than an
	// inquest that begins anew takes to ask.
	announcedFor = 5
	// undoTimeout bounds the write of a note that is taken back.
	undoTimeout = 5 * time.Second
)

func newPresences(r *registry, prefix string) *presences {
	p := &presences{registry: r, limits: inquest.Default, silent: map[string]time.Time{}}
	p.prefix = path.Join("/", prefix, "controller-instance-presences") + "/"
	p.silences = path.Join("/", prefix, "controller-instance-silences") + "/"
	p.removals = path.Join("/", prefix, "controller-instance-removals") + "/"
	p.own = p.silences + string(uuid.NewUUID())
	return p
}

// OpenPresence stores that an instance has a presence at this API server from now on. prefix is
// that of the storage, and note is called before the record is removed. It fails with a conflict if
// the record is gone or another's, and with a method that is not supported where the storage
// backend cannot do what it takes.
func OpenPresence(ctx context.Context, prefix string, self fence.Identity, why string, note Note) (*Presence, error) {
	r := deploymentOf(prefix).registry()
	if r == nil {
		return nil, apierrors.NewInternalError(errors.New("this API server has no registry of controller instances"))
	}
	can, err := r.backend.abilities(ctx, r.client)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if !can.transactions || can.keepAlive != nil {
		return nil, apierrors.NewMethodNotSupported(controllerInstances, "presence")
	}
	return r.presences.open(ctx, self, why, note)
}

func (p *presences) open(ctx context.Context, self fence.Identity, why string, note Note) (*Presence, error) {
	lease := &Lease{}
	record, err := p.leased(ctx, self.Name, lease)
	if err != nil {
		return nil, err
	}
	if record == nil {
		return nil, apierrors.NewNotFound(controllerInstances, self.Name)
	}
	if record.UID != self.UID || record.Spec.Ring != self.Ring || lease.id == clientv3.NoLease {
		return nil, apierrors.NewConflict(controllerInstances, self.Name, errors.New("it is another's of the same name, or has no lease"))
	}
	opened := &Presence{
		presences: p, self: self, record: p.etcdKey(self.Name), lease: lease.id, note: note, opened: time.Now(),
		opening: opening{Process: record.Spec.HolderIdentity, ID: string(uuid.NewUUID()), Lost: why == fence.PresenceLost},
	}
	stored, err := json.Marshal(opened.opening)
	if err != nil {
		return nil, err
	}
	opened.stored = string(stored)
	done, err := p.client.KV.Txn(ctx).
		If(clientv3.Compare(clientv3.LeaseValue(opened.record), "=", lease.id)).
		Then(clientv3.OpPut(opened.key(), opened.stored, clientv3.WithLease(lease.id))).
		Commit()
	if err != nil {
		return nil, err
	}
	if !done.Succeeded {
		return nil, apierrors.NewNotFound(controllerInstances, self.Name)
	}
	p.sampling.Do(func() { go p.sample(p.client.Ctx()) })
	presencesOpened.WithContext(ctx).WithLabelValues(why).Inc()
	return opened, nil
}

func (o *Presence) key() string { return o.presences.prefix + string(o.self.UID) }

// sample notes the revision of etcd now and then, so an inquest knows what was stored since some
// time before the end.
func (p *presences) sample(ctx context.Context) {
	for ctx.Err() == nil {
		asked, cancel := context.WithTimeout(ctx, samplePeriod)
		// Whatever key it is.
		resp, err := p.client.KV.Get(asked, p.own, clientv3.WithKeysOnly())
		cancel()
		if err == nil {
			p.lock.Lock()
			p.samples = append(p.samples, sample{time.Now(), resp.Header.Revision})
			p.samples = p.samples[max(0, len(p.samples)-samplesKept):]
			p.lock.Unlock()
		}
		select {
		case <-ctx.Done():
		case <-time.After(samplePeriod):
		}
	}
}

// before returns a revision that etcd had before that instant; 1 if none is known.
func (p *presences) before(at time.Time) int64 {
	p.lock.Lock()
	defer p.lock.Unlock()
	for _, s := range slices.Backward(p.samples) {
		if s.at.Before(at) {
			return s.revision
		}
	}
	return 1
}

// Ended is called when the client has ended the request, or its connection has ended. It returns at
// once.
func (o *Presence) Ended() {
	ctx := o.presences.client.Ctx()
	go func() {
		verdict := o.inquire(ctx, time.Now())
		presenceEnds.WithContext(ctx).WithLabelValues(verdict.String()).Inc()
		klog.FromContext(ctx).V(2).Info("The presence of a controller instance ended", "record", o.self.Name, "ring", o.self.Ring, "process", o.Process, "verdict", verdict)
	}()
}

// inquire follows an inquest to its end.
func (o *Presence) inquire(ctx context.Context, ended time.Time) inquest.Verdict {
	if o.Lost && o.presences.limits.Unsteady(o.opened, ended) {
		return inquest.LeaveUnsteady
	}
	q := inquest.New(o.presences.limits, ended)
	since := o.presences.before(ended.Add(-o.presences.limits.Gather))
	for {
		select {
		case <-time.After(time.Until(q.Due())):
		case <-ctx.Done():
			return inquest.LeaveLate
		}
		verdict := q.Fire(time.Now())
		var found finding
		if verdict == inquest.Ask {
			asked := time.Now()
			var err error
			if found, err = o.ask(ctx, since, q.Announced()); err != nil {
				verdict = q.Unanswered(time.Now())
			} else {
				verdict = q.Hear(asked, time.Now(), found.Answer)
			}
		}
		if verdict == inquest.Announce {
			if err := o.announce(ctx); err != nil {
				verdict = q.Unanswered(time.Now())
			}
		}
		if verdict == inquest.Remove {
			if verdict = o.remove(ctx, found, ended); verdict == inquest.LeaveSlow {
				verdict = q.Unanswered(time.Now())
			}
		}
		if verdict == inquest.Remove || verdict.Left() {
			return verdict
		}
	}
}

// finding is what etcd says in an inquest.
type finding struct {
	inquest.Answer
	// revision is etcd's, modified that of the record.
	revision, modified int64
}

// ask asks etcd. What other processes do is asked for only once the silence of this one is
// announced: before that it does not count, and most inquests have ended. since is a revision of
// before the end.
func (o *Presence) ask(ctx context.Context, since int64, announced bool) (finding, error) {
	p := o.presences
	ctx, cancel := context.WithTimeout(ctx, p.limits.Late)
	defer cancel()
	ops := []clientv3.Op{clientv3.OpGet(o.record, clientv3.WithKeysOnly()), clientv3.OpGet(o.key())}
	if announced {
		ops = append(ops, clientv3.OpGet(p.silences, clientv3.WithPrefix()),
			clientv3.OpGet(p.prefix, clientv3.WithPrefix(), clientv3.WithMinModRev(since)))
	}
	resp, err := p.client.KV.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return finding{}, err
	}
	record := only(resp.Responses[0].GetResponseRange().Kvs)
	newest := only(resp.Responses[1].GetResponseRange().Kvs)
	found := finding{revision: resp.Header.Revision, modified: record.GetModRevision()}
	if record == nil || newest == nil || string(newest.Value) != o.stored {
		return found, nil
	}
	found.Newest = true
	if announced {
		if found.Several, err = o.several(resp.Responses[2].GetResponseRange().Kvs, resp.Responses[3].GetResponseRange().Kvs); err != nil {
			return found, err
		}
	}
	left, err := p.client.Lease.TimeToLive(ctx, o.lease)
	if err != nil {
		return found, err
	}
	found.Granted, found.Remaining = left.GrantedTTL, left.TTL
	if left.TTL < 0 {
		found.Newest = false
	}
	return found, nil
}

// several says whether presences of other processes ended: their silence is announced, or they have
// opened others.
func (o *Presence) several(silences, opened []*mvccpb.KeyValue) (bool, error) {
	for _, kv := range silences {
		var processes []string
		if err := json.Unmarshal(kv.Value, &processes); err != nil {
			return false, fmt.Errorf("%s: %w", kv.Key, err)
		}
		if slices.ContainsFunc(processes, func(other string) bool { return other != o.Process }) {
			return true, nil
		}
	}
	for _, kv := range opened {
		var other opening
		if err := json.Unmarshal(kv.Value, &other); err != nil {
			return false, fmt.Errorf("%s: %w", kv.Key, err)
		}
		if other.Lost && other.Process != o.Process {
			return true, nil
		}
	}
	return false, nil
}

// announce tells other API servers that the process is silent. One key says it of all processes
// that were silent here of late.
func (o *Presence) announce(ctx context.Context) error {
	p := o.presences
	ctx, cancel := context.WithTimeout(ctx, p.limits.Late)
	defer cancel()
	p.lock.Lock()
	defer p.lock.Unlock()
	// Many may have waited for the lock.
	if err := ctx.Err(); err != nil {
		return err
	}
	now := time.Now()
	p.silent[o.Process] = now
	maps.DeleteFunc(p.silent, func(_ string, at time.Time) bool { return now.Sub(at) > announcedFor*time.Second })
	processes, err := json.Marshal(slices.Sorted(maps.Keys(p.silent)))
	if err != nil {
		return err
	}
	lease, err := p.client.Lease.Grant(ctx, announcedFor)
	if err != nil {
		return err
	}
	_, err = p.client.KV.Put(ctx, p.own, string(processes), clientv3.WithLease(lease.ID))
	return err
}

// remove removes the record if nothing of what was found has changed, and fewer records of the ring
// than a quarter, or none, were removed so within a lease. Before that the record says why.
func (o *Presence) remove(ctx context.Context, found finding, ended time.Time) inquest.Verdict {
	p := o.presences
	ctx, cancel := context.WithTimeout(ctx, 2*p.limits.Late)
	defer cancel()
	all, err := p.list(ctx)
	if err != nil {
		return inquest.LeaveSlow
	}
	prefix := p.removals + o.self.Ring + "/"
	taken, err := p.client.KV.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return inquest.LeaveSlow
	}
	slot := ""
	for n := range max(1, len(all.view(o.self.Ring).Records())/4) {
		key := fmt.Sprint(prefix, n)
		if !slices.ContainsFunc(taken.Kvs, func(kv *mvccpb.KeyValue) bool { return string(kv.Key) == key }) {
			slot = key
			break
		}
	}
	if slot == "" {
		return inquest.LeaveMany
	}
	lease, err := p.client.Lease.Grant(ctx, found.Granted)
	if err != nil {
		return inquest.LeaveSlow
	}
	noted, err := o.note(ctx, o.self, found.modified, ended)
	switch {
	case storage.IsNotFound(err):
		return inquest.LeaveReopened
	case storage.IsInvalidObj(err):
		return inquest.LeaveRenewed
	case err != nil:
		return inquest.LeaveSlow
	}
	verdict := o.removeNoted(ctx, found, noted, slot, lease.ID)
	if verdict.Left() {
		// If that fails, the next report of the instance does it.
		undo, cancel := context.WithTimeout(p.client.Ctx(), undoTimeout)
		defer cancel()
		_, _ = o.note(undo, o.self, noted, time.Time{})
	}
	return verdict
}

// removeNoted removes the record, which has that revision since it was noted.
func (o *Presence) removeNoted(ctx context.Context, found finding, noted int64, slot string, lease clientv3.LeaseID) inquest.Verdict {
	p := o.presences
	// The transaction cannot compare when the lease was renewed, so that is asked just before it.
	last, cancelLast := context.WithTimeout(ctx, p.limits.Late)
	defer cancelLast()
	left, err := p.client.Lease.TimeToLive(last, o.lease)
	if err != nil {
		return inquest.LeaveSlow
	}
	if left.TTL > found.Remaining {
		return inquest.LeaveRenewed
	}
	done, err := p.client.KV.Txn(last).
		If(clientv3.Compare(clientv3.ModRevision(o.record), "=", noted),
			clientv3.Compare(clientv3.Value(o.key()), "=", o.stored),
			clientv3.Compare(clientv3.ModRevision(p.silences), "<", found.revision+1).WithPrefix(),
			clientv3.Compare(clientv3.CreateRevision(slot), "=", 0)).
		Then(clientv3.OpDelete(o.record), clientv3.OpDelete(o.key()), clientv3.OpPut(slot, o.Process, clientv3.WithLease(lease))).
		Commit()
	if err != nil || !done.Succeeded {
		// Nobody needs the lease, but it may have been used.
		return inquest.LeaveSlow
	}
	klog.FromContext(ctx).Info("Removed the ControllerInstance of a process that has died: its presence ended, and nothing renewed the record after that",
		"record", o.self.Name, "ring", o.self.Ring, "process", o.Process, "uid", o.self.UID)
	return inquest.Remove
}
