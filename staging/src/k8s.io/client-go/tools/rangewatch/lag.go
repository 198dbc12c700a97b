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

package rangewatch

import (
	"k8s.io/apimachinery/pkg/api/meta"
)

// lag says how the store's revision is behind what the informer was given.
type lag struct {
	// is says that it is behind, and holds that it stays where it is.
	is, holds bool
	// told is the latest revision that was given since it has been behind.
	told uint64
}

// lags says whether the store is behind and may go on.
func (d *driver) lags() bool { return d.lag.is && !d.lag.holds }

// hold makes the store stay at its revision.
func (d *driver) hold() {
	d.store.HoldRevision(true)
	if d.lag.holds = true; d.lag.is {
		return
	}
	d.lag.is, d.lag.told = true, 0
	if d.behind != nil {
		d.behind(true)
	}
}

// release lets the store go on.
func (d *driver) release() {
	d.store.HoldRevision(false)
	d.lag.holds = false
	d.catchUp()
}

// catchUp says so if the store is no longer behind. A list of everything may have failed after it
// gave objects that are newer than the list after it, by a server that is itself behind.
func (d *driver) catchUp() {
	if !d.lags() {
		return
	}
	if at, err := parseRevision(d.store.LastStoreSyncResourceVersion()); err != nil || at < d.lag.told {
		return
	}
	d.lag.is = false
	if d.behind != nil {
		d.behind(false)
	}
}

// revisionOf returns the revision of an object, 0 if it has none.
func revisionOf(obj any) uint64 {
	if accessor, err := meta.Accessor(obj); err == nil {
		if revision, err := parseRevision(accessor.GetResourceVersion()); err == nil {
			return revision
		}
	}
	return 0
}
