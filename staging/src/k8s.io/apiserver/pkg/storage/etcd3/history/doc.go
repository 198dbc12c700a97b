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

// Package history tells clients of an API server when its etcd has another history than it had.
//
// An etcd that was restored from a backup goes on from an earlier state: what was written since
// never was, and its revisions are given a second time. Revisions do not show that once they have
// passed the old ones, so whoever asks then takes the new history for the old one's future.
//
// So each history has an identity, a random text. It is stored in etcd, beside all other keys, and
// a restore brings it back, too. That this is another history than the one it was written in shows
// in two things that no backup contains:
//
//   - The cluster ID of etcd: data of one cluster that another one serves has another history.
//   - Raft's index. Each write that raises the revision is an entry of raft's log, so within one
//     history the index less the revision, its lead, never falls. A restore begins a new log at the
//     revision of the backup (or a higher one, if it is bumped): the lead falls by as many entries
//     as had been written.
//
// An API server that stores the registry of rings looks at its start, and reads nothing else before
// (but CustomResourceDefinitions). Where the history is another, it
// stores a new identity. It looks again every ten seconds, and exits if the history is another, or
// revisions have gone back: its watch caches are of one that never was, and nothing else would
// renew them.
//
// What nothing tells, where all API servers were stopped, is a data directory or a disk that was
// put back as it had been: index and revision go back together.
//
// A request with the header fence.HistoryHeader is answered with the identities of all etcds that
// the API server reads (Identities). Clients that do not ask see no difference.
//
// Where the storage backend is no etcd, and has no such index, it has no identity: nothing is told.
package history
