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
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// page is the content of a list response, in any representation.
type page struct {
	names     []string
	version   string
	next      string
	remaining *int64
	shardInfo *metav1.ShardInfo
}

// event is the content of a watch event.
type event struct {
	kind watch.EventType
	name string
	// touch is the annotation that distinguishes updates.
	touch string
	// synced is set on the bookmark that ends the initial events.
	synced bool
}

// representation is one way of asking for a collection.
type representation struct {
	name  string
	list  func(ctx context.Context, options metav1.ListOptions) (page, error)
	watch func(ctx context.Context, options metav1.ListOptions) (<-chan event, error)
}

const touchAnnotation = "touch"

func eventOf(kind watch.EventType, name string, annotations map[string]string) event {
	return event{kind: kind, name: name, touch: annotations[touchAnnotation], synced: annotations[metav1.InitialEventsAnnotationKey] == "true"}
}

// representations returns all the ways of asking for a collection.
func (s *keyServer) representations(t *testing.T, r keyResource) []representation {
	t.Helper()
	all := []representation{
		s.onTheWire(r, "JSON", "application/json", "application/json"),
		s.onTheWire(r, "metadata in JSON", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"),
		s.onTheWire(r, "table", "application/json;as=Table;g=meta.k8s.io;v=v1", "application/json;as=Table;g=meta.k8s.io;v=v1"),
	}
	metadataClient, err := metadata.NewForConfig(s.ClientConfig) // speaks protobuf
	if err != nil {
		t.Fatal(err)
	}
	metadataOnly := metadataClient.Resource(r.GroupVersionResource).Namespace(s.namespace)
	all = append(all, decoded("metadata in protobuf",
		func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return metadataOnly.List(ctx, options)
		}, metadataOnly.Watch))
	if r.Resource == "configmaps" {
		config := restclient.CopyConfig(s.ClientConfig)
		config.ContentType = runtime.ContentTypeProtobuf
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		configMaps := client.CoreV1().ConfigMaps(s.namespace)
		all = append(all, decoded("protobuf",
			func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return configMaps.List(ctx, options)
			}, configMaps.Watch))
	}
	return all
}

// decoded reads objects that a client has decoded.
func decoded(name string, list func(context.Context, metav1.ListOptions) (runtime.Object, error), watchFunc func(context.Context, metav1.ListOptions) (watch.Interface, error)) representation {
	return representation{
		name: name,
		list: func(ctx context.Context, options metav1.ListOptions) (page, error) {
			list, err := list(ctx, options)
			if err != nil {
				return page{}, err
			}
			accessor := list.(metav1.ListInterface)
			p := page{
				version:   accessor.GetResourceVersion(),
				next:      accessor.GetContinue(),
				remaining: accessor.GetRemainingItemCount(),
				shardInfo: list.(metav1.ShardedListInterface).GetShardInfo(),
			}
			return p, meta.EachListItem(list, func(obj runtime.Object) error {
				p.names = append(p.names, obj.(metav1.Object).GetName())
				return nil
			})
		},
		watch: func(ctx context.Context, options metav1.ListOptions) (<-chan event, error) {
			watcher, err := watchFunc(ctx, options)
			if err != nil {
				return nil, err
			}
			events := make(chan event)
			go func() {
				defer close(events)
				defer watcher.Stop()
				for e := range watcher.ResultChan() {
					read := event{kind: e.Type}
					if obj, ok := e.Object.(metav1.Object); ok {
						read = eventOf(e.Type, obj.GetName(), obj.GetAnnotations())
					}
					select {
					case events <- read:
					case <-ctx.Done():
						return
					}
				}
			}()
			return events, nil
		},
	}
}

type wireMetadata struct {
	Name               string            `json:"name"`
	Annotations        map[string]string `json:"annotations"`
	ResourceVersion    string            `json:"resourceVersion"`
	Continue           string            `json:"continue"`
	RemainingItemCount *int64            `json:"remainingItemCount"`
	ShardInfo          *metav1.ShardInfo `json:"shardInfo"`
}

// wireObject holds an object, a list or a table.
type wireObject struct {
	Metadata wireMetadata `json:"metadata"`
	Items    []wireObject `json:"items"`
	Rows     []struct {
		Object wireObject `json:"object"`
	} `json:"rows"`
}

func (o wireObject) members() []wireObject {
	members := o.Items
	for _, row := range o.Rows {
		members = append(members, row.Object)
	}
	return members
}

// onTheWire reads the JSON of responses.
func (s *keyServer) onTheWire(r keyResource, name, acceptList, acceptObject string) representation {
	request := func(options metav1.ListOptions, accept string) *restclient.Request {
		return s.client.CoreV1().RESTClient().Get().AbsPath(r.url).VersionedParams(&options, metav1.ParameterCodec).SetHeader("Accept", accept)
	}
	return representation{
		name: name,
		list: func(ctx context.Context, options metav1.ListOptions) (page, error) {
			result := request(options, acceptList).Do(ctx)
			if err := result.Error(); err != nil {
				return page{}, err
			}
			data, err := result.Raw()
			if err != nil {
				return page{}, err
			}
			var list wireObject
			if err := json.Unmarshal(data, &list); err != nil {
				return page{}, err
			}
			p := page{version: list.Metadata.ResourceVersion, next: list.Metadata.Continue, remaining: list.Metadata.RemainingItemCount, shardInfo: list.Metadata.ShardInfo}
			for _, member := range list.members() {
				p.names = append(p.names, member.Metadata.Name)
			}
			return p, nil
		},
		watch: func(ctx context.Context, options metav1.ListOptions) (<-chan event, error) {
			options.Watch = true
			stream, err := request(options, acceptObject).Stream(ctx)
			if err != nil {
				return nil, err
			}
			events := make(chan event)
			go func() {
				defer close(events)
				defer stream.Close()
				for decoder := json.NewDecoder(stream); ; {
					var e struct {
						Type   watch.EventType `json:"type"`
						Object wireObject      `json:"object"`
					}
					if err := decoder.Decode(&e); err != nil {
						if err != io.EOF && ctx.Err() == nil {
							e.Type = watch.Error // the reader fails on it
						} else {
							return
						}
					}
					obj := e.Object
					if members := obj.members(); len(members) == 1 {
						obj = members[0]
					}
					select {
					case events <- eventOf(e.Type, obj.Metadata.Name, obj.Metadata.Annotations):
					case <-ctx.Done():
						return
					}
				}
			}()
			return events, nil
		},
	}
}

// member is an object of the population, with the UIDs that determine its keys.
type member struct {
	name       string
	own        types.UID
	controller types.UID // "" for none
}

func (m member) in(fieldPath string, ranges hashkey.Ranges) bool {
	if fieldPath == sharding.HashKeyPath {
		return ranges.Contains(hashkey.OfUID(m.own))
	}
	return m.controller == "" || ranges.Contains(hashkey.OfUID(m.controller))
}

// population is a collection with all sorts of objects.
type population struct {
	members []member
	// before, early and now are the resource versions before the first member, after the
	// first half of them, and after all.
	before, early, now string
}

const populationSize = 16

// populate creates objects with a controller in either half, with an owner that is not a
// controller, and without an owner. A stock server was the last writer of every fourth.
func (s *keyServer) populate(t *testing.T, r keyResource) *population {
	t.Helper()
	p := &population{}
	version := func() string {
		list, err := r.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return list.GetResourceVersion()
	}
	p.before = version()
	for i := range populationSize {
		if i == populationSize/2 {
			p.early = version()
		}
		m := member{name: fmt.Sprintf("member-%02d", i)}
		var owners []interface{}
		switch i % 5 {
		case 0:
			m.controller = lowUID
			owners = append(owners, owner(highUID, false, 0), owner(lowUID, true, 0))
		case 1:
			m.controller = highUID
			owners = append(owners, owner(highUID, true, 0))
		case 2:
			owners = append(owners, owner(lowUID, false, 0))
		case 3:
			m.controller = lowUID
			owners = append(owners, owner(lowUID, true, 0))
		}
		obj := r.object(m.name, owners...)
		obj.SetLabels(map[string]string{"parity": fmt.Sprint(i % 2)})
		if i%4 == 3 {
			m.own = s.byEarlierVersion(t, r, obj).GetUID()
		} else {
			created, err := r.Create(t.Context(), obj, metav1.CreateOptions{})
			m.own = expectNoKeys(t, created, err).GetUID()
		}
		p.members = append(p.members, m)
	}
	p.now = version()
	return p
}

func (p *population) namesIn(fieldPath string, ranges hashkey.Ranges) []string {
	var names []string
	for _, m := range p.members {
		if m.in(fieldPath, ranges) {
			names = append(names, m.name)
		}
	}
	return names
}

// selection is a shard selector, and what it selects.
type selection struct {
	name, fieldPath, selector string
	ranges                    hashkey.Ranges
}

func (p *population) selections() []selection {
	quarter := int64(hashkey.Limit / 4)
	var all []selection
	for _, fieldPath := range []string{sharding.HashKeyPath, sharding.ControllerHashKeyPath} {
		key := hashkey.OfUID(p.members[5].own)
		if fieldPath == sharding.ControllerHashKeyPath {
			key = hashkey.OfUID(lowUID)
		}
		one := hashkey.NewRanges(hashkey.Range{Start: uint64(key), End: uint64(key) + 1})
		for name, ranges := range map[string]hashkey.Ranges{
			"lower half":    hashkey.NewRanges(hashkey.Range{Start: 0, End: hashkey.Limit / 2}),
			"upper half":    hashkey.NewRanges(hashkey.Range{Start: hashkey.Limit / 2, End: hashkey.Limit}),
			"over the seam": hashkey.Between(3*quarter-1, quarter-1),
			"one key":       one,
			"all but one":   hashkey.All().Minus(one),
			"everything":    hashkey.All(),
		} {
			all = append(all, selection{name, fieldPath, ranges.Selector(fieldPath), ranges})
		}
		all = append(all, selection{name: "nothing", fieldPath: fieldPath, selector: "shardRange(" + fieldPath + ", '0x8000000000000000', '0x10000000000000000')"})
	}
	return all
}

// listAll lists page by page, and checks the metadata of each page.
func listAll(t *testing.T, r representation, options metav1.ListOptions) []string {
	t.Helper()
	var names []string
	remaining := map[int]int64{}
	for pages := 0; ; pages++ {
		p, err := r.list(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		if p.shardInfo == nil || p.shardInfo.Selector != options.ShardSelector {
			t.Errorf("page %d: shardInfo is %v, want %q", pages, p.shardInfo, options.ShardSelector)
		}
		// Like upstream's, the watch cache may ignore the limit at resource version 0.
		if options.Limit > 0 && int64(len(p.names)) > options.Limit && options.ResourceVersion != "0" {
			t.Errorf("page %d holds %d, over the limit of %d", pages, len(p.names), options.Limit)
		}
		names = append(names, p.names...)
		if p.remaining != nil {
			remaining[len(names)] = *p.remaining
		}
		if p.next == "" {
			// It may be unknown, but then it must be absent.
			for listed, left := range remaining {
				if left != int64(len(names)-listed) {
					t.Errorf("remainingItemCount is %d after %d of %d", left, listed, len(names))
				}
			}
			return names
		}
		if pages > 2*populationSize {
			t.Fatal("the pages do not end")
		}
		options.Continue, options.ResourceVersion, options.ResourceVersionMatch = p.next, "", ""
	}
}

// TestSelectors requests ranges in every way that a client can, from a server with a watch
// cache and from one without.
func TestSelectors(t *testing.T) {
	for name, flags := range map[string][]string{"watch cache": nil, "etcd": {"--watch-cache=false"}} {
		t.Run(name, func(t *testing.T) {
			s := startKeyServer(t, flags...)
			for _, r := range []keyResource{s.configMaps, s.custom} {
				kind := "built-in"
				if r.Resource == s.custom.Resource {
					kind = "custom"
				}
				t.Run(kind, func(t *testing.T) {
					p := s.populate(t, r)
					representations := s.representations(t, r)
					// This comes first, because a watch cache keeps few events.
					t.Run("watch the past", func(t *testing.T) { s.testWatchThePast(t, r, p, representations) })
					t.Run("list", func(t *testing.T) { testLists(t, p, representations) })
					t.Run("watch", func(t *testing.T) { s.testWatches(t, r, p, representations) })
					t.Run("transitions", func(t *testing.T) { s.testTransitions(t, r, representations) })
					t.Run("malformed", func(t *testing.T) { testMalformed(t, r, representations) })
				})
			}
		})
	}
}

func testLists(t *testing.T, p *population, representations []representation) {
	const limit = 2
	for _, mode := range []struct {
		name    string
		options metav1.ListOptions
		of      func(m member, index int) bool
	}{
		{name: "most recent"},
		{name: "any version", options: metav1.ListOptions{ResourceVersion: "0"}},
		{name: "not older", options: metav1.ListOptions{ResourceVersion: p.now}},
		{name: "exact", options: metav1.ListOptions{ResourceVersion: p.now, ResourceVersionMatch: metav1.ResourceVersionMatchExact}},
		{
			name:    "exact, earlier",
			options: metav1.ListOptions{ResourceVersion: p.early, ResourceVersionMatch: metav1.ResourceVersionMatchExact},
			of:      func(_ member, index int) bool { return index < populationSize/2 },
		},
		{name: "pages", options: metav1.ListOptions{Limit: limit}},
		{name: "pages of any version", options: metav1.ListOptions{Limit: limit, ResourceVersion: "0"}},
		{name: "pages, not older", options: metav1.ListOptions{Limit: limit, ResourceVersion: p.now, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}},
		{
			name:    "pages, exact",
			options: metav1.ListOptions{Limit: limit, ResourceVersion: p.early, ResourceVersionMatch: metav1.ResourceVersionMatchExact},
			of:      func(_ member, index int) bool { return index < populationSize/2 },
		},
		{
			name:    "with labels",
			options: metav1.ListOptions{LabelSelector: "parity=1"},
			of:      func(_ member, index int) bool { return index%2 == 1 },
		},
		{
			name:    "pages with labels",
			options: metav1.ListOptions{LabelSelector: "parity=1", Limit: limit},
			of:      func(_ member, index int) bool { return index%2 == 1 },
		},
		{
			name:    "by name",
			options: metav1.ListOptions{FieldSelector: "metadata.name=" + p.members[5].name},
			of:      func(_ member, index int) bool { return index == 5 },
		},
	} {
		for _, sel := range p.selections() {
			for _, r := range representations {
				t.Run(strings.Join([]string{mode.name, sel.fieldPath, sel.name, r.name}, "/"), func(t *testing.T) {
					options := mode.options
					options.ShardSelector = sel.selector
					var want []string
					for i, m := range p.members {
						if m.in(sel.fieldPath, sel.ranges) && (mode.of == nil || mode.of(m, i)) {
							want = append(want, m.name)
						}
					}
					// Each once, in upstream's order.
					if got := listAll(t, r, options); !slices.Equal(got, want) {
						t.Errorf("listed %v, want %v", got, want)
					}
				})
			}
		}
	}
}

// next returns the next event other than ordinary bookmarks.
func next(t *testing.T, events <-chan event) event {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case e, ok := <-events:
			switch {
			case !ok:
				t.Fatal("the watch ended")
			case e.kind == watch.Error:
				t.Fatal("the watch broke with an error")
			case e.kind != watch.Bookmark || e.synced:
				return e
			}
		case <-timeout:
			t.Fatal("no event came")
		}
	}
}

// apply handles an event as an informer does.
func apply(t *testing.T, state map[string]bool, e event) {
	t.Helper()
	switch e.kind {
	case watch.Added:
		if state[e.name] {
			t.Errorf("%s was added twice", e.name)
		}
		state[e.name] = true
	case watch.Modified:
		if !state[e.name] {
			t.Errorf("%s was modified, but never added", e.name)
		}
	case watch.Deleted:
		if !state[e.name] {
			t.Errorf("%s was deleted, but never added", e.name)
		}
		delete(state, e.name)
	}
}

func expectState(t *testing.T, state map[string]bool, want []string) {
	t.Helper()
	names := []string{}
	for name := range state {
		names = append(names, name)
	}
	slices.Sort(names)
	if !slices.Equal(names, want) {
		t.Errorf("the watch has shown %v, want %v", names, want)
	}
}

// touches numbers the updates, so a test recognizes its own.
var touches int

// followUntilTouched reads events until all wanted members are there. Then it updates one
// of them and reads up to that update. The events must have built exactly what the range
// holds.
func (s *keyServer) followUntilTouched(t *testing.T, r keyResource, events <-chan event, state map[string]bool, want []string) {
	t.Helper()
	for len(state) < len(want) {
		apply(t, state, next(t, events))
	}
	touches++
	touch := fmt.Sprint(touches)
	name := want[touches%len(want)]
	patch := mustMarshal(t, map[string]interface{}{"metadata": map[string]interface{}{"annotations": map[string]interface{}{touchAnnotation: touch}}})
	if _, err := r.Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for {
		e := next(t, events)
		apply(t, state, e)
		if e.touch == touch {
			if e.kind != watch.Modified || e.name != name {
				t.Errorf("the update of %s came as %v", name, e)
			}
			break
		}
	}
	expectState(t, state, want)
}

// testWatchThePast starts watches at a revision before the population.
func (s *keyServer) testWatchThePast(t *testing.T, r keyResource, p *population, representations []representation) {
	for _, sel := range p.selections() {
		for _, representation := range representations {
			if representation.name != "JSON" && representation.name != "protobuf" {
				continue
			}
			t.Run(strings.Join([]string{sel.fieldPath, sel.name, representation.name}, "/"), func(t *testing.T) {
				want := p.namesIn(sel.fieldPath, sel.ranges)
				if len(want) == 0 {
					t.Skip("nothing ever comes")
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				events, err := representation.watch(ctx, metav1.ListOptions{ResourceVersion: p.before, ShardSelector: sel.selector})
				if err != nil {
					t.Fatal(err)
				}
				s.followUntilTouched(t, r, events, map[string]bool{}, want)
			})
		}
	}
}

func (s *keyServer) testWatches(t *testing.T, r keyResource, p *population, representations []representation) {
	for _, mode := range []struct {
		name    string
		options metav1.ListOptions
		// filled means that the watch begins with the existing objects.
		filled bool
	}{
		{name: "from now"},
		{name: "most recent", filled: true},
		{name: "any version", filled: true, options: metav1.ListOptions{ResourceVersion: "0"}},
		{name: "streaming list", filled: true, options: metav1.ListOptions{
			SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		}},
		{name: "streaming list of any version", filled: true, options: metav1.ListOptions{
			SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, ResourceVersion: "0",
		}},
	} {
		for _, sel := range p.selections() {
			for _, representation := range representations {
				t.Run(strings.Join([]string{mode.name, sel.fieldPath, sel.name, representation.name}, "/"), func(t *testing.T) {
					want := p.namesIn(sel.fieldPath, sel.ranges)
					options := mode.options
					options.ShardSelector = sel.selector
					state := map[string]bool{}
					if !mode.filled {
						list, err := r.List(t.Context(), metav1.ListOptions{})
						if err != nil {
							t.Fatal(err)
						}
						options.ResourceVersion = list.GetResourceVersion()
						for _, name := range want {
							state[name] = true
						}
					}
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					events, err := representation.watch(ctx, options)
					if err != nil {
						t.Fatal(err)
					}
					if options.SendInitialEvents != nil {
						for e := next(t, events); !e.synced; e = next(t, events) {
							apply(t, state, e)
						}
						expectState(t, state, want)
					}
					if len(want) > 0 {
						s.followUntilTouched(t, r, events, state, want)
					}
				})
			}
		}
	}
}

// testTransitions moves an object through the ranges of its controllers.
func (s *keyServer) testTransitions(t *testing.T, r keyResource, representations []representation) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	list, err := r.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	type watcher struct {
		representation, fieldPath string
		ranges                    hashkey.Ranges
		events                    <-chan event
	}
	var watchers []watcher
	low := hashkey.NewRanges(hashkey.Range{Start: 0, End: hashkey.Limit / 2})
	high := hashkey.All().Minus(low)
	for _, representation := range representations {
		for _, fieldPath := range []string{sharding.HashKeyPath, sharding.ControllerHashKeyPath} {
			for _, ranges := range []hashkey.Ranges{low, high} {
				events, err := representation.watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), ShardSelector: ranges.Selector(fieldPath)})
				if err != nil {
					t.Fatal(err)
				}
				watchers = append(watchers, watcher{representation.name, fieldPath, ranges, events})
			}
		}
	}

	const name = "moving"
	owners := func(refs ...interface{}) func() error {
		return func() error {
			_, err := r.Patch(ctx, name, types.MergePatchType,
				mustMarshal(t, map[string]interface{}{"metadata": map[string]interface{}{"ownerReferences": refs}}), metav1.PatchOptions{})
			return err
		}
	}
	none := watch.EventType("")
	var wantLow, wantHigh, wantOwn []watch.EventType
	var uid types.UID
	for _, step := range []struct {
		do        func() error
		low, high watch.EventType
		own       watch.EventType
	}{
		{func() error {
			created, err := r.Create(ctx, r.object(name), metav1.CreateOptions{})
			uid = expectNoKeys(t, created, err).GetUID()
			return nil
		}, watch.Added, watch.Added, watch.Added},
		{owners(owner(lowUID, true, 0)), watch.Modified, watch.Deleted, watch.Modified},
		{owners(owner(highUID, true, 0)), watch.Deleted, watch.Added, watch.Modified},
		{owners(owner(highUID, false, 0)), watch.Added, watch.Modified, watch.Modified},
		{func() error {
			_, err := r.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
			return err
		}, watch.Modified, watch.Modified, watch.Modified},
		{func() error { // a server of an earlier version, for a while
			live, err := r.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			live.Object["metadata"].(map[string]interface{})["ownerReferences"] = []interface{}{owner(lowUID, true, 0)}
			s.store(t, r, withRightKeys(live))
			return nil
		}, watch.Modified, watch.Deleted, watch.Modified},
		{owners(), watch.Modified, watch.Added, watch.Modified},
		{owners(owner(lowUID, false, 0), owner(highUID, true, 0)), watch.Deleted, watch.Modified, watch.Modified},
		{func() error { return r.Delete(ctx, name, metav1.DeleteOptions{}) }, none, watch.Deleted, watch.Deleted},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if step.low != none {
			wantLow = append(wantLow, step.low)
		}
		if step.high != none {
			wantHigh = append(wantHigh, step.high)
		}
		wantOwn = append(wantOwn, step.own)
	}

	// Every watcher reads up to an unowned object with a key in its half.
	const end = "transitions-end-"
	for i, halves := 0, map[bool]bool{}; len(halves) < 2; i++ {
		created, err := r.Create(ctx, r.object(fmt.Sprint(end, i)), metav1.CreateOptions{})
		halves[low.Contains(metav1.HashKeyOf(expectNoKeys(t, created, err)))] = true
	}
	t.Cleanup(func() {
		if err := r.DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	})

	for _, w := range watchers {
		t.Run(strings.Join([]string{w.fieldPath, w.representation, w.ranges.String()}, "/"), func(t *testing.T) {
			var want []watch.EventType
			switch {
			case w.fieldPath == sharding.ControllerHashKeyPath && w.ranges.Equal(low):
				want = wantLow
			case w.fieldPath == sharding.ControllerHashKeyPath:
				want = wantHigh
			case w.ranges.Contains(hashkey.OfUID(uid)):
				want = wantOwn
			}
			var got []watch.EventType
			for e := next(t, w.events); !strings.HasPrefix(e.name, end); e = next(t, w.events) {
				if e.name != name {
					t.Errorf("an event of another object: %v", e)
				}
				got = append(got, e.kind)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("events %v, want %v", got, want)
			}
		})
	}
}

// testMalformed: an invalid selector gets a 400 that names the error and the remedy.
func testMalformed(t *testing.T, r keyResource, representations []representation) {
	if _, err := r.Create(t.Context(), r.object("survivor"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for selector, reason := range map[string]string{
		"nonsense": "expected shardRange() call",
		"shardRange(object.metadata.hashKey, '0x0', '0x8000000000000000')":                                 "16-digit",
		"shardRange(object.metadata.hashKey, '0x0000000000000005', '0x0000000000000005')":                  "must be less than end",
		"shardRange(object.metadata.controllerRef.uid, '0x0000000000000000', '0x8000000000000000')":        "unsupported field path",
		"shardRange(object.metadata.hashKey, '0x0000000000000000', '0x8000000000000000') && true":          "only shardRange() and ||",
		"shardRange(object.metadata.controllerRef.hashKey, '0x0000000000000000', '0x8000000000000001000')": "too long",
	} {
		expect := func(t *testing.T, err error) {
			t.Helper()
			if !apierrors.IsBadRequest(err) {
				t.Fatalf("%q: got %v, want a bad request", selector, err)
			}
			for _, part := range []string{reason, "want shardRange(<path>", sharding.HashKeyPath, sharding.ControllerHashKeyPath} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q: %q does not contain %q", selector, err, part)
				}
			}
		}
		options := metav1.ListOptions{ShardSelector: selector}
		for _, representation := range representations {
			t.Run(representation.name, func(t *testing.T) {
				_, err := representation.list(t.Context(), options)
				expect(t, err)
				_, err = representation.watch(t.Context(), options)
				expect(t, err)
				streaming := options
				streaming.SendInitialEvents, streaming.AllowWatchBookmarks = ptr.To(true), true
				streaming.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
				_, err = representation.watch(t.Context(), streaming)
				expect(t, err)
			})
		}
		expect(t, r.DeleteCollection(t.Context(), metav1.DeleteOptions{}, options))
	}
	survivor, err := r.Get(t.Context(), "survivor", metav1.GetOptions{})
	expectNoKeys(t, survivor, err)

	// A valid selector deletes exactly what it selects.
	var doomed, spared *unstructured.Unstructured = survivor, nil
	if spared, err = r.Create(t.Context(), r.object("spared"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	only := hashkey.NewRanges(hashkey.Range{Start: uint64(metav1.HashKeyOf(doomed)), End: uint64(metav1.HashKeyOf(doomed)) + 1})
	if err := r.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{ShardSelector: only.Selector(sharding.HashKeyPath)}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Get(t.Context(), doomed.GetName(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the selected object was not deleted: %v", err)
	}
	if _, err := r.Get(t.Context(), spared.GetName(), metav1.GetOptions{}); err != nil {
		t.Errorf("the object that was not selected is gone: %v", err)
	}
}
