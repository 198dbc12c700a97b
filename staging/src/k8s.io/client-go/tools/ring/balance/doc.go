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

// Package balance evens out the load of a ring. From what the records tell it makes a plan: what
// each instance should have, and what is to flow over which boundary. Each instance does the part
// in which it gives something: its Policy says when, and at which keys. It is pure: it has no
// client, no goroutine and no clock. docs/design.md ("Balance") explains it.
package balance
