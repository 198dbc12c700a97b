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
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
)

// The two halves of the line. The keys of the owners and claims lowUID and highUID are in one
// each, and so are those of the two namespaces.
var (
	lowHalf  = hashkey.NewRanges(hashkey.Range{Start: 0, End: hashkey.Limit / 2})
	highHalf = hashkey.All().Minus(lowHalf)
)

// namespaceIn returns the name of a namespace whose key is in ranges.
func namespaceIn(prefix string, ranges hashkey.Ranges) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint(prefix, i); ranges.Contains(hashkey.OfNamespace(name)) {
			return name
		}
	}
}

// ofKeyPaths selects what the test creates: the server has namespaces of its own.
const ofKeyPaths = "of=key-paths"

// collection is what a request asks for.
type collection struct {
	schema.GroupVersionResource
	kind string
	// namespace is that of the requests, "" for all.
	namespace string
	// homes are the namespaces of the objects.
	homes []string
	// paths are those that move objects between the halves, or leave them in both.
	paths []sharding.KeyPath
	// specs are the specs that objects are created with, and those that one of them gets in
	// turn.
	specs []map[string]interface{}
}

// TestKeyPaths lists and watches the halves of each path.
func TestKeyPaths(t *testing.T) {
	for name, flag := range map[string]string{"watch cache": "--watch-cache=true", "etcd": "--watch-cache=false"} {
		t.Run(name, func(t *testing.T) {
			s := startFenceServer(t, flag)
			low, high := namespaceIn("team-", lowHalf), namespaceIn("team-", highHalf)
			for _, name := range []string{low, high} {
				if _, err := s.client.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			pods := collection{
				GroupVersionResource: v1.SchemeGroupVersion.WithResource("pods"), kind: "Pod", homes: []string{low, high},
				paths: []sharding.KeyPath{sharding.KeyPathHome, sharding.KeyPathNamespace},
				specs: []map[string]interface{}{{"containers": []interface{}{map[string]interface{}{"name": "main", "image": "image"}}}},
			}
			podsOfOne := pods
			podsOfOne.namespace, podsOfOne.homes, podsOfOne.paths = low, []string{low}, []sharding.KeyPath{sharding.KeyPathHome}
			volume := func(claim map[string]interface{}) map[string]interface{} {
				return map[string]interface{}{
					"capacity": map[string]interface{}{"storage": "1Gi"}, "accessModes": []interface{}{"ReadWriteOnce"},
					"hostPath": map[string]interface{}{"path": "/tmp"}, "claimRef": claim,
				}
			}
			claim := func(uid interface{}) map[string]interface{} {
				return map[string]interface{}{"kind": "PersistentVolumeClaim", "namespace": "any", "name": "claim", "uid": uid}
			}
			for name, c := range map[string]collection{
				"pods":                  pods,
				"pods in one namespace": podsOfOne,
				"namespaces": {
					GroupVersionResource: v1.SchemeGroupVersion.WithResource("namespaces"), kind: "Namespace", homes: []string{""},
					paths: []sharding.KeyPath{sharding.KeyPathHome, sharding.KeyPathNamespace},
					specs: []map[string]interface{}{{}},
				},
				"persistentvolumes": {
					GroupVersionResource: v1.SchemeGroupVersion.WithResource("persistentvolumes"), kind: "PersistentVolume", homes: []string{""},
					paths: []sharding.KeyPath{sharding.KeyPathHome, sharding.KeyPathNamespace, sharding.KeyPathClaim},
					specs: []map[string]interface{}{volume(nil), volume(claim(string(lowUID))), volume(claim(string(highUID))), volume(claim(nil)), volume(claim(string(lowUID))), volume(nil)},
				},
			} {
				t.Run(name, func(t *testing.T) { testKeyPaths(t, dynamic.NewForConfigOrDie(s.ClientConfig), c) })
			}
			t.Run("refusals", func(t *testing.T) { testRefusals(t, s) })
		})
	}
}

// key returns the key of obj at path, from what it is made of.
func (c collection) key(obj *unstructured.Unstructured, path sharding.KeyPath) (int64, bool) {
	switch path {
	case sharding.KeyPathNamespace:
		name := obj.GetNamespace()
		if c.kind == "Namespace" {
			name = obj.GetName()
		}
		return hashkey.OfNamespace(name), name != ""
	case sharding.KeyPathClaim:
		uid, _, _ := unstructured.NestedString(obj.Object, "spec", "claimRef", "uid")
		return hashkey.OfUID(types.UID(uid)), uid != ""
	}
	for _, ref := range obj.GetOwnerReferences() {
		if ptr.Deref(ref.Controller, false) {
			return hashkey.OfUID(ref.UID), true
		}
	}
	return hashkey.OfUID(obj.GetUID()), true
}

func (c collection) in(obj *unstructured.Unstructured, path sharding.KeyPath, ranges hashkey.Ranges) bool {
	if obj == nil || c.namespace != "" && obj.GetNamespace() != c.namespace {
		return false
	}
	key, found := c.key(obj, path)
	return !found || ranges.Contains(key)
}

// half is a watch of one half of a path.
type half struct {
	path   sharding.KeyPath
	ranges hashkey.Ranges
	events <-chan event
}

func testKeyPaths(t *testing.T, client *dynamic.DynamicClient, c collection) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	of := func(namespace string) dynamic.ResourceInterface {
		return client.Resource(c.GroupVersionResource).Namespace(namespace)
	}
	create := func(name string, i int, owners ...interface{}) *unstructured.Unstructured {
		t.Helper()
		obj := &unstructured.Unstructured{Object: map[string]interface{}{
			"apiVersion": "v1", "kind": c.kind, "spec": runtime.DeepCopyJSON(c.specs[i%len(c.specs)]),
			"metadata": map[string]interface{}{"name": name, "labels": map[string]interface{}{"of": "key-paths"}, "ownerReferences": owners},
		}}
		created, err := of(c.homes[i%len(c.homes)]).Create(ctx, obj, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return created
	}
	defer func() {
		for _, home := range c.homes {
			if err := of(home).DeleteCollection(context.Background(), metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}, metav1.ListOptions{LabelSelector: ofKeyPaths}); err != nil && !apierrors.IsMethodNotSupported(err) {
				t.Error(err)
			}
		}
	}()
	for i := range 12 {
		owners := [][]interface{}{{owner(lowUID, true, 0)}, {owner(highUID, true, 0)}, {owner(highUID, false, 0)}, {}}
		create(fmt.Sprintf("member-%02d", i), i, owners[i%5%4]...)
	}
	all, err := of(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: ofKeyPaths})
	if err != nil {
		t.Fatal(err)
	}
	c.testLists(t, of(c.namespace), all)

	// The plain watch says what happens; every watch of a half must tell its part of it.
	plain, err := of(c.namespace).Watch(ctx, metav1.ListOptions{LabelSelector: ofKeyPaths, ResourceVersion: all.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Stop()
	var halves []half
	for _, path := range c.paths {
		for _, ranges := range []hashkey.Ranges{lowHalf, highHalf} {
			h := half{path: path, ranges: ranges}
			if h.events, err = c.representation(of(c.namespace)).watch(ctx, metav1.ListOptions{
				LabelSelector: ofKeyPaths, ShardSelector: ranges.Selector(path.String()),
				SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
			}); err != nil {
				t.Fatal(err)
			}
			var initial []string
			for e := next(t, h.events); !e.synced; e = next(t, h.events) {
				initial = append(initial, e.name)
			}
			slices.Sort(initial)
			if want := c.names(all, path, ranges); !slices.Equal(initial, want) {
				t.Errorf("initial events of %s: %q, want %q", ranges.Selector(path.String()), initial, want)
			}
			halves = append(halves, h)
		}
	}

	patch := func(content map[string]interface{}) {
		t.Helper()
		if _, err := of(c.homes[0]).Patch(ctx, "moving", types.MergePatchType, mustMarshal(t, content), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("moving", 0)
	for i := range max(4, len(c.specs)) {
		owners := [][]interface{}{{owner(lowUID, true, 0)}, {owner(highUID, true, 0)}, {owner(lowUID, false, 0)}, {}}
		patch(map[string]interface{}{"metadata": map[string]interface{}{"ownerReferences": owners[i%len(owners)]}})
		if len(c.specs) > 1 {
			patch(map[string]interface{}{"spec": map[string]interface{}{"claimRef": c.specs[i%len(c.specs)]["claimRef"]}})
		}
		patch(map[string]interface{}{"metadata": map[string]interface{}{"annotations": map[string]interface{}{"step": fmt.Sprint(i)}}})
	}
	patch(map[string]interface{}{"metadata": map[string]interface{}{"finalizers": nil}})
	if err := of(c.homes[0]).Delete(ctx, "moving", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
		t.Fatal(err)
	}
	// Each half gets an object that ends the test.
	last, ended := "", map[int]bool{}
	for i := 0; len(ended) < len(halves); i++ {
		obj := create(fmt.Sprintf("end-%d", i), i*len(c.specs)) // with the first spec
		for n, h := range halves {
			if c.in(obj, h.path, h.ranges) {
				ended[n] = true
			}
		}
		last = obj.GetName()
	}

	type change struct {
		before, after *unstructured.Unstructured
	}
	var changes []change
	now := map[string]*unstructured.Unstructured{}
	for i := range all.Items {
		now[all.Items[i].GetName()] = &all.Items[i]
	}
	for name := ""; name != last; {
		e := <-plain.ResultChan()
		obj, ok := e.Object.(*unstructured.Unstructured)
		if !ok {
			t.Fatalf("the plain watch ended with %v", e)
		}
		name = obj.GetName()
		before := now[name]
		if now[name] = obj; e.Type == watch.Deleted {
			now[name] = nil
		}
		changes = append(changes, change{before: before, after: now[name]})
	}
	for _, h := range halves {
		var want, got []string
		for _, change := range changes {
			was, is := c.in(change.before, h.path, h.ranges), c.in(change.after, h.path, h.ranges)
			switch {
			case was && is:
				want = append(want, fmt.Sprint(watch.Modified, " ", change.after.GetName()))
			case is:
				want = append(want, fmt.Sprint(watch.Added, " ", change.after.GetName()))
			case was:
				want = append(want, fmt.Sprint(watch.Deleted, " ", change.before.GetName()))
			}
			if is && strings.HasPrefix(change.after.GetName(), "end-") {
				break
			}
		}
		for len(got) == 0 || !strings.Contains(got[len(got)-1], " end-") {
			e := next(t, h.events)
			got = append(got, fmt.Sprint(e.kind, " ", e.name))
		}
		if !slices.Equal(got, want) {
			t.Errorf("events of %s:\n got %q\nwant %q", h.ranges.Selector(h.path.String()), got, want)
		}
	}
}

func (c collection) representation(r dynamic.ResourceInterface) representation {
	return decoded("", func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return r.List(ctx, options)
	}, r.Watch)
}

// names returns the sorted names of those that are in ranges.
func (c collection) names(all *unstructured.UnstructuredList, path sharding.KeyPath, ranges hashkey.Ranges) []string {
	var names []string
	for i := range all.Items {
		if c.in(&all.Items[i], path, ranges) {
			names = append(names, all.Items[i].GetName())
		}
	}
	slices.Sort(names)
	return names
}

// testLists lists both halves of every path in all ways. Together they are everything: each
// object once, or twice where it has no key.
func (c collection) testLists(t *testing.T, r dynamic.ResourceInterface, all *unstructured.UnstructuredList) {
	exact := metav1.ListOptions{ResourceVersion: all.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	notOlder := metav1.ListOptions{ResourceVersion: all.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
	for way, options := range map[string]metav1.ListOptions{"consistent": {}, "not older": notOlder, "exact": exact, "in pages": {Limit: 3}} {
		for _, path := range c.paths {
			times := map[string]int{}
			for _, ranges := range []hashkey.Ranges{lowHalf, highHalf} {
				options := options
				options.LabelSelector, options.ShardSelector = ofKeyPaths, ranges.Selector(path.String())
				var got []string
				for {
					p, err := c.representation(r).list(t.Context(), options)
					if err != nil {
						t.Fatalf("%s list of %s: %v", way, options.ShardSelector, err)
					}
					if p.shardInfo == nil || p.shardInfo.Selector != options.ShardSelector {
						t.Errorf("%s list of %s: shardInfo is %v", way, options.ShardSelector, p.shardInfo)
					}
					got = append(got, p.names...)
					if options.Continue = p.next; p.next == "" {
						break
					}
				}
				for _, name := range got {
					times[name]++
				}
				slices.Sort(got)
				if want := c.names(all, path, ranges); !slices.Equal(got, want) {
					t.Errorf("%s list of %s:\n got %q\nwant %q", way, options.ShardSelector, got, want)
				}
			}
			want := map[string]int{}
			for i := range all.Items {
				want[all.Items[i].GetName()] = 1
				if _, found := c.key(&all.Items[i], path); !found {
					want[all.Items[i].GetName()] = 2
				}
			}
			if !maps.Equal(times, want) {
				t.Errorf("%s lists of both halves by %s have each object that often: %v, want %v", way, path, times, want)
			}
		}
	}
}

// testRefusals: selectors that no resource or not this one has, and those that are too long,
// get a short 400.
func testRefusals(t *testing.T, s *fenceServer) {
	manyRanges := func(n int) string {
		var ranges hashkey.Ranges
		for i := range uint64(n) {
			ranges = append(ranges, hashkey.Range{Start: 2 * i, End: 2*i + 1})
		}
		return ranges.Selector(sharding.HashKeyPath)
	}
	client := dynamic.NewForConfigOrDie(s.ClientConfig)
	pods, volumes := client.Resource(v1.SchemeGroupVersion.WithResource("pods")), client.Resource(v1.SchemeGroupVersion.WithResource("persistentvolumes"))
	claims := client.Resource(v1.SchemeGroupVersion.WithResource("persistentvolumeclaims"))
	for name, tc := range map[string]struct {
		resource         dynamic.NamespaceableResourceInterface
		selector, reason string
	}{
		"claims of pods":   {pods, hashkey.All().Selector(sharding.ClaimHashKeyPath), "only persistentvolumes have object.spec.claimRef.hashKey, not pods"},
		"claims of claims": {claims, hashkey.All().Selector(sharding.ClaimHashKeyPath), "not persistentvolumeclaims"},
		"129 ranges":       {volumes, manyRanges(129), "129 ranges, but at most 128 are allowed: merge adjacent ranges, or send several requests"},
		"long":             {pods, strings.Repeat("x", 900_000), "want shardRange("},
	} {
		options := metav1.ListOptions{ShardSelector: tc.selector}
		_, listErr := tc.resource.List(t.Context(), options)
		_, watchErr := tc.resource.Watch(t.Context(), options)
		deleteErr := tc.resource.Namespace(s.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, options)
		if tc.resource == volumes {
			deleteErr = tc.resource.DeleteCollection(t.Context(), metav1.DeleteOptions{}, options)
		}
		for verb, err := range map[string]error{"list": listErr, "watch": watchErr, "deletecollection": deleteErr} {
			if !apierrors.IsBadRequest(err) {
				t.Errorf("%s, %s: got %.300v, want a bad request", name, verb, err)
			} else if len(err.Error()) > 1500 || !strings.Contains(err.Error(), tc.reason) {
				t.Errorf("%s, %s: an error of %d bytes: %.300q, want a short one with %q", name, verb, len(err.Error()), err, tc.reason)
			}
		}
	}
	if _, err := pods.List(t.Context(), metav1.ListOptions{ShardSelector: manyRanges(128)}); err != nil {
		t.Errorf("128 ranges: %v", err)
	}
}
