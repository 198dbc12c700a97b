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

// historyMutations drop each thing by which one history of an etcd is told from another.
var historyMutations = []change{
	{"data of another cluster is the same history", "lead.go", "case l.cluster != r.Cluster:", "case false:"},
	{"a restore is the same history", "lead.go", "case most < r.Lead:", "case false:"},
	{"the index is read before the revision", "lead.go", "int64(max(status.RaftIndex, status.RaftAppliedIndex))", "int64(status.RaftIndex) - 50"},
	{"the lead is higher than it was", "etcd.go", "Lead: seen.applied - again.revision}", "Lead: seen.applied - seen.revision + 10}"},
	{"an identity is overwritten by a second API server", "etcd.go", "clientv3.ModRevision(e.key), \"=\", again.modified", "clientv3.ModRevision(e.key), \">\", -1"},
	{"a record that was deleted has another identity", "etcd.go", "if next.ID == \"\" {", "if true {"},
	{"an API server lives on though its history is another", "etcd.go", "if reason := seen.divergence(e.last); reason != \"\" {", "if reason := seen.divergence(e.last); false {"},
	{"an API server lives on though others have found another history", "etcd.go", "stored.ID != \"\" && stored.ID != e.last.ID", "false"},
	{"an API server lives on though revisions go back", "etcd.go", "seen.revision < e.revision", "false"},
	{"a read does not wait for the history", "etcd.go", "go e.run(e.client)\n", "close(e.known)\n"},
	{"the status is that of any member", "lead.go", "err == nil && status.Header.MemberId == member", "err == nil"},
	{"what is no etcd is asked again and again", "lead.go", "code == codes.Unimplemented || ", ""},
}
