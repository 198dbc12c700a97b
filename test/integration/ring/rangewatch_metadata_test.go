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
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/rangewatch"
	kubeapiservertesting "k8s.io/kubernetes/cmd/kube-apiserver/app/testing"
	"k8s.io/kubernetes/test/integration/framework"
)

// An informer of metadata alone, and a stream without a store, follow ranges of a real server.
func TestMetadataAndStreamsFollowRanges(t *testing.T) {
	server := kubeapiservertesting.StartTestServerOrDie(t, nil, []string{"--disable-admission-plugins=ServiceAccount"}, framework.SharedEtcd())
	t.Cleanup(server.TearDownFn)
	client := kubernetes.NewForConfigOrDie(server.ClientConfig)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if _, err := client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "metadata"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	configMaps := client.CoreV1().ConfigMaps("metadata")
	for i := range 40 {
		if _, err := configMaps.Create(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("map-%02d", i)}, Data: map[string]string{"large": "value"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	config := func() rangewatch.Config {
		cfg, err := rangewatch.ForMetadata(metadata.NewForConfigOrDie(server.ClientConfig), v1.SchemeGroupVersion.WithResource("configmaps"), sharding.HashKeyPath)
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	newSource := func() *rangewatch.Source {
		source, err := rangewatch.NewSource(config())
		if err != nil {
			t.Fatal(err)
		}
		return source
	}

	informed, streamed := newSource(), newSource()
	informer := informed.NewInformer(cache.SharedIndexInformerOptions{})
	go informer.RunWithContext(ctx)
	told := &names{}
	events := streamed.Stream(ctx)
	go told.read(t, events)
	defer events.Stop()

	check := func(r hashkey.Ranges) {
		t.Helper()
		for _, s := range []*rangewatch.Source{informed, streamed} {
			s.SetRanges(r)
			if err := s.WaitFor(ctx, r); err != nil {
				t.Fatal(err)
			}
		}
		list, err := configMaps.List(ctx, metav1.ListOptions{ShardSelector: r.Selector(sharding.HashKeyPath)})
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, m := range list.Items {
			want = append(want, m.Namespace+"/"+m.Name)
		}
		slices.Sort(want)
		in := func(all []string) []string { // other namespaces have some, too
			return slices.DeleteFunc(all, func(name string) bool { return name < "metadata/" || name > "metadata0" })
		}
		// What has left the ranges goes soon after.
		if err := wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) {
			stored := in(informer.GetStore().ListKeys())
			slices.Sort(stored)
			return slices.Equal(stored, want) && slices.Equal(in(told.sorted()), want), nil
		}); err != nil {
			t.Errorf("%s: stored %v, streamed %v, want %v", r, in(informer.GetStore().ListKeys()), in(told.sorted()), want)
		}
	}
	half := hashkey.NewRanges(hashkey.Range{Start: 0, End: hashkey.Limit / 2})
	check(half)
	if err := configMaps.Delete(ctx, "map-07", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	check(hashkey.All())
	check(hashkey.All().Minus(half))
	for _, obj := range informer.GetStore().List() {
		if _, ok := obj.(*metav1.PartialObjectMetadata); !ok {
			t.Errorf("the store has a %T", obj)
		}
	}
}

// names are those of the objects that a stream has told of.
type names struct {
	mu  sync.Mutex
	all map[string]bool
}

func (n *names) read(t *testing.T, events watch.Interface) {
	for event := range events.ResultChan() {
		accessor, ok := event.Object.(metav1.Object)
		if !ok {
			t.Errorf("%s of a %T", event.Type, event.Object)
			continue
		}
		name := cache.MetaObjectToName(accessor).String()
		n.mu.Lock()
		if n.all == nil {
			n.all = map[string]bool{}
		}
		switch event.Type {
		case watch.Added, watch.Modified:
			n.all[name] = true
		case watch.Deleted:
			delete(n.all, name)
		}
		n.mu.Unlock()
	}
}

func (n *names) sorted() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.all))
}
