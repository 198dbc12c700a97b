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

// ringMutations drop or bend each rule and each time limit of the Machine, and each rule of the
// Roster.
var ringMutations = []change{
	// The donor.
	{"a donor gives without draining", "own.go", "case in.idle(share):", "case true:"},
	{"a donor does not raise its epoch", "own.go", "g.gives = &gift\n\t\t\tm.epoch++", "g.gives = &gift"},
	{"a donor that called off reopens under its old epoch", "own.go", "if m.give.draining && m.give.gives == nil {", "if false {"},
	{"an epoch that others raised is not taken", "machine.go", "m.epoch = max(m.epoch, self.Epoch)\n", "\n"},
	{"a donor raises its epoch without end", "own.go", "if g.gives == nil {", "if true {"},
	{"a donor grants before its report is stored", "own.go", "if in.Reported.Equal(Report{Epoch: m.epoch, Gives: g.gives}) {", "if true {"},
	{"a donor grants on a report of another gift", "record.go", "return r.Gives == nil || *r.Gives == *other.Gives", "return true"},
	{"a donor grants on a report of another epoch", "record.go", "r.Epoch != other.Epoch || ", ""},
	{"a donor reopens before its record gives nothing", "machine.go", "if !self.Report.Equal(d.Report) {", "if false {"},
	{"a donor reopens on caches older than its record", "machine.go", " || !then.Report.Equal(self.Report)", ""},
	{"a donor asks what is in work before its gate has shut", "own.go", "case !asked:", "case false && !asked:"},
	{"a donor does not shut its gate for the share", "own.go", "d.Open = d.Open.Minus(share)", ""},
	{"a donor does not wait for warm caches", "own.go", "if !receiver.Cached.Covers(share.Intersect(in.Serving)) {", "if false {"},
	{"a donor waits for warm caches where it does not work", "own.go", "Covers(share.Intersect(in.Serving))", "Covers(share)"},
	{"a donor waits for cold caches without end", "own.go", "if in.Now-g.since < m.limits.Fill {", "if true {"},
	{"a donor waits half as long for cold caches", "own.go", "if in.Now-g.since < m.limits.Fill {", "if in.Now-g.since < m.limits.Fill/2 {"},
	{"a donor names a key at once to who was not ready", "own.go", "m.rest(receiver.registration(), g.since+m.limits.Fill)", ""},
	{"a donor names nobody a key after one was not ready", "own.go", "m.rest(receiver.registration(), ", "m.rest(registration{}, "},
	{"a donor names a key at once after a drain that did not end", "own.go", "m.rest(registration{}, g.drainingSince+m.limits.Step)", ""},
	{"a donor rests too short", "own.go", "since + 4*m.limits.Step", "since + 3*m.limits.Step"},
	{"a donor's rest ends another", "own.go", "if until > since && other != of {", "if false {"},
	{"a donor drains without end", "own.go", "case in.Now-g.drainingSince >= m.limits.Step:", "case false:"},
	{"a donor waits without end for what it gives to be stored", "own.go", "if in.Now >= limit {", "if false {"},
	{"a donor waits half as long for what it gives to be stored", "own.go", "limit := g.givesSince + m.limits.Step", "limit := g.givesSince + m.limits.Step/2"},
	{"a donor does not wake when what it gives is not stored", "own.go", "\t\td.waitUntil(limit)\n", ""},
	{"a donor names a key at once after what it gave was not stored", "own.go", "m.rest(registration{}, limit)", ""},
	{"a donor's drain counts from when it took the handover up", "own.go", "case in.Now-g.drainingSince >= m.limits.Step:", "case in.Now-g.since >= m.limits.Step:"},
	{"a donor does not report that it drains", "own.go", "d.Phase = shardingv1alpha1.InstanceWait", ""},
	{"a donor that drains reopens when the receiver's caches get cold", "own.go", "if !g.draining {", "if true {"},
	{"a donor turns to another handover halfway", "own.go", "if m.give.of(h) {", "if false {"},
	{"a donor serves handovers in reverse", "own.go", "h.rank() < next.rank()", "h.rank() > next.rank()"},
	{"a donor serves moves up last", "handover.go", "return 0", "return 3"},
	{"a donor serves joins last", "handover.go", "return 1", "return 3"},
	{"a donor remembers a handover that is closed", "own.go", "\t}\n\tm.give = give{}\n", "\t}\n"},
	{"a handover is remembered without its record", "machine.go", "return g.record == h.Record.registration() && ", "return "},
	{"a handover is remembered without its key", "machine.go", " && g.key == *h.Record.Next", ""},

	// Splitting.
	{"an owner splits though its gate is shut", "own.go", "if d.Phase != shardingv1alpha1.InstanceActive {", "if false {"},
	{"an owner with a shut gate reports Active", "own.go", "if in.Serving.Empty() {", "if false {"},
	{"an owner splits a single key", "own.go", "d.Owned.Width() < 2", "d.Owned.Width() < 1"},
	{"an owner names a key for one that leaves", "own.go", "!r.joins() {", "r.Key != nil {"},
	{"a split at the owner's own key", "split.go", "upTo(width - 2)", "upTo(width - 1)"},
	{"a split at the upper median", "split.go", "len(keys)>>halves, 1)", "len(keys)>>halves+1, 1)"},
	{"a heavy key at the end leaves the others with it", "split.go", "; end > 0 {", "; end >= len(keys)/2 {"},
	{"a range is split where none was", "split.go", "range vacated {", "range vacated[:0] {"},
	{"a range is split where one was, however unevenly", "split.go", "all/5 + 1", "all + 1"},
	{"a range is split at the first of several", "split.go", "at, limit = d, uneven(d)", "at = d"},
	{"only the last that has gone is known", "vacated.go", "slices.Concat(known, gone)", "gone"},
	{"of several that go at once one is known", "vacated.go", "gone = append(gone, *r.Key)", "gone = []int64{*r.Key}\n\t\tbreak"},
	{"one that has another's name has not gone", "vacated.go", "; later.UID == r.UID {", "; later.Name != \"\" {"},
	{"where a range ended stays known", "vacated.go", "return !owned.Contains(key)", "return owned.Empty()"},
	{"who has one heavy key is asked by its weight", "join.go", "min(r.Weight, 2*(r.Weight-r.Heaviest))", "r.Weight"},

	// The receiver.
	{"a receiver does not fill its caches before the grant", "machine.go", "if h.Receiver == m.name {", "if false {"},
	{"a receiver waits for the grant of a join without end", "join.go", "limit = m.receiveLimit(handovers, in.Room)", "limit = 1000 * m.limits.Step"},
	{"a receiver waits a step for the grant of a join", "join.go", "limit = m.receiveLimit(handovers, in.Room)", "limit = m.limits.Step"},
	{"a receiver waits for a move up without end", "own.go", "if limit := m.receiveLimit(handovers, in.Room); in.Now-since >= limit {", "if limit := m.receiveLimit(handovers, in.Room); false {"},
	{"a receiver waits a step too short for a grant", "machine.go", "return m.limits.Fill + 3*m.limits.Step", "return m.limits.Fill + 2*m.limits.Step"},
	{"a receiver's wait goes on when what it waits for has changed", "machine.go", "if m.wait != w {", "if m.wait == (waiting{}) {"},
	{"a receiver's wait goes on when its move has been taken back", "own.go", "if !waits {", "if false && !waits {"},

	// Joining.
	{"a wish is waited for without end", "join.go", "limit := m.limits.Step", "limit := 1000 * m.limits.Step"},
	{"a wish is waited for half a step", "join.go", "limit := m.limits.Step", "limit := m.limits.Step / 2"},
	{"an overdue donor is asked again", "join.go", "m.slow = asked.name", ""},
	{"who joins turns back to a donor that let it wait", "join.go", "(slow != asked || overdue)", "overdue"},
	{"a donor that cannot be asked any more is kept", "join.go", "case overdue && named, asked == nil:", "case overdue && named:"},
	{"the donor with fewest workloads is asked", "join.go", "1), d.compareWorkloads(other, 1),", "1), -d.compareWorkloads(other, 1),"},
	{"the narrowest donor is asked", "join.go", "d.compareWidth(other, 1))", "-d.compareWidth(other, 1))"},
	{"a donor is asked that does not work", "join.go", "if working || r.Name == with", "if true || r.Name == with"},
	{"a donor that drains is not asked", "join.go", " || r.Phase == shardingv1alpha1.InstanceWait", ""},
	{"a donor of one key is asked", "join.go", "width >= 2 &&", "width >= 1 &&"},
	{"more workloads are clearly better", "join.go", "return d.compareWorkloads(other, 2) > 0", "return d.compareWorkloads(other, 1) > 0"},
	{"a wider range is clearly better", "join.go", "return d.compareWidth(other, 2) >= 0", "return d.compareWidth(other, 1) >= 0"},
	{"nothing is clearly better", "join.go", "if asked != nil && !best.clearlyBetter(asked) {", "if asked != nil {"},
	{"all that join run to one donor", "join.go", "best.asked++", ""},
	{"a donor is shared with those that do not ask it", "join.go", "d.asked++", ""},
	{"a better donor is asked though a key is named", "join.go", "case named, best == asked:", "case best == asked:"},

	// The empty ring.
	{"a younger instance takes the empty ring", "join.go", "if len(m.older()) > 0 {", "if false {"},
	{"older instances that have gone count", "machine.go", "m.registeredBefore = slices.DeleteFunc(slices.Clone(m.registeredBefore), gone)", ""},
	{"older instances that have registered anew count", "machine.go", "return !ok || r.UID != older.uid", "return !ok || r.Name != older.name"},

	{"nobody fills its caches when all owners leave", "join.go", "if m.heir() && ", "if false && m.heir() && "},
	{"all that join fill their caches when all owners leave", "join.go", "ok && !r.leaving()", "ok && r.Name == \"\""},

	// Crash loops.
	{"a process that died young does not rest", "own.go", "until > in.Now", "false"},
	{"a rest does not get longer", "history.go", "firstRest<<min(n-1, 16)", "firstRest"},
	{"one that left counts as dead", "history.go", "l.leaving || now-l.since", "now-l.since"},
	{"one that lived long counts as young", "history.go", "now-l.since >= youngAge", "false"},
	{"a process that lives on rests", "history.go", "h.slots[s].holder == r.Holder", "false"},

	// Deaths and gaps.
	{"old caches do after a gain", "machine.go", "if grew || m.give", "if grew && false || m.give"},
	{"old caches do after a handover that was called off", "machine.go", "grew || m.give.draining && !m.give.openIn(next)", "grew"},
	{"caches are renewed though nothing was drained", "machine.go", "m.give.draining && !m.give.openIn(next)", "m.give != (give{}) && !m.give.openIn(next)"},
	{"old caches do after a gap in the log", "machine.go", "unseen.\n\tm.gainedAt = view.Revision", "unseen."},

	// Leaving.
	{"a leaver does not wait for warm caches", "leave.go", "case m.warmWithout(in.Serving.Union(d.Open)):", "case true:"},
	{"a leaver goes before it has opened what it has gained", "leave.go", "in.Serving.Union(d.Open)", "in.Serving"},
	{"a leaver waits for caches that hold what the successor owns yet", "leave.go", "staying.Without(m.name).Owned", "staying.Owned"},
	{"a leaver does not wait for the one that will take everything", "leave.go", "return !joining", "return !joining || true"},
	{"a leaver lets go of what a predecessor relies on", "leave.go", ".Intersect(self.Cached.Union(in.Told)))", ".Intersect(nil))"},
	{"a leaver lets go of what it has told a moment ago", "leave.go", "self.Cached.Union(in.Told)", "self.Cached"},
	{"a leaver that owns nothing waits", "leave.go", "if m.view.Owned(m.name).Empty() {", "if false {"},
	{"a delete of the record is not obeyed", "leave.go", "asked := in.Leaving || self.Deleting", "asked := in.Leaving"},
	{"a leaver waits without end", "leave.go", "case in.Now-l.since < limit:", "case true:"},
	{"a leaver waits for half its limit", "leave.go", "limit := m.limits.Leave\n", "limit := m.limits.Leave / 2\n"},
	{"a leaver goes without draining", "leave.go", "case in.idle(hashkey.All()):", "case in.idle(hashkey.All()) || true:"},
	{"a leaver asks what is in work before its gate has shut", "leave.go", "\t\td.waitUntil(in.Now)\n\t\treturn\n\t}\n\td.Open = nil\n\tswitch {\n\tcase in.idle", "\t}\n\td.Open = nil\n\tswitch {\n\tcase in.idle"},
	{"a leaver keeps its gate open", "leave.go", "\td.Open = nil\n\tswitch {", "\tswitch {"},
	{"a leaver keeps shut what nobody is given any more", "leave.go", "giving == nil || !m.give.of(giving)", "false && giving == nil"},
	{"a leaver reopens what it gives away", "leave.go", "if m.give.draining {", "if false {"},
	{"a leaver waits for a successor that leaves", "leave.go", "staying := m.withoutLeaving()", "staying := m.view"},
	{"an owner does not follow what a predecessor will leave", "own.go", "d.Follow = d.Follow.Union(left)", ""},

	// Pieces, what comes back, and work that never ends.
	{"what comes cold is filled at once", "fill.go", "f.unfilled = f.unfilled.Union(r.Ranges.Minus(follow))", ""},
	{"a piece is filled before the one before it is", "fill.go", "if !missing.Empty() {", "if false {"},
	{"no piece is as large as all before", "fill.go", "max(filled.Width(), owned", "max(0, owned"},
	{"nobody is waited for who comes back", "fill.go", "return now < m.began+m.limits.Leave/2 ||", "return false && now < m.began ||"},
	{"those who come back are waited for without end", "fill.go", "return now < m.began+m.limits.Leave/2 ||", "return true ||"},
	{"one that comes back is filled for while keys change hands", "fill.go", "now < m.moved+m.limits.Step && m.isHeld", "false && m.isHeld"},
	{"one that comes back is waited for though nothing moves", "fill.go", "now < m.moved+m.limits.Step && m.isHeld", "m.isHeld"},
	{"a donor cuts for one that has yet to ask another", "own.go", "if m.redirects(*r, in.Now) {", "if false {"},
	{"a donor waits without end for one that asks another", "fill.go", "return now < since+m.limits.Step\n}\n\n// fits", "return now < since+1000*m.limits.Step\n}\n\n// fits"},
	{"a donor gives away what it held, while its gate is shut", "fill.go", "in.Serving.Union(self.Held).Intersect(share)", "in.Serving.Intersect(share)"},
	{"who comes back does not ask an owner whose gate is shut", "join.go", "working || r.Name == with || d.cold > 0", "working || d.cold > 0"},
	{"who joins asks for what is warm first", "join.go", "cmp.Or(d.compareCold(other, 1), d", "cmp.Or(d"},
	{"the heaviest key needs room in part", "fill.go", "objects += float64(r.Heaviest) + float64(r.Weight-r.Heaviest)*", "objects += float64(r.Weight)*"},
	{"who has no room waits as long as who has", "fill.go", "if gain := h.OwnedAfter(m.name).Minus(m.view.Owned(m.name)).Minus(m.follow); !m.hasRoomFor(gain, room) {", "if false {"},
	{"a share that was given up is named again", "own.go", "m.noteRefused(in.Now)\n", ""},
	{"one that follows a predecessor needs the room again", "own.go", "left.Minus(d.Owned).Minus(m.follow)", "left.Minus(d.Owned)"},
	{"a receiver fills what it could not hold", "fill.go", "h.OwnedAfter(m.name).Minus(m.fill.unfilled)", "h.OwnedAfter(m.name)"},
	{"what cannot be filled is not put back", "fill.go", "if in.Now-f.since < m.limits.Fill ||", "if true ||"},
	{"more is filled than there is room for", "fill.go", "if room == nil {\n\t\treturn width", "if true {\n\t\treturn width"},
	{"who comes back is given what another works on", "fill.go", "if !r.Held.Covers(served) || ", "if "},
	{"who comes back is given nothing back", "fill.go", "if !held || !owned.Contains(key)", "if held || !owned.Contains(key)"},
	{"what is not begun is not given away", "fill.go", "if unfilled.Empty() {", "if true {"},
	{"all that is not begun is given away", "fill.go", "at := width/2 - 1", "at := width - 1"},
	{"the receiver of what is cold fills all of it", "fill.go", "if cold.Empty() {", "if true {"},
	{"a share that was not filled stays as large", "own.go", "failed[of]++", ""},
	{"a range is cut over stuck work", "own.go", "key = along.Key(at - 1)", ""},
	{"a gate is shut over slow work", "own.go", "case containsAny(share, in.Slow) && ", "case false && "},
	{"an heir lets go of what it has filled", "join.go", "d.Follow.Union(m.follow)", "d.Follow"},
	{"a drain hurries", "leave.go", "case !l.hurries && !self.Deleting:", "case false:"},
	{"a drain that is taken back goes on", "leave.go", "case l.begun && !asked && (!drained || !spare && !l.shut):", "case false:"},
	{"a drained owner leaves for a crash loop", "leave.go", "until := m.history.doubtedUntil(*r)", "until := time.Duration(0)"},

	// Handovers.
	{"a void handover is not called off", "own.go", "case h.Void != nil && h.closer == m.name:", "case false:"},
	{"a handover is called off by granting it", "decision.go", "write(ReasonCallOff, r, r.Key, nil, r.Donor)", "write(ReasonCallOff, r, r.Next, nil, r.Donor)"},
	{"a handover out of a ring of shared keys is foreseen from the neighbours", "view.go", "!ok || v.shared || ", "!ok || "},
	{"a handover to a key that another has is foreseen from the neighbours", "view.go", "*owner.Key == key {", "owner.Name == \"\" {"},
	{"who moves stays in the way", "view.go", "; i == moves {", "; false {"},
	{"a join is closed by the receiver", "handover.go", "h.closer = owner.Name", "h.closer = r.Name"},
	{"a join takes from whoever owns the key", "handover.go", "case owner.Name != r.Donor:", "case false:"},
	{"a join takes the donor's own key", "handover.go", "case *owner.Key == *r.Next:", "case false:"},
	{"a boundary moves past its neighbours", "handover.go", "hashkey.Between(after, before).Contains(next)", "true"},
	{"a boundary moves to where it is", "handover.go", "next != *self.Key && ", ""},
	{"a boundary moves to the successor's", "handover.go", "next != before && ", ""},
	{"a handover with another key is granted", "handover.go", "*r.Key == *h.Record.Next:", "r.Next == nil:"},
	{"a range that was left counts as a crash", "handover.go", "case former.leaving():", "case false:"},
	{"the later of two waits wakes", "decision.go", "at < d.Wake", "at > d.Wake"},
	{"two instances with one key both own ranges", "view.go", "ring = slices.CompactFunc(ring, func(a, b *Record) bool { return *a.Key == *b.Key })", ""},

	// The roster.
	{"an instance begins before its record says that it works", "roster.go", "told && may && slices.Contains(in.Reported, controller):", "told && may:"},
	{"an instance asks who leads though it must not begin", "roster.go", "told && may && slices.Contains(in.Reported, controller):", "told && slices.Contains(in.Reported, controller):"},
	{"an instance opens before it knows who leads", "roster.go", "if duty.stage == on {", "if duty.stage == on || duty.stage == asking {"},
	{"an instance begins beside the leader that it read", "roster.go", "case leader.Runs(c):", "case leader.Runs(c) && false:"},
	{"an instance begins though the leader could not be read", "roster.go", "if !ok {", "if false {"},
	{"an answer counts for whoever asks since", "roster.go", "duty.stage != asking || !duty.read", "duty.stage != asking"},
	{"an answer counts for whoever asks again", "roster.go", "*d = duty{stage: asking}", "d.stage = asking"},
	{"two questions are under way", "roster.go", "if r.reading {", "if false {"},
	{"an instance works on though it must not", "roster.go", "d.stage != ending && !may:", "d.stage != ending && d.stage != on && !may:"},
	{"an instance takes up again what it has begun to end", "roster.go", "case d.stage == ending && !slices.Contains(in.Busy, controller):", "case d.stage == ending && may:\n\t\td.stage = on\n\tcase d.stage == ending && !slices.Contains(in.Busy, controller):"},
	{"an instance ceases while work is under way", "roster.go", "case d.stage == ending && !slices.Contains(in.Busy, controller):", "case d.stage == ending:"},
	{"an instance ceases without raising its epoch", "roster.go", "decision.Raise = true", ""},
	{"a record says nothing of work that is ending", "roster.go", "Working: duty.stage != off,", "Working: duty.stage != off && duty.stage != ending,"},
	{"an instance works on what another does not list", "roster.go", "in.View.unlisted(controller); other != \"\"", "in.View.unlisted(controller); false"},
	{"an instance works though it is barred", "roster.go", "if in.Barred != \"\" {", "if false {"},
	{"an instance begins before it has seen who leads", "roster.go", "return \"it is not known yet who leads\"", "return \"\""},
	{"a stock leader runs nothing", "leader.go", "return l.Holder != \"\"", "return false"},
	{"nobody runs everything", "leader.go", "return l.Holder != \"\"", "return true"},
	{"a process signs with its name", "leader.go", "strings.LastIndex(", "strings.Index("},
	{"a leader runs only what it names", "leader.go", "return slices.Contains(controllers, \"*\")", "return false"},
	{"a leader runs what it excludes", "leader.go", "case \"-\" + controller:\n\t\t\treturn false\n", ""},
	{"a ring without instances shares everything", "leader.go", "len(v.records) > 0 && ", ""},
	{"a leader does not wait for instances", "leader.go", "if slices.Contains(r.Working, controller) {", "if false {"},
	{"a leader waits for instances that only list its controller", "leader.go", "if slices.Contains(r.Working, controller) {", "if slices.Contains(r.Controllers, controller) {"},
	{"what a record says of a controller means that it works", "record.go", "if s.Working {", "if true {"},

	// Balance.
	{"moves come before joins", "policy.go", "if d.Write != nil || d.NeedsKeys ||", "if d.NeedsKeys ||"},
	{"a load is evened out though a record forbids it", "policy.go", "if _, off := m.view.BalanceOff(); off {", "if false {"},
	{"a dry run writes", "policy.go", "if in.DryRun {", "if false {"},
	{"what was held is forgotten only where something is decided", "policy.go", "\t\tb.Policy.Observe(b.view)\n", ""},
	{"a pinned boundary moves", "record.go", "return r.PinnedKey != nil && (is(r.Key) || is(r.Next))", "return false && is(r.Key)"},
	{"a boundary that is not where it was to be is pinned", "record.go", "&& (is(r.Key) || is(r.Next))", "&& (is(r.Key) || true)"},
	{"a move goes on though balance is off", "own.go", "off && h.Kind == KindMove && !h.Record.Pinned() {", "off && false {"},
	{"a move by hand ends as balance is off", "own.go", "h.Kind == KindMove && !h.Record.Pinned() {", "h.Kind == KindMove {"},
	{"a join ends as balance is off", "own.go", "off && h.Kind == KindMove && !h.Record.Pinned() {", "off && !h.Record.Pinned() {"},
	{"a donor does not say that it waits", "own.go", "d.waitUntil(g.since + m.limits.Fill)", "d.wakeAt(g.since + m.limits.Fill)"},

	// Draining.
	{"a drained instance stays", "leave.go", "case !l.begun && (asked || drained && spare):", "case !l.begun && asked:"},
	{"a drained instance leaves though no other can own its range", "leave.go", "(asked || drained && spare)", "(asked || drained)"},
	{"a drained instance joins", "join.go", "if self.Drained && !named {", "if false {"},
	{"an owner names a key for one that is drained", "record.go", " && !r.Drained }", " }"},
}
