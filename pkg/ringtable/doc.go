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

// Package ringtable shows people the rings of a cluster: which keys each instance
// owns, how much of its work is done, and whether any key has no worker.
//
//   - Of makes a Ring, the ring as data, from API objects.
//   - Ring.Text prints it as a table.
//   - Follower keeps the API objects up to date by watch.
//   - Screen shows a text that changes, in place on a terminal.
package ringtable
