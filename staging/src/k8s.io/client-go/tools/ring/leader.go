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

import (
	"slices"
	"strings"
)

// ManagerRings are the rings of kube-controller-manager, whose controllers the leader runs
// where the ring does not. Their names, and those that begin with one and '-', are theirs.
var ManagerRings = []string{"workloads", "namespaces", "claims"}

// signature stands in the identity of a leader between the process and the controllers that
// it runs itself.
const signature = ";controllers="

// Leader is the holder of the Lease that kube-controller-managers elect their leader by. The
// zero value is nobody.
type Leader struct {
	// Holder is the holder's identity. One that SignLeader has made says which controllers
	// the leader runs itself for its term. Any other is that of a process that knows no
	// rings, so it may run every controller.
	Holder string
}

// SignLeader returns the identity under which a process stands for leader. In that term it
// runs the controllers that the list means, which is in the notation of --controllers: "*"
// means all, "name" that one, "-name" not that one.
func SignLeader(process string, controllers []string) string {
	return process + signature + strings.Join(controllers, ",")
}

// Signed says whether the leader knows rings.
func (l Leader) Signed() bool { return strings.Contains(l.Holder, signature) }

// Process returns the holder's identity without what it is signed with.
func (l Leader) Process() string {
	process, _ := l.cut()
	return process
}

// cut returns the process and what it is signed with. The name of a process may hold
// anything, so the last signature is the one.
func (l Leader) cut() (process, controllers string) {
	at := strings.LastIndex(l.Holder, signature)
	if at < 0 {
		return l.Holder, ""
	}
	return l.Holder[:at], l.Holder[at+len(signature):]
}

// Runs says whether the leader may run that controller itself. A leader that signs nothing
// may run each.
func (l Leader) Runs(controller string) bool {
	if !l.Signed() {
		return l.Holder != ""
	}
	_, list := l.cut()
	controllers := strings.Split(list, ",")
	// As upstream's IsControllerEnabled does: of "name" and "-name", the first one counts.
	for _, c := range controllers {
		switch c {
		case controller:
			return true
		case "-" + controller:
			return false
		}
	}
	return slices.Contains(controllers, "*")
}

// Shares says whether the instances of the ring share that controller: each lists it, and
// there is one. What they share the leader leaves to them.
func (v *View) Shares(controller string) bool {
	return len(v.records) > 0 && v.unlisted(controller) == ""
}

// unlisted returns the first instance that does not list the controller, "" if each does.
func (v *View) unlisted(controller string) string {
	for _, r := range v.records {
		if !slices.Contains(r.Controllers, controller) {
			return r.Name
		}
	}
	return ""
}

// WorkingOn returns the names of the instances that say that they may be working on that
// controller.
func (v *View) WorkingOn(controller string) []string {
	var names []string
	for _, r := range v.records {
		if slices.Contains(r.Working, controller) {
			names = append(names, r.Name)
		}
	}
	return names
}
