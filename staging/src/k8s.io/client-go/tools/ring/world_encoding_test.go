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

package ring

import (
	"encoding/binary"
	"math/bits"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
)

// encode appends the state's encoding. Two states have the same encoding if and only if
// the same can happen from both.
func (s *state) encode(b []byte) []byte {
	b = append(b, s.started, s.starts, s.moves, s.leaves, s.faults)
	// The registry as the slowest reader knows it, and every event since. What any process
	// knows of the registry is one of the views in between.
	base := s.head
	for _, p := range s.proc {
		if p != nil && p.up && p.read == s.base() {
			base = p.machine.View()
			break
		}
	}
	b = append(b, byte(len(base.records)), byte(len(s.log)))
	for _, r := range base.records {
		b = s.encodeRecord(b, r)
	}
	for _, e := range s.log {
		b = append(b, flag(e.deleted))
		b = s.encodeRecord(b, &e.record)
	}
	for i, p := range s.proc {
		if p == nil {
			b = append(b, 0)
			continue
		}
		b = append(b, p.name[0], flag(p.up), byte(p.stray), byte(p.old))
		b = s.encodeWrite(b, p, &p.late)
		b = s.encodeNews(b, p, &p.lateNews)
		if !p.up {
			continue
		}
		b = s.encodeWrite(b, p, &p.flying)
		b = s.encodeNews(b, p, &p.news)
		if p.reportedAt > p.read {
			b = append(b, byte(p.reportedAt-p.read))
			b = encodeReport(b, p, p.reported)
		} else {
			b = append(b, 0)
		}
		b = append(b, flag(p.leaving)|flag(p.lapsed)<<1|flag(p.undecided)<<2|flag(p.wakes)<<3|flag(p.heldAt >= p.machine.gainedAt)<<4,
			byte(p.read-s.base()), byte(max(0, p.settled-p.read)), byte(max(0, p.heldAt-p.read)),
			byte(p.serving), byte(p.busy), byte(p.follow), byte(p.held), byte(s.fresh[i]), byte(p.owned), phaseByte(p.phase))
		m := &p.machine
		older := m.older()
		b = append(b, byte(len(older)))
		for _, o := range older {
			b = append(b, o.Name[0])
		}
		if m.give == (give{}) {
			b = append(b, 0)
		} else {
			b = append(b, m.give.Record.Name[0], byte(cellOfKey(&m.give.Key)), p.since(m.give.Since), flag(m.give.Draining)|flag(m.give.Gives != nil)<<1|flag(m.give.Ends)<<2)
			if m.give.Draining {
				b = append(b, p.since(m.give.DrainingSince))
			}
			if m.give.Gives != nil {
				b = append(b, p.since(m.give.GivesSince))
			}
		}
		if m.wait == (waiting{}) {
			b = append(b, 0)
		} else {
			b = append(b, 1, nameByte(m.wait.Peer), flag(m.wait.Named), byte(cellOfKey(&m.wait.Key)), p.since(m.wait.Since))
		}
		b = append(b, nameByte(m.slow), p.until(m.rests[registration{}]))
		for _, r := range base.records {
			b = append(b, p.until(m.rests[r.registration()]))
		}
		b = append(b, byte(cellsAt(m.vacated)), byte(cellsOf(m.fill.Unfilled)), byte(cellsOf(m.fill.Begun)))
		if !m.fill.Begun.Empty() {
			b = append(b, p.since(m.fill.Since))
		}
		for _, r := range base.records {
			b = append(b, byte(min(m.failed[r.registration()], cells)))
		}
		if s.balance {
			calmAt := p.policy.CalmAt()
			for _, r := range m.view.records {
				for _, at := range calmAt {
					b = append(b, flag(r.Revision > at))
				}
			}
		}
		if m.leave.Begun {
			b = append(b, 1, p.since(m.leave.Since), flag(m.leave.Shut)|flag(m.leave.Hurries)<<1, p.since(m.leave.ShutSince))
		} else {
			b = append(b, 0)
		}
	}
	return b
}

// since is how many steps have passed since t, at most 4, the longest time limit.
func (p *process) since(t time.Duration) byte { return byte(min(int((p.now-t)/step), 4)) }

// until is how many steps are left to t.
func (p *process) until(t time.Duration) byte { return byte(max(0, (t-p.now)/step)) }

func (s *state) encodeRecord(b []byte, r *Record) []byte {
	b = append(b, r.Name[0], byte(cellOfKey(r.Key)), byte(cellOfKey(r.Next)), nameByte(r.Donor), phaseByte(r.Phase), byte(cellsOf(r.Cached)), byte(r.Weight), flag(r.Drained))
	for _, p := range s.proc {
		if p != nil && p.name == r.Name {
			return encodeReport(b, p, r.Report)
		}
	}
	return encodeReport(b, &process{}, Report{Gives: r.Gives})
}

// encodeReport encodes how far the epoch lies below that of the process: how high that is
// makes no difference.
func encodeReport(b []byte, p *process, r Report) []byte {
	b = append(b, byte(p.epoch-r.Epoch))
	if r.Gives == nil {
		return append(b, 0)
	}
	return append(b, r.Gives.To[0], byte(cellOfKey(&r.Gives.Key)))
}

// encodeWrite leaves out what a write says if it can only be refused.
func (s *state) encodeWrite(b []byte, p *process, w *Write) []byte {
	switch {
	case !w.sent():
		return append(b, 0)
	case !s.mayApply(p, w):
		return append(b, 1)
	}
	return append(b, 2+flag(w.Delete)+flag(isGrant(w))<<1, w.Name[0], byte(cellOfKey(w.Key)), byte(cellOfKey(w.Next)), nameByte(w.Donor))
}

// encodeNews does, too.
func (s *state) encodeNews(b []byte, p *process, n *news) []byte {
	switch {
	case !n.sent:
		return append(b, 0)
	case !s.stores(p, n):
		return append(b, 1)
	}
	return encodeReport(append(b, 2, byte(n.weight)), p, n.Report)
}

func phaseByte(phase shardingv1alpha1.InstancePhase) byte {
	if phase == "" {
		return 0
	}
	return phase[0]
}

func nameByte(name string) byte {
	if name == "" {
		return 0
	}
	return name[0]
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// hash returns 128 bits. That any two of a hundred million different states share a
// hash has a probability below 1e-22.
func hash(b []byte) [2]uint64 {
	for len(b)%8 != 0 {
		b = append(b, 0xff)
	}
	h, g := uint64(0x9e3779b97f4a7c15), uint64(0xc2b2ae3d27d4eb4f)
	for ; len(b) > 0; b = b[8:] {
		word := binary.LittleEndian.Uint64(b)
		hi, lo := bits.Mul64(h^word, 0xa0761d6478bd642f)
		h = hi ^ lo ^ g
		hi, lo = bits.Mul64(g^bits.RotateLeft64(word, 29), 0xe7037ed1a0b428db)
		g = hi ^ lo ^ h
	}
	return [2]uint64{h, g}
}
