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
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/tools/rangewatch/follower"
	"k8s.io/utils/ptr"
)

func TestNewSourceRefusesAnInvalidConfig(t *testing.T) {
	server := newFakeServer(sharding.HashKeyPath)
	for name, cfg := range map[string]Config{
		"no field":      {ListWatch: server, Object: &v1.Pod{}},
		"unknown field": {Field: "object.metadata.name", ListWatch: server, Object: &v1.Pod{}},
		"no list-watch": {Field: sharding.HashKeyPath, Object: &v1.Pod{}},
		"no object":     {Field: sharding.HashKeyPath, ListWatch: server},
		"a list":        {Field: sharding.HashKeyPath, ListWatch: server, Object: &v1.PodList{}},
		"a page size":   {Field: sharding.HashKeyPath, ListWatch: server, Object: &v1.Pod{}, PageSize: -1},
	} {
		if _, err := NewSource(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	featurestesting.SetFeatureDuringTest(t, features.UnlockWhileProcessingFIFO, false)
	featurestesting.SetFeatureDuringTest(t, features.AtomicFIFO, false)
	if _, err := NewSource(Config{Field: sharding.HashKeyPath, ListWatch: server, Object: &v1.Pod{}}); err == nil || !strings.Contains(err.Error(), "AtomicFIFO") {
		t.Errorf("without AtomicFIFO: %v", err)
	}
}

func TestIdentifyReadsNameRevisionAndControllerKey(t *testing.T) {
	path, _ := sharding.ParseKeyPath(sharding.ControllerHashKeyPath)
	s := &Source{path: path}
	pod := newPod(sharding.ControllerHashKeyPath, "a", 10)
	pod.Namespace, pod.ResourceVersion = "ns", "7"
	got, err := s.identify(pod)
	if err != nil || got != (follower.Object{ID: follower.ID{Namespace: "ns", Name: "a"}, Revision: 7, Key: follower.KeyOf(hashkey.OfUID(pod.OwnerReferences[0].UID))}) {
		t.Errorf("%+v, %v", got, err)
	}
	// A key that the object carries does not count.
	pod.OwnerReferences[0].HashKey = ptr.To[int64](1)
	if got, err := s.identify(pod); err != nil || got.Key != follower.KeyOf(hashkey.OfUID(pod.OwnerReferences[0].UID)) {
		t.Errorf("%+v, %v", got, err)
	}
	pod.ResourceVersion = ""
	if _, err := s.identify(pod); err == nil {
		t.Error("an object without revision was accepted")
	}
}
