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

package fenced

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/controllerring"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/etcd3/testserver"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// pausingKV calls before a transaction that stores an object what a test has put there, once.
type pausingKV struct {
	clientv3.KV
	before func()
}

func (k *pausingKV) Txn(ctx context.Context) clientv3.Txn {
	return &pausingTxn{k.KV.Txn(ctx), k, false}
}

// pausingTxn passes over the transactions that an API server makes on its own: they look, or probe.
type pausingTxn struct {
	clientv3.Txn
	kv     *pausingKV
	stores bool
}

func (t *pausingTxn) If(comparisons ...clientv3.Cmp) clientv3.Txn {
	t.Txn = t.Txn.If(comparisons...)
	return t
}

func (t *pausingTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.stores = slices.ContainsFunc(ops, func(op clientv3.Op) bool {
		return (op.IsPut() || op.IsDelete()) && path.Base(string(op.KeyBytes())) != "fence-probe"
	})
	t.Txn = t.Txn.Then(ops...)
	return t
}

func (t *pausingTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.Txn = t.Txn.Else(ops...)
	return t
}

func (t *pausingTxn) Commit() (*clientv3.TxnResponse, error) {
	if t.stores {
		if before := t.kv.before; before != nil {
			t.kv.before = nil
			before()
		}
	}
	return t.Txn.Commit()
}

// world is the storage of an API server: pods, and the registry of controller instances.
type world struct {
	t      *testing.T
	ctx    context.Context
	prefix string
	etcd   *kubernetes.Client
	// pausing is the KV that pods are written with.
	pausing        *pausingKV
	pods, registry storage.Interface
}

// connect returns a client of the etcd that c is a client of.
func connect(t *testing.T, c *kubernetes.Client) *kubernetes.Client {
	client, err := kubernetes.New(clientv3.Config{Endpoints: c.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// open makes a storage as the factory does.
func open(t *testing.T, client *kubernetes.Client, prefix string, resource schema.GroupResource, version schema.GroupVersion, newFunc, newListFunc func() runtime.Object) storage.Interface {
	client.Kubernetes = WrapClient(client)
	codec := scheme.Codecs.LegacyCodec(version)
	versioner := storage.APIObjectVersioner{}
	resourcePrefix := "/" + resource.Resource
	compactor := etcd3.NewCompactor(client.Client, 0, clock.RealClock{}, nil)
	t.Cleanup(compactor.Stop)
	store, err := etcd3.New(client, compactor, codec, newFunc, newListFunc, prefix, resourcePrefix, resource, identity.NewEncryptCheckTransformer(),
		etcd3.NewDefaultLeaseManagerConfig(), etcd3.NewDefaultDecoder(codec, versioner), versioner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	config := storagebackend.Config{Prefix: prefix, Codec: codec}
	config.Transport.ServerList = client.Endpoints()
	return WrapStorage(store, client, *config.ForResource(resource), resourcePrefix, newFunc, newListFunc)
}

func openRegistry(t *testing.T, client *kubernetes.Client, prefix string) storage.Interface {
	return open(t, client, prefix, controllerInstances, shardingv1alpha1.SchemeGroupVersion,
		func() runtime.Object { return &shardingv1alpha1.ControllerInstance{} }, func() runtime.Object { return &shardingv1alpha1.ControllerInstanceList{} })
}

// newWorld puts pods into one etcd and the registry into another, which may be the same.
func newWorld(t *testing.T, podsIn, registryIn *kubernetes.Client) *world {
	return newWorldThrough(t, podsIn, registryIn, func(kv clientv3.KV) clientv3.KV { return kv })
}

// newWorldThrough has what is between each client and its etcd.
func newWorldThrough(t *testing.T, podsIn, registryIn *kubernetes.Client, between func(clientv3.KV) clientv3.KV) *world {
	prefix := path.Join("/", strings.ReplaceAll(t.Name(), "/", "-"))
	w := &world{t: t, ctx: t.Context(), prefix: prefix, etcd: registryIn}
	client := connect(t, podsIn)
	w.pausing = &pausingKV{KV: between(client.KV)}
	client.KV = w.pausing
	w.pods = open(t, client, prefix, schema.GroupResource{Resource: "pods"}, v1.SchemeGroupVersion,
		func() runtime.Object { return &v1.Pod{} }, func() runtime.Object { return &v1.PodList{} })
	registry := connect(t, registryIn)
	registry.KV = between(registry.KV)
	w.registry = openRegistry(t, registry, prefix)
	return w
}

const controller = "replicaset-controller"

// register creates the record of an instance that owns all up to the key; nil: nothing.
func (w *world) register(name string, key *int64) fence.Identity {
	w.t.Helper()
	return w.registerAs(name, types.UID("uid-of-"+name), key)
}

func (w *world) registerAs(name string, uid types.UID, key *int64) fence.Identity {
	w.t.Helper()
	record := &shardingv1alpha1.ControllerInstance{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid},
		Spec: shardingv1alpha1.ControllerInstanceSpec{
			Ring: "workloads", LeaseDurationSeconds: 600, HashKey: (*shardingv1alpha1.HashKey)(key), Controllers: []string{controller},
			Governs: []shardingv1alpha1.Governs{{Controller: "*", Resource: "pods", By: shardingv1alpha1.GoverningKeyController}},
		},
	}
	w.must(w.registry.Create(w.ctx, "/controllerinstances/"+name, record, nil, 0))
	return fence.Identity{Ring: "workloads", Name: name, UID: record.UID, Controller: controller}
}

// update changes a record in nobody's name.
func (w *world) update(name string, change func(*shardingv1alpha1.ControllerInstance)) {
	w.t.Helper()
	w.must(w.updateAs(w.ctx, name, change))
}

func (w *world) updateAs(ctx context.Context, name string, change func(*shardingv1alpha1.ControllerInstance)) error {
	return w.registry.GuaranteedUpdate(ctx, "/controllerinstances/"+name, &shardingv1alpha1.ControllerInstance{}, false, nil,
		storage.SimpleUpdate(func(object runtime.Object) (runtime.Object, error) {
			change(object.(*shardingv1alpha1.ControllerInstance))
			return object, nil
		}), nil)
}

func (w *world) remove(name string) {
	w.t.Helper()
	w.must(w.registry.Delete(w.ctx, "/controllerinstances/"+name, &shardingv1alpha1.ControllerInstance{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}))
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) as(identity fence.Identity) context.Context {
	return controllerring.NewContext(w.ctx, identity)
}

// pod returns one that is controlled by a set with that UID.
func pod(name string, set types.UID) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "ns", UID: types.UID("uid-of-" + name),
		OwnerReferences: []metav1.OwnerReference{{UID: set, Controller: ptr.To(true)}},
	}}
}

func (w *world) create(ctx context.Context, name string, set types.UID) error {
	return w.pods.Create(ctx, "/pods/ns/"+name, pod(name, set), nil, 0)
}

func (w *world) label(ctx context.Context, name string) error {
	return w.pods.GuaranteedUpdate(ctx, "/pods/ns/"+name, &v1.Pod{}, false, nil,
		storage.SimpleUpdate(func(object runtime.Object) (runtime.Object, error) {
			pod := object.(*v1.Pod)
			pod.Labels = map[string]string{"late": "true"}
			return pod, nil
		}), nil)
}

func (w *world) delete(ctx context.Context, name string) error {
	return w.pods.Delete(ctx, "/pods/ns/"+name, &v1.Pod{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
}

// state says what has become of a pod: "", "there" or "labelled".
func (w *world) state(name string) string {
	w.t.Helper()
	pod := &v1.Pod{}
	w.must(w.pods.Get(w.ctx, "/pods/ns/"+name, storage.GetOptions{IgnoreNotFound: true}, pod))
	switch {
	case pod.UID == "":
		return ""
	case pod.Labels["late"] != "":
		return "labelled"
	default:
		return "there"
	}
}

// refusedFor returns the reason for which a write was refused, "" if it was not. It fails the
// test on any other error.
func (w *world) refusedFor(write func() error) string {
	w.t.Helper()
	reasons := []string{reasonGone, reasonReplaced, reasonOutdated, reasonNotOwner, reasonNotGiven, reasonUnknown}
	count := func() map[string]float64 {
		counts := map[string]float64{}
		for _, reason := range reasons {
			n, err := testutil.GetCounterMetricValue(refusals.WithLabelValues(reason))
			w.must(err)
			counts[reason] = n
		}
		return counts
	}
	before := count()
	err := write()
	if err != nil && !fence.IsFenced(err) {
		w.t.Fatal(err)
	}
	var got []string
	for reason, n := range count() {
		if n > before[reason] {
			got = append(got, reason)
		}
	}
	if (err != nil) != (len(got) == 1) {
		w.t.Fatalf("error %v, but refusals for %q were counted", err, got)
	}
	return strings.Join(got, "")
}

func (w *world) judgedAnew() int {
	w.t.Helper()
	n, err := testutil.GetCounterMetricValue(judgedAnew)
	w.must(err)
	return int(n)
}

var all = ptr.To(hashkey.Max)

// Whatever happens to the instance between the judgement of its write and the transaction,
// the transaction knows.
func TestATransactionFindsWhatHappenedToTheInstanceSinceItWasJudged(t *testing.T) {
	etcd := testserver.RunEtcd(t, nil)
	other := testserver.RunEtcd(t, nil)
	for what, tc := range map[string]struct {
		happens func(w *world)
		want    string
	}{
		"nothing":             {func(*world) {}, ""},
		"another registers":   {func(w *world) { w.register("b", nil) }, ""},
		"it reports":          {func(w *world) { w.update("a", func(r *shardingv1alpha1.ControllerInstance) { r.Status.Weight++ }) }, ""},
		"it is removed":       {func(w *world) { w.remove("a") }, reasonGone},
		"it raises its epoch": {func(w *world) { w.update("a", func(r *shardingv1alpha1.ControllerInstance) { r.Status.Epoch++ }) }, reasonOutdated},
		"another takes its name": {func(w *world) {
			w.remove("a")
			w.register("a", all)
			w.update("a", func(r *shardingv1alpha1.ControllerInstance) { r.UID = "another" })
		}, reasonReplaced},
		"it is given more": {func(w *world) {
			w.update("a", func(r *shardingv1alpha1.ControllerInstance) { r.Spec.NextHashKey = ptr.To[shardingv1alpha1.HashKey](1) })
		}, ""},
	} {
		for where, pods := range map[string]*kubernetes.Client{"in one etcd": etcd, "in another etcd": other} {
			for operation, write := range map[string]func(w *world, ctx context.Context) error{
				"create": func(w *world, ctx context.Context) error { return w.create(ctx, "new", "set") },
				"update": func(w *world, ctx context.Context) error { return w.label(ctx, "old") },
				"delete": func(w *world, ctx context.Context) error { return w.delete(ctx, "old") },
			} {
				t.Run(what+" "+where+" "+operation, func(t *testing.T) {
					w := newWorld(t, pods, etcd)
					ctx := w.as(w.register("a", all))
					w.must(w.create(ctx, "old", "set"))
					anew := w.judgedAnew()
					happen := func() { tc.happens(w) }
					if pods == etcd {
						w.pausing.before = happen
					} else {
						// There is a window between the read and the transaction. What
						// happened before the read is found.
						happen()
					}
					if got := w.refusedFor(func() error { return write(w, ctx) }); got != tc.want {
						t.Errorf("refused for %q, want %q", got, tc.want)
					}
					want := map[bool]map[string]string{
						true:  {"create": " there", "update": " labelled", "delete": " "},
						false: {"create": " ", "update": " there", "delete": " there"},
					}[tc.want == ""][operation]
					name := map[string]string{"create": "new", "update": "old", "delete": "old"}[operation]
					if got := " " + w.state(name); got != want {
						t.Errorf("the pod is %q then, want %q", got, want)
					}
					changed := tc.want != "" || what == "it reports" || what == "it is given more"
					if got := w.judgedAnew() - anew; pods == etcd && (got > 0) != changed {
						t.Errorf("judged anew %d times", got)
					}
				})
			}
		}
	}
}

// A conflict on the object has nothing to do with the instance: the store tries again.
// A pod that runs nowhere is deleted by two writes, and the epoch may be raised between them.
func TestWhatIsDeletedWithoutGraceIsRemovedWhateverTheEpoch(t *testing.T) {
	etcd := testserver.RunEtcd(t, nil)
	deleted := func(grace int64) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr.To(metav1.Now()), &grace
		}
	}
	for what, tc := range map[string]struct {
		is func(*v1.Pod)
		// with is what else has happened when the pod is removed.
		with  func(w *world)
		write func(w *world, ctx context.Context) error
		want  string
	}{
		"it is condemned":            {is: deleted(0)},
		"it has grace":               {is: deleted(30), want: reasonOutdated},
		"it is not deleted":          {is: func(*v1.Pod) {}, want: reasonOutdated},
		"something holds it":         {is: func(p *v1.Pod) { deleted(0)(p); p.Finalizers = []string{"example.com/f"} }, want: reasonOutdated},
		"it is another's":            {is: deleted(0), with: func(w *world) { w.register("b", ptr.To(hashkey.Max-1)) }, want: reasonNotOwner},
		"the instance is gone":       {is: deleted(0), with: func(w *world) { w.remove("a") }, want: reasonGone},
		"the instance is registered": {is: deleted(0), with: func(w *world) { w.remove("a"); w.registerAs("a", "anew", all) }, want: reasonReplaced},
		"it is changed":              {is: deleted(0), write: func(w *world, ctx context.Context) error { return w.label(ctx, "p") }, want: reasonOutdated},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, etcd, etcd)
			a := w.register("a", all)
			created := pod("p", "set")
			tc.is(created)
			w.must(w.pods.Create(w.ctx, "/pods/ns/p", created, nil, 0))
			w.update("a", func(r *shardingv1alpha1.ControllerInstance) { r.Status.Epoch++ })
			if tc.with != nil {
				tc.with(w)
			}
			write := tc.write
			if write == nil {
				write = func(w *world, ctx context.Context) error { return w.delete(ctx, "p") }
			}
			if got := w.refusedFor(func() error { return write(w, w.as(a)) }); got != tc.want {
				t.Errorf("refused for %q, want %q", got, tc.want)
			}
			if got := w.state("p"); (got == "") != (tc.want == "") {
				t.Errorf("the pod is %q", got)
			}
		})
	}
}

func TestAConflictOnTheObjectIsTriedAgain(t *testing.T) {
	etcd := testserver.RunEtcd(t, nil)
	w := newWorld(t, etcd, etcd)
	ctx := w.as(w.register("a", all))
	w.must(w.create(ctx, "old", "set"))
	anew := w.judgedAnew()
	w.pausing.before = func() { w.must(w.label(w.ctx, "old")) }
	w.must(w.delete(ctx, "old"))
	if w.state("old") != "" || w.judgedAnew() != anew {
		t.Errorf("the pod is %q then, and was judged anew %d times", w.state("old"), w.judgedAnew()-anew)
	}
	w.must(w.create(ctx, "old", "set"))
	w.pausing.before = func() {
		w.must(w.label(w.ctx, "old"))
		w.update("a", func(r *shardingv1alpha1.ControllerInstance) { r.Status.Weight++ })
	}
	w.must(w.delete(ctx, "old"))
	if w.state("old") != "" {
		t.Error("the pod is there, though only the object and what the instance reports had changed")
	}
	w.must(w.create(ctx, "old", "set"))
	w.pausing.before = func() {
		w.must(w.label(w.ctx, "old"))
		w.remove("a")
	}
	if got := w.refusedFor(func() error { return w.delete(ctx, "old") }); got != reasonGone || w.state("old") != "labelled" {
		t.Errorf("refused for %q, and the pod is %q; want gone, and labelled by somebody else", got, w.state("old"))
	}
}

// An API server that is behind must not refuse what the registry allows.
func TestARegistryThatIsBehindIsReadOnceMoreBeforeARefusal(t *testing.T) {
	etcd := testserver.RunEtcd(t, nil)
	w := newWorld(t, etcd, etcd)
	w.must(w.create(w.as(w.register("a", all)), "first", "set"))
	// The first write follows the registry; those that come at once may be ahead of that.
	for i := range 50 {
		name := fmt.Sprintf("late-%d", i)
		identity := w.register(name, ptr.To(hashkey.OfUID("set")))
		w.must(w.create(w.as(identity), name, "set"))
		w.remove(name)
	}
}

func TestAWriteIsRefusedByTheRecordAndTheKeys(t *testing.T) {
	etcd := testserver.RunEtcd(t, nil)
	w := newWorld(t, etcd, etcd)
	mine := hashkey.OfUID("mine")
	a := w.register("a", &mine)
	w.register("b", ptr.To(mine-1))
	w.must(w.create(w.as(a), "mine", "mine"))
	with := func(change func(*fence.Identity)) context.Context {
		changed := a
		change(&changed)
		return w.as(changed)
	}
	create := func(ctx context.Context, set types.UID) func() error {
		return func() error { return w.create(ctx, "late", set) }
	}
	yours := types.UID("yours")
	if key := hashkey.OfUID(yours); key == mine {
		t.Fatal("the keys are the same")
	}
	for what, tc := range map[string]struct {
		write func() error
		want  string
	}{
		"another's key": {create(w.as(a), yours), reasonNotOwner},
		"from mine to another's": {func() error {
			return w.pods.GuaranteedUpdate(w.as(a), "/pods/ns/mine", &v1.Pod{}, false, nil, storage.SimpleUpdate(func(object runtime.Object) (runtime.Object, error) {
				object.(*v1.Pod).OwnerReferences[0].UID = yours
				return object, nil
			}), nil)
		}, reasonNotOwner},
		"a controller that it does not run": {create(with(func(i *fence.Identity) { i.Controller = "other" }), "mine"), reasonUnknown},
		"no controller":                     {create(with(func(i *fence.Identity) { i.Controller = "" }), "mine"), reasonUnknown},
		"another ring":                      {create(with(func(i *fence.Identity) { i.Ring = "other" }), "mine"), reasonUnknown},
		"another UID":                       {create(with(func(i *fence.Identity) { i.UID = "other" }), "mine"), reasonReplaced},
		"another name":                      {create(with(func(i *fence.Identity) { i.Name = "other" }), "mine"), reasonGone},
	} {
		if got := w.refusedFor(tc.write); got != tc.want {
			t.Errorf("%s: refused for %q, want %q", what, got, tc.want)
		}
	}
	w.must(w.create(with(func(i *fence.Identity) { i.Epoch = 7 }), "ahead", "mine"))
}

// Nobody's writes are let through because no registry is known.
func TestWithoutARegistryAWriteOfAnInstanceIsRefused(t *testing.T) {
	etcd := testserver.RunEtcd(t, nil)
	w := newWorld(t, etcd, etcd)
	a := w.register("a", all)
	d := deploymentOf(w.prefix)
	first := d.registry()
	client := connect(t, etcd)
	openRegistry(t, client, w.prefix)
	if d.registry() == first {
		t.Fatal("the second registry of a prefix is not used")
	}
	w.must(w.create(w.as(a), "second", "set"))
	close := func(c *kubernetes.Client, left *registry) {
		t.Helper()
		_ = c.Close()
		for d.registry() != left {
			// The registry goes with its client, in a goroutine of its own.
			if t.Context().Err() != nil {
				t.Fatal(t.Context().Err())
			}
		}
	}
	close(client, first)
	w.must(w.create(w.as(a), "first", "set"))
	close(first.client, nil)
	if got := w.refusedFor(func() error { return w.create(w.as(a), "none", "set") }); got != reasonUnknown {
		t.Errorf("refused for %q, want unknown", got)
	}
	w.must(w.create(w.ctx, "none", "set"))
}

func TestAGrantNeedsTheDonorsRecordToGiveExactlyThis(t *testing.T) {
	etcd := testserver.RunEtcd(t, nil)
	w := newWorld(t, etcd, etcd)
	a := w.register("a", all)
	w.register("b", nil)
	grant := func(to string, key int64) string {
		return w.refusedFor(func() error {
			return w.updateAs(w.as(a), to, func(r *shardingv1alpha1.ControllerInstance) { r.Spec.HashKey = (*shardingv1alpha1.HashKey)(&key) })
		})
	}
	gives := func(gift *shardingv1alpha1.Gift) {
		w.update("a", func(r *shardingv1alpha1.ControllerInstance) { r.Status.Gives = gift })
	}
	for _, step := range []struct {
		gives *shardingv1alpha1.Gift
		to    string
		key   int64
		want  string
	}{
		{nil, "b", 5, reasonNotGiven},
		{&shardingv1alpha1.Gift{To: "b", HashKey: 6}, "b", 5, reasonNotGiven},
		{&shardingv1alpha1.Gift{To: "c", HashKey: 5}, "b", 5, reasonNotGiven},
		{&shardingv1alpha1.Gift{To: "b", HashKey: 5}, "b", 5, ""},
		{&shardingv1alpha1.Gift{To: "b", HashKey: 5}, "a", 5, reasonNotGiven},
		{&shardingv1alpha1.Gift{To: "a", HashKey: 9}, "a", 9, ""},
		{&shardingv1alpha1.Gift{To: "a", HashKey: 9}, "a", hashkey.Max, reasonNotGiven},
	} {
		gives(step.gives)
		if got := grant(step.to, step.key); got != step.want {
			t.Errorf("a gives %v, and grants %d to %s: refused for %q, want %q", step.gives, step.key, step.to, got, step.want)
		}
	}
	w.register("c", nil)
	c := a
	c.Name, c.UID = "c", "uid-of-c"
	take := func(key int64) string {
		return w.refusedFor(func() error {
			return w.updateAs(w.as(c), "c", func(r *shardingv1alpha1.ControllerInstance) { r.Spec.HashKey = (*shardingv1alpha1.HashKey)(&key) })
		})
	}
	for _, key := range []int64{3, hashkey.Max} {
		if got := take(key); got != reasonNotGiven {
			t.Errorf("an instance takes %d: refused for %q, want not_given", key, got)
		}
	}
	c.UID = "another"
	if got := w.refusedFor(func() error {
		return w.updateAs(w.as(c), "c", func(r *shardingv1alpha1.ControllerInstance) { r.Status.Busy++ })
	}); got != reasonReplaced {
		t.Errorf("a report by another UID: refused for %q, want replaced", got)
	}
}

// What the donor says must hold in the very transaction of the grant.
func TestAGrantThatIsHeldUntilTheDonorGivesItNoMoreIsNotStored(t *testing.T) {
	etcd := testserver.RunEtcd(t, nil)
	for what, happens := range map[string]func(*world){
		"it gives nothing": func(w *world) {
			w.update("a", func(r *shardingv1alpha1.ControllerInstance) { r.Status.Gives = nil })
		},
		"it is removed": func(w *world) { w.remove("a") },
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, etcd, etcd)
			client := connect(t, etcd)
			pausing := &pausingKV{KV: client.KV}
			client.KV = pausing
			held := openRegistry(t, client, w.prefix)
			a := w.register("a", all)
			w.register("b", nil)
			w.update("a", func(r *shardingv1alpha1.ControllerInstance) {
				r.Status.Gives = &shardingv1alpha1.Gift{To: "b", HashKey: 5}
			})
			pausing.before = func() { happens(w) }
			w.registry, held = held, w.registry
			err := w.updateAs(w.as(a), "b", func(r *shardingv1alpha1.ControllerInstance) { r.Spec.HashKey = ptr.To[shardingv1alpha1.HashKey](5) })
			if !fence.IsFenced(err) {
				t.Errorf("got %v, want a refusal", err)
			}
			b := &shardingv1alpha1.ControllerInstance{}
			w.must(held.Get(w.ctx, "/controllerinstances/b", storage.GetOptions{}, b))
			if b.Spec.HashKey != nil {
				t.Errorf("b has hash key %d", *b.Spec.HashKey)
			}
		})
	}
}

// simpleKV is that of a backend which compares one key in a transaction, as kine does.
type simpleKV struct{ clientv3.KV }

func (k simpleKV) Txn(ctx context.Context) clientv3.Txn { return simpleTxn{k.KV.Txn(ctx), nil} }

type simpleTxn struct {
	clientv3.Txn
	err error
}

func (t simpleTxn) If(comparisons ...clientv3.Cmp) clientv3.Txn {
	if len(comparisons) != 1 {
		t.err = status.Error(codes.Unknown, "unsupported transaction")
	}
	t.Txn = t.Txn.If(comparisons...)
	return t
}

func (t simpleTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.Txn = t.Txn.Then(ops...)
	return t
}

func (t simpleTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.Txn = t.Txn.Else(ops...)
	return t
}

func (t simpleTxn) Commit() (*clientv3.TxnResponse, error) {
	if t.err != nil {
		return nil, t.err
	}
	return t.Txn.Commit()
}

func TestABackendWithoutSuchTransactionsIsFencedByAReadBeforeTheWrite(t *testing.T) {
	etcd := testserver.RunEtcd(t, nil)
	w := newWorldThrough(t, etcd, etcd, func(kv clientv3.KV) clientv3.KV { return simpleKV{kv} })
	ctx := w.as(w.register("a", all))
	w.must(w.create(ctx, "old", "set"))
	w.must(w.label(ctx, "old"))
	w.remove("a")
	if got := w.refusedFor(func() error { return w.delete(ctx, "old") }); got != reasonGone || w.state("old") != "labelled" {
		t.Errorf("refused for %q, and the pod is %q; want gone, and labelled", got, w.state("old"))
	}
}

func TestAnObjectStaysUnderOneLeaseForLife(t *testing.T) {
	etcd := testserver.RunEtcd(t, nil)
	w := newWorld(t, etcd, etcd)
	stored := func() (lease, revision int64) {
		got, err := etcd.KV.Get(w.ctx, path.Join(w.prefix, "controllerinstances/a"))
		w.must(err)
		if len(got.Kvs) != 1 {
			t.Fatal("the object is gone")
		}
		return got.Kvs[0].Lease, got.Kvs[0].ModRevision
	}
	ctx := w.ctx
	w.ctx = WithLease(ctx, &Lease{TTL: 600})
	w.register("a", nil)
	w.ctx = ctx
	first, created := stored()
	if first == 0 {
		t.Fatal("it was created without a lease")
	}

	w.must(w.updateAs(WithLease(ctx, &Lease{}), "a", func(r *shardingv1alpha1.ControllerInstance) { r.Status.Busy = 1 }))
	lease, changed := stored()
	if lease != first || changed == created {
		t.Errorf("after a change: under lease %x, want %x; at revision %d after %d", lease, first, changed, created)
	}

	renewal := &Lease{}
	w.must(w.updateAs(WithLease(ctx, renewal), "a", func(*shardingv1alpha1.ControllerInstance) {}))
	if _, revision := stored(); revision != changed {
		t.Error("an update that changes nothing was written")
	}
	w.must(renewal.KeepAlive(ctx))

	if _, err := etcd.Revoke(ctx, clientv3.LeaseID(first)); err != nil {
		t.Fatal(err)
	}
	if err := renewal.KeepAlive(ctx); !errors.Is(err, ErrLeaseNotFound) {
		t.Errorf("a renewal after the lease has ended: %v, want %v", err, ErrLeaseNotFound)
	}
}
