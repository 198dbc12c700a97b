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
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/balance"
	"k8s.io/klog/v2"
)

const (
	// loadInterval is how often the load is counted, and told at most where nothing else is.
	loadInterval = time.Second
	// countShare is how much longer than counting it took the load is not counted again.
	countShare = 100
	// heapInterval is how often the heap and the work are told at most where nothing else is: they
	// swing with each collection, and with each change of a large object. A heap that has grown by
	// half is told like a load: a new leader's, which is to be given less.
	heapInterval = 30 * time.Second
	// A load is told when it has changed by a twentieth: half of what an instance may have too much.
	// A heap is when it has changed by a tenth.
	loadParts = 20
	heapParts = 10
	// workStep is how much the work must have changed to be told, in thousandths.
	workStep = 100
)

// news is what an instance tells of itself in its record's status. Each is valid only for
// the version of the record that it was sent for, so one that arrives late, after another,
// is void.
type news struct {
	// stored is the record as the registry is known to have stored it last, from the log
	// or an answer.
	stored ring.Record
	// status is what the record should say.
	status shardingv1alpha1.ControllerInstanceStatus
	// states are those of the controllers that the registry has stored last from here.
	states []shardingv1alpha1.ControllerState
	// saying is what the news that are under way say of the caches.
	saying hashkey.Ranges
	// counted is when the load was last counted, for the keys owned then. weighed are the keys for
	// which the registry has stored a load.
	counted        time.Time
	owned, weighed hashkey.Ranges
	// counting is how long that took, underCount says that it is being counted now.
	counting   time.Duration
	underCount bool
	// work is how much there has been to do.
	work work
	// collections is how many garbage collections there had been when the heap was last noted.
	collections uint64
	// sending says that one is under way, sent when the last one was sent.
	sending bool
	sent    time.Time
	// refusedSince is since when the server has refused all that were answered; zero: it does not.
	refusedSince time.Time
	backoff
}

// learn notes a state of the instance's own record. They may come in any order.
func (t *term) learn(r ring.Record) {
	t.history.saw(r)
	if r.Name == t.self.Name && r.UID == t.self.UID && r.Revision > t.news.stored.Revision {
		t.news.stored = r
		t.drained = r.Drained
	}
}

// announced returns the keys that the record says, is about to say, or will say that the caches
// hold.
func (n *news) announced() hashkey.Ranges {
	return n.stored.Cached.Union(n.saying).Union(ring.CachedRanges(n.status.Cached))
}

// report sends what others should know, if the record does not say it yet. It returns
// after which time to try again; 0: there is no such time.
func (t *term) report(ctx context.Context, now time.Time, d ring.Decision) time.Duration {
	held := t.held(d.Follow)
	t.observer.observe(now, t.machine.View(), d, held, t.cfg.Gate.serving(), t.releasing.Empty() && t.voiding.Empty())
	t.count(ctx, now, d.Owned)
	n := &t.news
	n.status.Phase = d.Phase
	if d.Owned.Empty() && t.waitsAtDoor() {
		// Nobody would work on what it were given.
		held = nil
	}
	n.status.Cached = ring.StatusCached(held)
	n.status.Epoch, n.status.Gives = d.Report.Epoch, nil
	if gift := d.Report.Gives; gift != nil {
		n.status.Gives = &shardingv1alpha1.Gift{To: gift.To, HashKey: shardingv1alpha1.HashKey(gift.Key)}
	}
	due := now
	switch {
	case n.sending:
		return 0
	case n.stored.Phase != d.Phase, !n.stored.Cached.Equal(held), !n.stored.Report.Equal(d.Report), !t.saysWhoWorks(), !n.owned.Equal(n.weighed):
		// Others wait for it; one that joins asks whoever has most since its predecessor has gone.
	case differs(n.stored.Weight, n.status.Weight, loadParts), differs(n.stored.Shareable(), shareable(n.status), loadParts),
		liveBytes(n.status) > n.stored.LiveBytes && differs(n.stored.LiveBytes, liveBytes(n.status), 2):
		// What is in work comes and goes all the time, and is told with the rest.
		due = n.sent.Add(loadInterval)
	case differs(n.stored.LiveBytes, liveBytes(n.status), heapParts), max(n.stored.Work-n.status.Work, n.status.Work-n.stored.Work) >= workStep:
		due = n.sent.Add(heapInterval)
	default:
		return 0
	}
	if n.retryAt.After(due) {
		due = n.retryAt
	}
	if due.After(now) {
		return due.Sub(now)
	}
	t.tell(ctx, now)
	return 0
}

// count has the load counted, unless it was counted a moment ago for the same keys. That reads and
// sorts the keys of all objects, so it is done beside the deciding goroutine.
func (t *term) count(ctx context.Context, now time.Time, owned hashkey.Ranges) {
	n := &t.news
	recent := now.Sub(n.counted) < max(loadInterval, countShare*n.counting) && owned.Equal(n.owned)
	// What room there is is known only once what was filled last is counted.
	awaited := t.cfg.Capacity() > 0 && n.counted.Before(t.opened)
	if n.underCount || recent && !awaited {
		return
	}
	n.underCount = true
	n.work.sample(now, t.cfg.Gate, t.controllers, t.cfg.Workers)
	var l load
	filling := t.fillsWithin()
	t.aside(ctx, func() { l = t.countLoad(owned) }, func() {
		n.underCount, n.counted, n.counting, n.owned = false, now, l.took, owned
		n.status.Work = n.work.most()
		n.status.Weight, n.status.Heaviest, n.status.BeforeHeaviest = l.weight, l.heaviest, l.before
		n.status.Busy = int64(t.cfg.Gate.Busy(hashkey.All()))
		t.cfg.Metrics.Load(n.status.Weight, n.status.Busy)
		t.cfg.Metrics.Work(float64(n.status.Work) / 1000)
		t.watchHeaviest(ctx, now, l)
		objects := t.cfg.Heap.hold(t.Member, l.objects)
		t.cfg.Heap.fills(t.Member, filling || t.fillsWithin(), now)
		if bytes, collections := t.cfg.Heap.live(); collections != n.collections {
			n.collections = collections
			n.status.Heap = &shardingv1alpha1.ProcessHeap{LiveBytes: int64(bytes), Objects: objects}
		}
	})
}

// fillsWithin says whether the caches of a process with a capacity do not hold yet all that they
// follow.
func (t *term) fillsWithin() bool {
	return t.cfg.Capacity() > 0 && !t.held(t.follow).Equal(t.follow)
}

// load is what has been counted of the objects in the caches: all, and those for the keys owned,
// with how many share the heaviest key of these and how many come before them.
type load struct {
	objects, weight, heaviest, before int64
	key                               int64
	took                              time.Duration
}

// countLoad counts the load. It may be called from any goroutine.
func (t *term) countLoad(owned hashkey.Ranges) load {
	begun := t.cfg.Clock.Now()
	keys := t.keys(hashkey.All())
	l := load{objects: int64(len(keys))}
	keys = slices.DeleteFunc(keys, func(key int64) bool { return !owned.Contains(key) })
	l.weight = int64(len(keys))
	key, n := balance.Heaviest(keys)
	l.key, l.heaviest, l.before = key, int64(n), int64(balance.Before(key, keys, owned))
	l.took = t.cfg.Clock.Since(begun)
	return l
}

// differs says whether something has changed by one part of so many, or more.
func differs(from, to, parts int64) bool {
	change := max(to-from, from-to)
	return change > 0 && float64(parts)*float64(change) >= float64(from)
}

// shareable returns what others take the instance to have to share, by that status.
func shareable(status shardingv1alpha1.ControllerInstanceStatus) int64 {
	return ring.Record{Weight: status.Weight, Heaviest: status.Heaviest}.Shareable()
}

func liveBytes(status shardingv1alpha1.ControllerInstanceStatus) int64 {
	if status.Heap == nil {
		return 0
	}
	return status.Heap.LiveBytes
}

// tell sends the status beside the deciding goroutine, which gets the result.
func (t *term) tell(ctx context.Context, now time.Time) {
	logger := klog.FromContext(ctx)
	n := &t.news
	n.sending, n.sent, n.saying = true, now, ring.CachedRanges(n.status.Cached)
	status, owned, revision := n.status, n.owned, n.stored.Revision
	go func() {
		var stored ring.Record
		err := t.admitted(ctx, func(ctx context.Context) (err error) {
			stored, err = t.store(ctx, &status, revision)
			return err
		})
		t.post(ctx, func() {
			n.sending, n.saying = false, nil
			t.learn(stored)
			switch {
			case err == nil:
				n.backoff, n.refusedSince = backoff{}, time.Time{}
				n.states, n.weighed = status.Controllers, owned
				t.cfg.Metrics.News(ResultStored)
			case isGone(err), stored.UID != "" && stored.UID != t.self.UID:
				t.lose(logger, err)
			case apierrors.IsConflict(err):
				again := n.pause > 0
				n.refusedSince = time.Time{}
				n.fail(t.cfg.Clock.Now())
				if !again {
					// The version is known now, and was most likely the instance's own write.
					n.retryAt = time.Time{}
				}
				t.cfg.Metrics.News(ResultConflict)
				logger.V(2).Info("The instance's record has changed since; will tell the news again", "pause", n.pause, "err", err)
			default:
				n.fail(t.cfg.Clock.Now())
				t.cfg.Metrics.News(ResultFailed)
				logger.Error(err, "Could not tell the news of the instance; will try again", "pause", n.pause)
				switch answer := apierrors.APIStatus(nil); {
				case isRefused(err):
					t.refuseNews(logger, err)
				case errors.As(err, &answer):
					n.refusedSince = time.Time{}
				}
			}
		})
	}()
}

// refuseNews takes note that the server has refused news, whatever their version. Others wait for
// what they say, and no later ones need be better. So after a step the instance gives its record
// up, and begins anew with one that says nothing yet.
func (t *term) refuseNews(logger klog.Logger, reason error) {
	n, now := &t.news, t.cfg.Clock.Now()
	if n.refusedSince.IsZero() {
		n.refusedSince = now
	}
	if t.lost || now.Sub(n.refusedSince) < t.cfg.StepLimit {
		return
	}
	logger.Error(reason, "The API server refuses what the instance has to tell; will give its record up, and register anew", "refusedFor", now.Sub(n.refusedSince))
	t.observer.fenced("The API server refuses what the instance has to tell; it joins anew")
	t.lost, t.gaveUp = true, true
}

// isRefused says whether the server has judged a request, and does not want it. That it cannot
// carry one out now, or that the record has changed, says nothing of the next.
func isRefused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// store writes the status into the record as of that revision, and returns the record that
// this has made. After a conflict it returns the record as it is: the log may be far behind.
func (t *term) store(ctx context.Context, status *shardingv1alpha1.ControllerInstanceStatus, revision int64) (ring.Record, error) {
	fields, err := statusFields(status)
	if err != nil {
		return ring.Record{}, err
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": t.self.UID, "resourceVersion": strconv.FormatInt(revision, 10)},
		"status":   fields,
	})
	if err != nil {
		return ring.Record{}, err
	}
	stored, err := t.cfg.Client.Patch(ctx, t.self.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	if err == nil {
		return ring.NewRecord(stored)
	}
	if !apierrors.IsConflict(err) {
		return ring.Record{}, err
	}
	live, getErr := t.cfg.Client.Get(ctx, t.self.Name, metav1.GetOptions{})
	if getErr != nil {
		return ring.Record{}, getErr
	}
	record, recordErr := ring.NewRecord(live)
	if recordErr != nil {
		return ring.Record{}, recordErr
	}
	return record, err
}

// serverFields are those fields of the status that the API server sets.
var serverFields = []string{"phaseSince", "presenceEnded"}

// statusFields returns all other fields of a status for a merge patch. One that is empty,
// which JSON leaves out, is null there, so the patch clears what it said before. Values
// stay as they were marshalled: a key does not fit into the float64 of an any.
func statusFields(status *shardingv1alpha1.ControllerInstanceStatus) (map[string]json.RawMessage, error) {
	data, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	fields := map[string]json.RawMessage{}
	for field := range reflect.TypeFor[shardingv1alpha1.ControllerInstanceStatus]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if slices.Contains(serverFields, name) {
			continue
		}
		fields[name] = json.RawMessage("null")
	}
	return fields, json.Unmarshal(data, &fields)
}
