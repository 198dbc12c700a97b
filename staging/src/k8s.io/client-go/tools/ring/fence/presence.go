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

package fence

// PresenceHeader is the HTTP header with which an instance says that a watch of its own record is
// its presence: a request that it keeps open for as long as its process lives. Its value says why
// it is opened (PresenceFirst, PresenceLost, PresenceNext). The request names the instance, too
// (Header). An API server that tracks presences repeats it in its answer. When such a watch ends
// and nothing renews the record, the record is removed after two or three seconds.
const PresenceHeader = "Controller-Instance-Presence"

// What PresenceHeader says.
const (
	// PresenceFirst opens the first presence of a record.
	PresenceFirst = "first"
	// PresenceLost opens one in place of one that has ended by itself.
	PresenceLost = "lost"
	// PresenceNext opens one before another is ended on purpose.
	PresenceNext = "next"
)
