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

// Package ring decides how many instances of one controller share its objects by hash
// key, so that no two of them ever work on the same object. It is pure: it has no client,
// no goroutine and no clock. Package member carries its decisions out; package fence
// holds what the API server has to know to refuse writes of an instance that has lost
// its range.
//
// All instances of a controller register as ControllerInstance objects and watch that one
// resource: it is a log that all of them read in the same order, each at its own pace. An
// instance with key b whose predecessor on the ring has key a owns the hash keys (a, b];
// the instance with the lowest key also owns what lies above the highest. One rule makes
// this safe:
//
//	A key changes hands only by a write of its present owner, made after it
//	has stopped working on it; or by the owner's death.
//
// The parts, from the inside out:
//
//   - Record: one instance, as the registry has it.
//   - View: one ring as of one revision of the log, and who owns what in it. Views are
//     the rings of a registry, read from a list.
//   - Handover: a range that is to change hands: who gives it to whom, or why that
//     cannot be done. CheckMove says where a boundary can move.
//   - Machine: the decisions on keys. Log and time in; writes and permitted work out.
//   - Policy: what evens out the ring. Views in; shifts of boundaries out, which the Machine
//     checks and writes. Package balance has one.
//   - Decider: a Machine with its policy, and a recording of what it was given and decided.
//   - Leader: who leads the kube-controller-managers, and which controllers it runs itself.
//   - Roster: the decisions on controllers. Log and leader in; permitted controllers out.
//
// A join, as both sides see it:
//
//	donor     Active ───────────────── Wait ──────────── Active
//	            │ names the split key   │ shuts its gate    ▲
//	            │ (receiver: Locked)    │ for the range,    │ writes hashKey into the
//	            ▼                       │ waits for its     │ receiver's record
//	receiver  Init ── Locked ───────────┴ work there ───────┴──── Active
//	                    fills its caches for the range             caches at the
//	                                                               revision of that
//	                                                               write: gate opens
//
// A boundary moves by the same steps when somebody writes spec.nextHashKey of an instance
// that owns a range: a person, or the donor, as its policy wants it. Only the keys between the
// old place and the new one pause.
//
//	   predecessor     instance            successor
//	───────┤◄──────────────┤◄──────────────────┤
//	          down: ◄──────┤                        the instance is the donor and
//	                                                writes its own record
//	              up:      ├───────►                the successor is the donor and
//	                                                writes the instance's record
//
// The instance calls off a next key that is not between the predecessor's key and the
// successor's, or is the present one, and logs the interval that is allowed.
//
// A handover is open while a record names a next key. Whoever closes it, by a grant or by
// calling it off, writes that spec as it was decided on, so the first write that arrives
// voids all others that are still under way. A grant is stored only while its donor's record
// gives exactly this, so one of a dead donor is void. A donor serves one handover at a time,
// to its end.
//
// Nothing waits for ever on a peer. A donor calls a handover off if the receiver's caches are
// cold past Limits.Fill while it works on the share, or if its own work does not end within
// Limits.Step, and then rests before it names another key. A receiver that waits for a grant
// asks somebody else, or takes its move back, two steps after Limits.Fill.
//
// TestExploration drives the real Machine through the interleavings of small rings; its
// comment says which. testdata/missing-rules.txt shows what happens without one of the
// rules.
package ring
