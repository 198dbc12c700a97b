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

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Header is the HTTP header in which a request that changes something names the
// instance that sends it, as Identity.String writes it. The API server refuses the
// request, with 403, from a user who may not work on that ring, and, with 409, if the
// instance does not own what the request changes. An API server that judges requests
// repeats the header in its answer.
const Header = "Controller-Instance"

// The right to write in the name of a ring's instances: Verb on Resource of the group
// sharding.k8s.io, with the ring as the name of the object.
const (
	Verb     = "work"
	Resource = "rings"
)

// Identity says in whose name a request is sent.
type Identity struct {
	// Ring is the ring of the instance.
	Ring string
	// Name and UID are its registration. Another one of the same name has another UID.
	Name string
	UID  types.UID
	// Epoch is that of the instance when the request was sent. A request of an epoch below
	// the one that the registry has for the instance is refused.
	Epoch int64
	// Controller is the controller that writes; empty where the instance itself writes to
	// the registry.
	Controller string
}

// String returns ring/name/uid/epoch/controller.
func (i Identity) String() string {
	return strings.Join([]string{i.Ring, i.Name, string(i.UID), strconv.FormatInt(i.Epoch, 10), i.Controller}, "/")
}

// Parse reads what String has written.
func Parse(s string) (Identity, error) {
	parts := strings.Split(s, "/")
	if len(parts) != 5 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return Identity{}, fmt.Errorf("%q names no controller instance, want RING/NAME/UID/EPOCH/CONTROLLER of its ControllerInstance", s)
	}
	epoch, err := strconv.ParseInt(parts[3], 10, 64)
	if err != nil || epoch < 0 {
		return Identity{}, fmt.Errorf("%q names no controller instance: its epoch is %q, want a number from 0", s, parts[3])
	}
	return Identity{Ring: parts[0], Name: parts[1], UID: types.UID(parts[2]), Epoch: epoch, Controller: parts[4]}, nil
}
