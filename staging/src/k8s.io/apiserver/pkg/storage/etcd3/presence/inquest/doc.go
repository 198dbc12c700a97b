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

// Package inquest decides what it means that an instance's presence has ended: that its process has
// died, or only that a connection has. It has no client, no goroutine and no clock.
//
// A presence is a request that an instance keeps open for as long as it lives. When the process
// dies, its kernel closes the connection, and the API server hears of the end at once. But
// connections end for many other reasons, and a process that lives renews its lease at once when
// its presence has ended. So an end only opens an inquest:
//
//	end          gather          window
//	 |------------|---------------|
//	 0 s          1 s             2 s, 3 s at most
//	              announce        silent, and the only one: remove
//	     renewed or reopened: leave
//	     this server or etcd is slow: begin anew, for 3 s at most
//
// To leave a record is to leave it to its lease. Safety does not rest on the outcome: a record that
// is removed by mistake costs its instance a registration, and the fence refuses what that one has
// under way.
package inquest
