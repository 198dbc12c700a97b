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
// A handover, as both sides see it:
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
// What is not guaranteed: an instance that is paused between the last check and
// the moment that a request leaves the process can still send this one request
// after its lease has ended, within the request's own deadline. Clocks are
// compared with nobody else's, but they must run at about the same rate: the
// margin between the end of the instance's confidence and that of its lease is a
// sixth of the lease.
package ring
