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

// Package ring lets many instances of one controller share its objects by hash
// key, so that no two of them ever work on the same object.
//
// All instances of a controller register as ControllerInstance objects and watch
// that one resource: it is a log that all of them read in the same order, each at
// its own pace. An instance with key b whose predecessor on the ring has key a
// owns the hash keys (a, b]; the instance with the lowest key also owns what lies
// above the highest. One rule makes this safe:
//
//	A key changes hands only by a write of its present owner, made after it
//	has stopped working on it; or by the owner's death.
//
// The parts, from the inside out:
//
//   - View: the registry as of one revision of its log, and who owns what in it.
//   - Machine: the decisions. Log and time in; writes and permitted work out. It
//     has no client, no goroutine and no clock.
//   - Gate: the check that every piece of work passes. It knows which keys may be
//     worked on now, what is in work, and until when the instance may believe
//     that it is alive.
//   - Member: the driver that runs a Machine against the API.
//
// A join, as both sides see it:
//
//	donor     Active ───────────────── Wait ──────────── Active
//	            │ names the split key   │ shuts its gate    ▲
//	            │ (newcomer: Locked)    │ for the range,    │ writes hashKey into
//	            ▼                       │ waits for its     │ the newcomer's record
//	newcomer  Init ── Locked ───────────┴ work there ───────┴──── Active
//	                    fills its caches for the range             caches at the
//	                                                               revision of that
//	                                                               write: gate opens
//
// A boundary moves by the same steps when somebody writes spec.nextHashKey of an
// instance that owns a range: this package never does by itself. Everything but the
// keys between the old place and the new one stays in work.
//
//	   predecessor     instance            successor
//	───────┤◄──────────────┤◄──────────────────┤
//	          down: ◄──────┤                        the instance is the donor, it
//	                                                writes its own record
//	              up:      ├───────►                the successor is the donor, it
//	                                                writes the instance's record
//
// A next key that is not between the predecessor's key and the successor's, or is
// the present one, is called off by the instance, which logs the interval.
//
// A handover is open while a record names a next key. Whoever closes it, by a grant
// or by calling it off, writes that record as it was decided on, so the first write
// that arrives makes all others void that are still under way. This settles what a
// dead donor may have sent: who owns its range now does not begin the part that was
// to be given away before the log shows how the handover was closed, and the oldest
// instance takes an empty ring only when no handover is open. One giver serves one
// handover at a time, to its end.
//
// Nothing waits for ever on a peer. Past Limits.Step a donor drains though the
// receiver's caches are cold, and calls off a handover for which its work does not
// end; a receiver asks somebody else, or takes its move back, past three times that.
//
// Every interleaving of a small ring has been explored, with the real Machine: see
// TestExploration, and testdata/missing-rules.txt for what happens without one of
// the rules.
//
// What is not guaranteed: an instance that is paused between the last check and
// the moment that a request leaves the process can still send this one request
// after its lease has ended. It names the instance (identity.Header), so that an
// API server with the admission plugin ControllerRing refuses it; another would
// carry it out. Clocks are compared with nobody else's, but they must run at about
// the same rate: the margin between the end of the instance's confidence and that
// of its lease is a sixth of the lease.
package ring
