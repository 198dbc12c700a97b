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
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Header is the HTTP header in which a request that changes something names the
// instance that sends it, as Identity.String writes it. The API server refuses the
// request if that instance does not own what it changes.
const Header = "Controller-Instance"

// Identity is one registration of an instance. Another one with the same name has
// another UID.
type Identity struct {
	Name string
	UID  types.UID
}

// String returns name/uid.
func (i Identity) String() string { return i.Name + "/" + string(i.UID) }

// Parse reads what String has written.
func Parse(s string) (Identity, error) {
	name, uid, ok := strings.Cut(s, "/")
	if !ok || name == "" || uid == "" || strings.Contains(uid, "/") {
		return Identity{}, fmt.Errorf("%q names no controller instance, want NAME/UID of its ControllerInstance", s)
	}
	return Identity{Name: name, UID: types.UID(uid)}, nil
}
