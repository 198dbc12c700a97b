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
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

// uidShards is how many parts the tests make of all UIDs.
const uidShards = 3

// uidShard returns the selector of one part in the way that clients of KEP-5866 write it, such as
// kube-state-metrics in its pull request 3127.
func uidShard(shard uint64) string {
	step := uint64(math.MaxUint64)/uidShards + 1
	if shard+1 == uidShards {
		return fmt.Sprintf("shardRange(object.metadata.uid, '0x%016x', '0x10000000000000000')", step*shard)
	}
	return fmt.Sprintf("shardRange(object.metadata.uid, '0x%016x', '0x%016x')", step*shard, step*(shard+1))
}

func uidShardOf(uid types.UID) uint64 {
	hash := fnv.New64a()
	hash.Write([]byte(uid))
	return hash.Sum64() / (uint64(math.MaxUint64)/uidShards + 1)
}

// versions are the resource versions of objects by name.
type versions map[string]string

// sharded is what each part should have.
type sharded [uidShards]versions

func (s *sharded) set(obj *v1.ConfigMap) {
	shard := uidShardOf(obj.UID)
	if s[shard] == nil {
		s[shard] = versions{}
	}
	s[shard][obj.Name] = obj.ResourceVersion
}

// TestUpstreamsSelectorOfUIDs: a client that divides objects by the hash of their UIDs, as upstream
// has it, gets its part by lists, pages, informers and watches that are resumed, with the feature
// gate and without.
func TestUpstreamsSelectorOfUIDs(t *testing.T) {
	for _, gate := range []bool{true, false} {
		t.Run(fmt.Sprintf("gate %t", gate), func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ControllerRing, gate)
			s := startKeyServer(t)
			testUIDShards(t, s.client.CoreV1().ConfigMaps(s.namespace))
		})
	}
}

func testUIDShards(t *testing.T, client corev1.ConfigMapInterface) {
	ctx := t.Context()
	var want sharded
	create := func(name string) {
		created, err := client.Create(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"test": "uid"}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want.set(created)
	}
	for i := range 60 {
		create(fmt.Sprint("before-", i))
	}
	const ours = "test=uid" // the server makes others
	var since [uidShards]string
	for shard := range uint64(uidShards) {
		for what, options := range map[string]metav1.ListOptions{"latest": {}, "cached": {ResourceVersion: "0"}, "paged": {Limit: 7}} {
			got := versions{}
			options.ShardSelector, options.LabelSelector = uidShard(shard), ours
			for {
				list, err := client.List(ctx, options)
				if err != nil {
					t.Fatal(err)
				}
				if list.ShardInfo == nil || list.ShardInfo.Selector != options.ShardSelector {
					t.Errorf("%s: shardInfo is %v", what, list.ShardInfo)
				}
				for _, item := range list.Items {
					got[item.Name] = item.ResourceVersion
				}
				since[shard] = list.ResourceVersion
				if options.Continue = list.Continue; options.Continue == "" {
					break
				}
			}
			if what != "cached" && !maps.Equal(got, want[shard]) {
				t.Errorf("%s: part %d is %v, want %v", what, shard, got, want[shard])
			}
		}
	}

	var informers [uidShards]cache.SharedIndexInformer
	for shard := range uint64(uidShards) {
		informers[shard] = cache.NewSharedIndexInformer(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				options.ShardSelector, options.LabelSelector = uidShard(shard), ours
				return client.List(ctx, options)
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				options.ShardSelector, options.LabelSelector = uidShard(shard), ours
				return client.Watch(ctx, options)
			},
		}, &v1.ConfigMap{}, 0, cache.Indexers{})
		go informers[shard].RunWithContext(ctx)
	}
	if !cache.WaitForCacheSync(ctx.Done(), informers[0].HasSynced, informers[1].HasSynced, informers[2].HasSynced) {
		t.Fatal("an informer did not sync")
	}
	for i := range 60 {
		switch name := fmt.Sprint("before-", i); i % 3 {
		case 0:
			create(fmt.Sprint("after-", i))
		case 1:
			changed, err := client.Patch(ctx, name, types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want.set(changed)
		case 2:
			if err := client.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			for _, part := range want {
				delete(part, name)
			}
		}
	}

	for shard := range uint64(uidShards) {
		var got versions
		err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, wait.ForeverTestTimeout, true, func(context.Context) (bool, error) {
			got = versions{}
			for _, obj := range informers[shard].GetStore().List() {
				got[obj.(*v1.ConfigMap).Name] = obj.(*v1.ConfigMap).ResourceVersion
			}
			return maps.Equal(got, want[shard]), nil
		})
		if err != nil {
			t.Errorf("the informer of part %d has %v, want %v", shard, got, want[shard])
		}

		// A watch that goes on from the list above has all that happened since, and nothing else.
		events, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: since[shard], ShardSelector: uidShard(shard), LabelSelector: ours})
		if err != nil {
			t.Fatal(err)
		}
		defer events.Stop()
		seen := versions{}
		timeout, cancel := context.WithTimeout(ctx, wait.ForeverTestTimeout)
		defer cancel()
		for !containsAll(want[shard], seen, "after-") {
			select {
			case event := <-events.ResultChan():
				obj, ok := event.Object.(*v1.ConfigMap)
				if !ok || uidShardOf(obj.UID) != shard {
					t.Fatalf("the watch of part %d has %v", shard, event)
				}
				seen[obj.Name] = obj.ResourceVersion
			case <-timeout.Done():
				t.Fatalf("the watch of part %d from %s has %v, want what is new in %v", shard, since[shard], seen, want[shard])
			}
		}
	}
}

// containsAll says whether seen has all in want whose names begin with prefix.
func containsAll(want, seen versions, prefix string) bool {
	for name, version := range want {
		if len(name) > len(prefix) && name[:len(prefix)] == prefix && seen[name] != version {
			return false
		}
	}
	return true
}
