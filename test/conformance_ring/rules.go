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

// rule is what an operator has to keep. Its value is its name.
type rule string

const (
	named   rule = "named"
	owner   rule = "owner"
	gate    rule = "gate"
	excess  rule = "excess"
	absence rule = "absence"
	settled rule = "settled"
	anew    rule = "anew"
	leave   rule = "leave"
)

// rules are all rules, in the order in which they are reported.
var rules = []struct {
	rule
	// meaning says what the rule asks for, cause why an operator most likely breaks it.
	meaning, cause string
}{
	{named, "each write of what a ring governs names its instance",
		"this write does not come from a client that the ring's kit has made: build every client that writes from the kit's configuration for the controller, those of helpers and libraries too"},
	{owner, "each write is made by the instance that owns the governing key",
		"as of gate: where the API server has not seen the new owner yet, it lets such a write through. Or spec.governs says less than the code writes, or the API server's fence is off"},
	{gate, "no instance tries to write what its gate is not open for",
		"the write was begun outside of the gate, or went on after the work had left it: enter the gate with the key of the workload before any work on it, and leave it only when all requests have been answered; let no goroutine, timer or retry outlive that"},
	{excess, "there are never more dependents than the workload wanted",
		"the code counted dependents before its caches held them: begin work only where the gate is open, which is once the caches are complete, name dependents after the workload so that one cannot be made twice, and wait for what you have written to be in the cache"},
	{absence, "no dependent is deleted that the workload wants",
		"the code took what its caches do not hold, as it is another instance's or not there yet, for something that does not exist: conclude from an absence only for a key that the gate is open for, and never delete because an owner is not in the cache"},
	{settled, "after each fault all is as it should be, and the ring is complete",
		"an event was lost when a range changed hands: queue every workload of a range when the gate opens for it, and try again what has failed"},
	{anew, "a workload made anew under its name is settled as any other is",
		"the code took AlreadyExists for success, while what was there belonged to the workload that had the name before: return it as an error, to be tried again. When that object goes, only the owner of the earlier workload's key hears of it"},
	{leave, "an instance leaves in good order, and loses its record by no other way than a fault",
		"the process ended without leaving its rings, or could not renew in time: on SIGTERM end the work first, then leave the ring, and exit once the record is deleted; let nothing block the goroutines that renew"},
}

func causeOf(r rule) string {
	for _, known := range rules {
		if known.rule == r {
			return known.cause
		}
	}
	return ""
}
