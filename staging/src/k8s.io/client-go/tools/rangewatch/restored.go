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
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/rangewatch/follower"
)

// A server that was restored from a backup may have objects again that the store had seen deleted,
// with the revisions that they had before.

// isRestored says whether the server has an object of a list again, which the store does not have:
// that is complete as of a later revision.
func (s *Source) isRestored(id follower.ID, obj any) bool {
	held := s.Held()
	revision := revisionOf(obj)
	if revision == 0 || held.Empty() {
		return false
	}
	complete, err := parseRevision(s.store.LastStoreSyncResourceVersion())
	if err != nil || revision > complete {
		return false
	}
	if key, known := s.keyOf(obj); !known || !key.In(held) {
		return false
	}
	_, exists, err := s.store.GetByKey(cache.ObjectName(id).String())
	return err == nil && !exists
}

// setRestored sets what has come back with a list, if anything has.
func (s *Source) setRestored(restored map[follower.ID]any) {
	if len(restored) == 0 {
		return
	}
	s.logger.Info("Warning: the server has objects again that were deleted, as after a restore from a backup", "objects", len(restored))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restored = restored
}

// wasRestored says whether this is the object that came back, and not the same one of before, of
// which a handler hears late.
func (s *Source) wasRestored(obj any) bool {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.restored[follower.ID(cache.MetaObjectToName(accessor))] == obj
}

// diverge gives up what is held, as the server has another history, and returns why.
func (d *driver) diverge(revision uint64) error {
	err := fmt.Errorf("the API server is at resource version %d of %T, and was at a later one before", revision, d.object)
	d.logger.Error(err, "Holds nothing any more, as etcd was restored to an earlier state without raising its revision; the process should be restarted, and etcd be restored with --bump-revision and --mark-compacted")
	d.mu.Lock()
	defer d.mu.Unlock()
	d.diverged = err.Error()
	d.setHeldLocked(nil)
	d.signalLocked()
	return err
}
