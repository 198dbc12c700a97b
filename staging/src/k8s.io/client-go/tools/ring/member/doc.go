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

// Package member takes part in a ring: it drives a ring.Machine against the API.
//
//   - Gate: the check that every piece of work passes, with a door for each controller, and
//     the transports: one keeps requests within the gate's deadline, both name the instance
//     and its epoch.
//   - Member: registers an instance, reads the registry's log into the machine, carries
//     out its decisions, tells the news of itself, and renews the record.
//   - Leadership: who leads, as a ring has to know it that shares controllers with a leader.
//   - Metrics and Events: what a member tells about itself.
//
// One goroutine decides; others read the log, renew the record, send news and writes, list
// the registry where its watch may lag, and wait for caches. They hand it what happened.
//
// The record is written in three ways, and none waits for another:
//
//	renewal  status, UID alone                    changes nothing, so nothing is stored:
//	                                              it keeps the record's lease alive
//	news     status, UID and resource version     one at a time; one that arrives after
//	                                              another is void
//	write    spec, UID and generation             one at a time; news do not void it
//
// A record says that its instance is of use, not only that its process lives: it is renewed
// only while decisions are made, and while the work that is under way gets on.
//
// What is not guaranteed: an instance that is paused between the last check of the gate
// and the moment that a request leaves the process can still send this one request after
// its lease has ended. It names the instance (fence.Header), so an API server with the
// fence refuses it; another would carry it out. Clocks are never compared across machines,
// but they must run at about the same rate: fence.Confidence is the margin.
package member
