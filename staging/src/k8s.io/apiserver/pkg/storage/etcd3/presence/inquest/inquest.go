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

package inquest

import (
	"time"

	"k8s.io/client-go/tools/ring/fence"
)

// Limits are the times that an inquest keeps to.
type Limits struct {
	// Gather is how long ends are gathered. Where presences of several processes end within it of
	// each other, servers or the network have ended them.
	Gather time.Duration
	// Window is how long nothing may have renewed the lease since the end. A process that hears of
	// the end renews it within milliseconds.
	Window time.Duration
	// Overdue is how long after its next turn nothing may have renewed the lease. Who has not heard
	// of the end renews it in turn.
	Overdue time.Duration
	// Poll is how often the lease is looked at.
	Poll time.Duration
	// Late is how late a timer may fire, and how long etcd may take to answer. Beyond that the API
	// server or etcd is slow itself, and may be what keeps the process from renewing.
	Late time.Duration
	// Again is how long after the end an inquest may begin anew, once that is over. What another API
	// server has announced in the first second after the end has to last until this one looks.
	Again time.Duration
	// Settle is how old a presence has to be that was opened in place of one that had ended by
	// itself. Before that its end says nothing: the connections of its process end by themselves.
	Settle time.Duration
}

// Default are the limits of the API server.
var Default = Limits{
	Gather: time.Second, Window: 2 * time.Second, Overdue: 500 * time.Millisecond,
	Poll: 100 * time.Millisecond, Late: 250 * time.Millisecond, Again: 3 * time.Second,
	Settle: 15 * time.Second,
}

// Verdict is what is to be done.
type Verdict int

const (
	// Wait for the next timer (Inquest.Due).
	Wait Verdict = iota
	// Ask etcd how long the record's lease lasts, and whether the presence is the newest.
	Ask
	// Announce to the other API servers that nothing has renewed the lease, and wait. Where that is
	// announced of several processes, presences of several have ended.
	Announce
	// Remove the record, if its presence is the newest, nobody has written it since the last
	// answer, and nothing was announced since of another process.
	Remove
	// LeaveRenewed, and what follows, leave the record to its lease. Something has renewed it.
	LeaveRenewed
	// LeaveReopened: the instance has a newer presence, or no record.
	LeaveReopened
	// LeaveUnsteady: the presence was opened in place of one that had ended by itself not long before.
	LeaveUnsteady
	// LeaveSeveral: presences of other processes have ended, too.
	LeaveSeveral
	// LeaveLate: this server's timers were late, for as long as an inquest may begin anew.
	LeaveLate
	// LeaveSlow: etcd was slow to answer, or did not, for as long.
	LeaveSlow
	// LeaveUnclear: it cannot be told whether something has renewed the lease.
	LeaveUnclear
	// LeaveMany: a quarter of the ring, or one of it, was removed within a lease.
	LeaveMany
)

// String returns a word for logs and metrics.
func (v Verdict) String() string {
	return [...]string{"wait", "ask", "announce", "removed", "renewed", "reopened", "unsteady", "several", "late", "slow", "unclear", "many"}[v]
}

// Left says whether the record is left to its lease.
func (v Verdict) Left() bool { return v >= LeaveRenewed }

// Answer is what etcd says of a record.
type Answer struct {
	// Newest says that the record exists, and that the presence is the newest of its instance.
	Newest bool
	// Several says that presences of other processes have ended, at whichever server: something is
	// announced of one, or one that had lost its presence has opened another since Gather before the
	// end.
	Several bool
	// Granted and Remaining are those of the record's lease, in whole seconds. Remaining is rounded
	// down.
	Granted, Remaining int64
}

// Unsteady says whether the end of a presence that was opened in place of a lost one comes too soon
// after that to say anything. Then there is no inquest: LeaveUnsteady is the verdict.
func (l Limits) Unsteady(opened, ended time.Time) bool { return ended.Sub(opened) < l.Settle }

// Inquest is the inquiry into one end. It is plain data.
type Inquest struct {
	limits Limits
	// noticed is when the end was. ended counts as that: it is later if the inquest has begun anew.
	noticed, ended time.Time
	// due is when the next timer is to fire.
	due time.Time
	// Nothing has renewed the lease after silentFrom until silentTo. Both are zero at first.
	silentFrom, silentTo time.Time
	several, announced   bool
}

// New opens the inquest into an end that was noticed at an instant.
func New(limits Limits, ended time.Time) *Inquest {
	return &Inquest{limits: limits, noticed: ended, ended: ended, due: ended.Add(limits.Poll)}
}

// again begins the inquest anew, as if the end were noticed a little later: what has been found
// says nothing, as the API server or etcd was slow. After a while there is no point in that.
func (q *Inquest) again(now time.Time, leave Verdict) Verdict {
	if now.Sub(q.noticed) > q.limits.Again {
		return leave
	}
	anew := now.Add(q.limits.Gather)
	*q = Inquest{limits: q.limits, noticed: q.noticed, ended: anew, due: anew, several: q.several}
	return Wait
}

// Due returns when the next timer is to fire.
func (q *Inquest) Due() time.Time { return q.due }

// Announced says whether the silence was announced: from then on the other processes count.
func (q *Inquest) Announced() bool { return q.announced }

// Fire is called when the timer has fired.
func (q *Inquest) Fire(now time.Time) Verdict {
	if now.Sub(q.due) > q.limits.Late {
		return q.again(now, LeaveLate)
	}
	return Ask
}

// Unanswered is called in place of Hear when etcd has not answered.
func (q *Inquest) Unanswered(now time.Time) Verdict { return q.again(now, LeaveSlow) }

// Hear is called with etcd's answer, and when it was asked for and came.
//
// A lease of which Remaining is left was renewed more than Granted - Remaining - 1 seconds ago, and
// at most Granted - Remaining: Remaining is rounded down. So each answer proves that nothing has
// renewed it for a whole number of seconds, and several answers together prove more.
func (q *Inquest) Hear(asked, came time.Time, a Answer) Verdict {
	silent := time.Duration(a.Granted-a.Remaining-1) * time.Second
	from, to := came.Add(-silent), asked
	switch {
	case came.Sub(asked) > q.limits.Late:
		return q.again(came, LeaveSlow)
	case !a.Newest:
		return LeaveReopened
	case asked.Add(-silent - time.Second).After(q.ended):
		return LeaveRenewed
	}
	q.prove(from, to)
	q.several = q.several || a.Several
	q.due = later(q.due.Add(q.limits.Poll), came)
	due := fence.RenewalPeriod(time.Duration(a.Granted) * time.Second)
	switch {
	case !q.announced && came.Sub(q.ended) >= q.limits.Gather:
		q.announced = true
		return Announce
	case q.announced && q.several:
		return LeaveSeveral
	case q.announced && silent >= due+q.limits.Overdue && q.silentTo.Sub(later(q.silentFrom, q.ended)) >= q.limits.Window:
		return Remove
	case came.Sub(q.ended) >= q.limits.Window+q.limits.Gather+due:
		return LeaveUnclear
	}
	return Wait
}

// prove notes that nothing has renewed the lease after from until to.
func (q *Inquest) prove(from, to time.Time) {
	switch {
	case to.Before(from):
		return
	case from.After(q.silentTo), from.Before(q.silentFrom):
		q.silentFrom = from
	}
	q.silentTo = to
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
