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
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/watch"
)

// reading returns a term that does nothing but read the log.
func (i *instance) reading() *term {
	ctx := testContext(i.t)
	term := i.registered(ctx)
	ended := make(chan struct{})
	revision := term.machine.View().Revision
	go func() {
		defer close(ended)
		term.readLog(ctx, revision)
	}()
	i.t.Cleanup(func() { <-ended })
	synctest.Wait()
	return term
}

// peer is the record of another instance of the ring.
func peer(k *int64) shardingv1alpha1.ControllerInstance {
	return shardingv1alpha1.ControllerInstance{
		ObjectMeta: metav1.ObjectMeta{Name: "peer", UID: "uid-peer"},
		Spec:       shardingv1alpha1.ControllerInstanceSpec{Ring: "workloads", HashKey: (*shardingv1alpha1.HashKey)(k)},
	}
}

// expectPeer says which key the machine must take the peer to have, as of which revision;
// "gone": the peer is not there.
func expectPeer(t *testing.T, term *term, want string, revision int64) {
	t.Helper()
	view := term.machine.View()
	got := "gone"
	if record, ok := view.Get("peer"); ok {
		got = hashkey.FormatOptional(record.Key)
	}
	if got != want || view.Revision != revision {
		t.Errorf("the machine takes the peer to be %s as of %d, want %s as of %d", got, view.Revision, want, revision)
	}
}

// reads returns the lists and watches of the registry after the registration.
func (r *registry) reads() []request {
	return r.got(func(q request) bool { return q.verb == "list" || q.verb == "watch" })[1:]
}

func TestTheMachineGetsTheLogsEventsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		term := newInstance(t, r).reading()
		began := r.revision()
		reads := r.reads()
		if len(reads) != 1 || reads[0].list.ResourceVersion != strconv.FormatInt(began, 10) || reads[0].list.FieldSelector != "spec.ring=workloads" {
			t.Fatalf("got %v, want a watch of the ring from the registration's revision, %d", reads, began)
		}
		r.edit(peer(nil))
		term.settle()
		expectPeer(t, term, hashkey.FormatOptional(nil), began+1)
		r.edit(peer(key(99)))
		term.settle()
		expectPeer(t, term, hashkey.Format(99), began+2)
		r.remove("peer")
		term.settle()
		expectPeer(t, term, "gone", began+3)
		r.edit(peer(key(5)))
		r.edit(peer(key(6)))
		r.remove("peer")
		r.edit(peer(key(7)))
		term.settle()
		expectPeer(t, term, hashkey.Format(7), began+7)
	})
}

func TestTheLogTellsHowARecordEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		term := newInstance(t, r).reading()
		ended := metav1.NewMicroTime(epoch)
		died := peer(key(99))
		died.Status.PresenceEnded = &ended
		r.edit(died)
		term.settle()
		heard := time.Now()
		time.Sleep(time.Second)
		r.remove("peer")
		term.settle()
		if got := term.observer.ends[died.UID]; !got.at.Equal(epoch) || !got.heard.Equal(heard) {
			t.Errorf("the presence of the peer ended at %v, heard at %v, want %v and %v", got.at, got.heard, epoch, heard)
		}
	})
}

func TestAWatchThatIsClosedIsContinuedWithoutAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		term := newInstance(t, r).reading()
		began := r.revision()
		r.edit(peer(key(99)))
		term.settle()
		r.end <- struct{}{}
		r.edit(peer(key(150)))
		time.Sleep(time.Second)
		term.settle()
		expectPeer(t, term, hashkey.Format(150), began+2)
		reads := r.reads()
		if len(reads) != 2 || reads[1].verb != "watch" || reads[1].list.ResourceVersion != strconv.FormatInt(began+1, 10) {
			t.Errorf("got %v, want a second watch, from revision %d", reads, began+1)
		}
	})
}

// As where a role lacks the verb, or one of several API servers is ill.
func TestWatchesThatEndAtOnceAreNotOpenedAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		i := newInstance(t, r)
		i.reading().settle()
		expired := watch.Event{Type: watch.Error, Object: &apierrors.NewResourceExpired("injected").ErrStatus}
		for begun := time.Now(); time.Since(begun) < time.Minute; {
			select {
			case r.raw <- expired:
			case <-time.After(time.Second):
			}
		}
		if n := len(r.reads()); n > 50 {
			t.Errorf("%d lists and watches in a minute", n)
		}
	})
}

// Keys may have gone and come back unseen, so the machine must not take the list for
// events of the log.
func TestAWatchThatCannotBeContinuedIsReplacedByAList(t *testing.T) {
	for name, event := range map[string]watch.Event{
		"the revision is too old":   {Type: watch.Error, Object: &apierrors.NewResourceExpired("injected").ErrStatus},
		"an object of another type": {Type: watch.Modified, Object: &v1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "9"}}},
		"a revision that is no number": {Type: watch.Modified, Object: &shardingv1alpha1.ControllerInstance{
			ObjectMeta: metav1.ObjectMeta{Name: "peer", ResourceVersion: "v9"},
		}},
		"no revision": {Type: watch.Modified, Object: &shardingv1alpha1.ControllerInstance{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t)
				i := newInstance(t, r)
				term := i.reading()
				record := i.record()
				record.Spec.HashKey = (*shardingv1alpha1.HashKey)(key(hashkey.Max))
				r.edit(record)
				r.edit(peer(key(99)))
				term.settle()
				gained := r.revision() - 1

				r.withhold(true)
				r.remove("peer")
				r.edit(peer(key(150)))
				r.edit(shardingv1alpha1.ControllerInstance{ObjectMeta: metav1.ObjectMeta{Name: "other-2"}})
				listed := r.revision()
				term.settle()
				if got := term.machine.Decide(term.input(time.Now(), false)).Since; got != gained {
					t.Fatalf("the keys were gained at %d, want %d", got, gained)
				}
				r.raw <- event
				term.settle()
				expectPeer(t, term, hashkey.Format(150), listed)
				if got := term.machine.Decide(term.input(time.Now(), false)).Since; got != listed {
					t.Errorf("the caches are to hold the keys as of %d, want %d: some may have been away meanwhile", got, listed)
				}
				reads := r.reads()
				if len(reads) != 3 || reads[1].verb != "list" || reads[2].verb != "watch" {
					t.Fatalf("got %v, want a watch, a list and a watch", reads)
				}
				if got := reads[1].list; got.ResourceVersion != "" || got.ResourceVersionMatch != "" || got.FieldSelector != "spec.ring=workloads" {
					t.Errorf("listed %+v, want the newest state of the ring", got)
				}
				if got := reads[2].list.ResourceVersion; got != strconv.FormatInt(listed, 10) {
					t.Errorf("the watch goes on from revision %s, want %d, the list's", got, listed)
				}
				r.withhold(false)
				r.remove("peer")
				term.settle()
				expectPeer(t, term, "gone", listed+1)
			})
		})
	}
}

func TestAListThatFailsIsRepeatedEvery200Milliseconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		term := newInstance(t, r).reading()
		failures := 3
		r.intercept(func(_ context.Context, q request) error {
			if q.verb == "list" && failures > 0 {
				failures--
				return errors.New("injected")
			}
			return nil
		})
		r.edit(peer(key(99)))
		r.raw <- watch.Event{Type: watch.Error, Object: &apierrors.NewResourceExpired("injected").ErrStatus}
		time.Sleep(5 * time.Second)
		term.settle()
		expectTimes(t, r.got(ofVerb("list"))[1:], 0, 200*time.Millisecond, 400*time.Millisecond, 600*time.Millisecond)
		expectPeer(t, term, hashkey.Format(99), r.revision())
	})
}
