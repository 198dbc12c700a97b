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

package ring

// rules keep two instances off one key. With all of them the exploration must find no
// violation, and without any one of them it must find one.
type rules struct {
	// drain: a donor grants only when its work in the range has ended.
	drain bool
	// grantRevision: a gate opens only when the caches hold all that was written before
	// the grant.
	grantRevision bool
	// precondition: a write is refused if its record has changed since the decision.
	precondition bool
	// statusPrecondition: news is refused if the record has changed since it was sent.
	statusPrecondition bool
	// selfFence: a gate shuts before the lease ends.
	selfFence bool
	// comparison: a request is refused once the record of its instance is gone.
	comparison bool
	// epoch: it is refused once that record has a higher epoch than the request.
	epoch bool
	// fencedGrant: a grant is refused unless the donor's record gives exactly this.
	fencedGrant bool
	// raiseDrained: a donor raises its epoch once its work in the range has ended, not
	// before.
	raiseDrained bool
	// death: a successor takes over when the record is gone, not when its owner is silent.
	death bool
}

var allRules = rules{drain: true, grantRevision: true, precondition: true, statusPrecondition: true, selfFence: true,
	comparison: true, epoch: true, fencedGrant: true, raiseDrained: true, death: true}
