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

package member

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	shardingclient "k8s.io/client-go/kubernetes/typed/sharding/v1alpha1"
	"k8s.io/client-go/tools/ring/fence"
)

// registry serves ControllerInstances as far as a member uses them: revisions, lists as of
// one, watches from one, preconditions, leases, the delete of a living owner, and the fence.
// Its rules are those of the API server.
type registry struct {
	t *testing.T

	lock sync.Mutex
	// states holds all records as of each revision, events what made it of the one before,
	// and at when that was.
	states []map[string]shardingv1alpha1.ControllerInstance
	events []watch.Event
	at     []time.Time
	// leases end the records that a member has made.
	leases map[types.UID]*time.Timer
	// changed is closed and replaced with each revision.
	changed chan struct{}
	// withheld keeps new revisions from the watches, delay sends them that much later.
	withheld bool
	// watches counts those that were opened. The first ones, as many as silent says, tell nothing.
	watches, silent int
	delay           time.Duration
	requests        []request

	// before is called with each request that arrives, after with each that has been
	// carried out and its answer. Their error is what the member gets. They may block.
	before func(context.Context, request) error
	after  func(context.Context, request, *shardingv1alpha1.ControllerInstance) error
	// raw takes an event that a watch is to send as it is, end ends a watch.
	raw chan watch.Event
	end chan struct{}

	// instances are all that were made to use the registry.
	instances []*instance
}

// request is one that arrived at the registry.
type request struct {
	// at counts from the beginning of the test.
	at   time.Duration
	verb string
	name string
	// created is what was to be created. body is a patch, part what it was for: spec, news
	// or renewal.
	created      *shardingv1alpha1.ControllerInstance
	body         map[string]any
	part         string
	list         metav1.ListOptions
	precondition *metav1.Preconditions
	// identity is the instance that the request names; nil: none.
	identity *fence.Identity
	// refused says that the registry did not carry it out.
	refused bool
}

// bookmarkInterval is how often a watch tells how far it is.
const bookmarkInterval = 5 * time.Second

// epoch is when every test in a bubble begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

var resource = shardingv1alpha1.Resource("controllerinstances")

func newRegistry(t *testing.T) *registry {
	r := &registry{t: t, leases: map[types.UID]*time.Timer{}, changed: make(chan struct{}), raw: make(chan watch.Event), end: make(chan struct{})}
	// No client knows a revision 0.
	r.states = []map[string]shardingv1alpha1.ControllerInstance{{}}
	r.events, r.at = []watch.Event{{}}, []time.Time{{}}
	r.touch(1)
	return r
}

// revision returns the newest one.
func (r *registry) revision() int64 {
	r.lock.Lock()
	defer r.lock.Unlock()
	return int64(len(r.states) - 1)
}

func (r *registry) newest() map[string]shardingv1alpha1.ControllerInstance {
	return r.states[len(r.states)-1]
}

// get returns the newest state of a record.
func (r *registry) get(name string) (shardingv1alpha1.ControllerInstance, bool) {
	r.lock.Lock()
	defer r.lock.Unlock()
	instance, ok := r.newest()[name]
	return instance, ok
}

// edit writes a record as it is, by somebody else than a member.
func (r *registry) edit(instance shardingv1alpha1.ControllerInstance) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.putLocked(&instance)
}

// touch writes another ring's record so often.
func (r *registry) touch(times int) {
	for range times {
		r.edit(shardingv1alpha1.ControllerInstance{
			ObjectMeta: metav1.ObjectMeta{Name: "other-1", UID: "uid-other"},
			Spec:       shardingv1alpha1.ControllerInstanceSpec{Ring: "other", HashKey: (*shardingv1alpha1.HashKey)(key(7))},
		})
	}
}

// remove deletes a record as the end of its lease does.
func (r *registry) remove(name string) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.removeLocked(name)
}

// rewind has the registry go on after that revision, as if nothing had come after it. Watches go
// on, and tell what comes after what they have told.
func (r *registry) rewind(revision int64) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.states, r.events, r.at = r.states[:revision+1], r.events[:revision+1], r.at[:revision+1]
}

// renewLocked lets the record live for a lease from now. It returns false if its lease has
// ended.
func (r *registry) renewLocked(instance *shardingv1alpha1.ControllerInstance) bool {
	timer, ok := r.leases[instance.UID]
	return ok && timer.Reset(time.Duration(instance.Spec.LeaseDurationSeconds)*time.Second)
}

// grantLeaseLocked begins the lease of a record.
func (r *registry) grantLeaseLocked(instance *shardingv1alpha1.ControllerInstance) {
	name, uid := instance.Name, instance.UID
	r.leases[uid] = time.AfterFunc(time.Duration(instance.Spec.LeaseDurationSeconds)*time.Second, func() {
		r.lock.Lock()
		defer r.lock.Unlock()
		if r.newest()[name].UID == uid {
			r.removeLocked(name)
		}
	})
}

// withhold says whether the watches are to send nothing for now.
func (r *registry) withhold(withheld bool) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.withheld = withheld
	r.wakeLocked()
}

// silence has the present watches tell nothing any more.
func (r *registry) silence() {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.silent = r.watches
}

func (r *registry) wakeLocked() {
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *registry) appendLocked(eventType watch.EventType, instance *shardingv1alpha1.ControllerInstance) map[string]shardingv1alpha1.ControllerInstance {
	instance.ResourceVersion = strconv.Itoa(len(r.states))
	next := maps.Clone(r.newest())
	r.states = append(r.states, next)
	r.events = append(r.events, watch.Event{Type: eventType, Object: instance.DeepCopy()})
	r.at = append(r.at, time.Now())
	r.wakeLocked()
	return next
}

func (r *registry) putLocked(instance *shardingv1alpha1.ControllerInstance) {
	eventType := watch.Added
	if _, ok := r.newest()[instance.Name]; ok {
		eventType = watch.Modified
	}
	r.appendLocked(eventType, instance)[instance.Name] = *instance.DeepCopy()
}

func (r *registry) removeLocked(name string) {
	instance := r.newest()[name]
	delete(r.appendLocked(watch.Deleted, instance.DeepCopy()), name)
}

// intercept sets what is asked of each request that arrives.
func (r *registry) intercept(before func(context.Context, request) error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.before = before
}

// got returns the requests so far that match.
func (r *registry) got(match func(request) bool) []request {
	r.lock.Lock()
	defer r.lock.Unlock()
	var out []request
	for _, q := range r.requests {
		if match(q) {
			out = append(out, q)
		}
	}
	return out
}

func ofVerb(verb string) func(request) bool {
	return func(q request) bool { return q.verb == verb }
}

// The patches of a record: of its spec, and of its status with news or to renew it.
const (
	partSpec    = "spec"
	partNews    = "news"
	partRenewal = "renewal"
)

func ofPatch(part string) func(request) bool {
	return func(q request) bool { return q.verb == "patch" && q.part == part }
}

// times returns when these requests arrived.
func times(requests []request) []time.Duration {
	var out []time.Duration
	for _, q := range requests {
		out = append(out, q.at)
	}
	return out
}

func expectTimes(t *testing.T, got []request, want ...time.Duration) {
	t.Helper()
	if at := times(got); !slices.Equal(at, want) {
		t.Errorf("requests were sent at %v, want %v", at, want)
	}
}

// client is one member's way to the registry. As with the transport that WrapRegistryTransport
// makes, its requests that change something name the instance.
type client struct {
	shardingclient.ControllerInstanceInterface
	*registry
	gate *Gate
}

// do takes a request through. One whose ctx has ended is not even sent.
func (c *client) do(ctx context.Context, q request, carryOut func(request) (*shardingv1alpha1.ControllerInstance, error)) (*shardingv1alpha1.ControllerInstance, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if self, ok := c.gate.identity(); ok && slices.Contains([]string{"create", "patch", "delete"}, q.verb) {
		q.identity = &self
	}
	r := c.registry
	r.lock.Lock()
	q.at = time.Since(epoch)
	place := len(r.requests)
	r.requests = append(r.requests, q)
	before, after := r.before, r.after
	r.lock.Unlock()
	if before != nil {
		if err := before(ctx, q); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.lock.Lock()
	answer, err := carryOut(q)
	r.requests[place].refused = err != nil
	r.lock.Unlock()
	if err == nil && after != nil {
		err = after(ctx, q, answer)
	}
	return answer, err
}

// Create implements ControllerInstanceInterface.
func (c *client) Create(ctx context.Context, instance *shardingv1alpha1.ControllerInstance, _ metav1.CreateOptions) (*shardingv1alpha1.ControllerInstance, error) {
	r := c.registry
	return c.do(ctx, request{verb: "create", created: instance.DeepCopy()}, func(request) (*shardingv1alpha1.ControllerInstance, error) {
		created := instance.DeepCopy()
		created.Name = fmt.Sprintf("%s%d", created.GenerateName, len(r.states))
		created.UID = types.UID("uid-" + created.Name)
		created.Generation = 1
		r.putLocked(created)
		r.grantLeaseLocked(created)
		return created, nil
	})
}

// Get implements ControllerInstanceInterface.
func (c *client) Get(ctx context.Context, name string, _ metav1.GetOptions) (*shardingv1alpha1.ControllerInstance, error) {
	r := c.registry
	return c.do(ctx, request{verb: "get", name: name}, func(request) (*shardingv1alpha1.ControllerInstance, error) {
		instance, ok := r.newest()[name]
		if !ok {
			return nil, apierrors.NewNotFound(resource, name)
		}
		return instance.DeepCopy(), nil
	})
}

// List implements ControllerInstanceInterface.
func (c *client) List(ctx context.Context, options metav1.ListOptions) (*shardingv1alpha1.ControllerInstanceList, error) {
	r := c.registry
	list := &shardingv1alpha1.ControllerInstanceList{}
	_, err := c.do(ctx, request{verb: "list", list: options}, func(request) (*shardingv1alpha1.ControllerInstance, error) {
		revision := len(r.states) - 1
		if options.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
			revision = r.number(options.ResourceVersion)
		}
		list.ResourceVersion = strconv.Itoa(revision)
		state := r.states[revision]
		for _, name := range slices.Sorted(maps.Keys(state)) {
			if instance := state[name]; r.selects(options, &instance) {
				list.Items = append(list.Items, *instance.DeepCopy())
			}
		}
		return nil, nil
	})
	return list, err
}

// Watch implements ControllerInstanceInterface.
func (c *client) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	r := c.registry
	if _, err := c.do(ctx, request{verb: "watch", list: options}, func(request) (*shardingv1alpha1.ControllerInstance, error) { return nil, nil }); err != nil {
		return nil, err
	}
	r.lock.Lock()
	number := r.watches
	r.watches++
	r.lock.Unlock()
	results := make(chan watch.Event)
	w := watch.NewProxyWatcher(results)
	send := func(event watch.Event) {
		select {
		case results <- event:
		case <-w.StopChan():
		case <-ctx.Done():
		}
	}
	go func() {
		defer close(results)
		for sent := r.number(options.ResourceVersion); ; {
			r.lock.Lock()
			var next []watch.Event
			var at []time.Time
			if !r.withheld && r.silent <= number {
				from := min(sent+1, len(r.events))
				next, at, sent = r.events[from:], r.at[from:], max(sent, len(r.events)-1)
			}
			changed, delay, silent := r.changed, r.delay, r.withheld || r.silent > number
			r.lock.Unlock()
			for i, event := range next {
				select {
				case <-time.After(time.Until(at[i].Add(delay))):
				case <-w.StopChan():
				case <-ctx.Done():
				}
				if r.selects(options, event.Object.(*shardingv1alpha1.ControllerInstance)) {
					send(event)
				}
			}
			select {
			case <-changed:
			case <-time.After(bookmarkInterval):
				if !silent {
					send(watch.Event{Type: watch.Bookmark, Object: &shardingv1alpha1.ControllerInstance{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(sent)}}})
				}
			case event := <-r.raw:
				send(event)
			case <-r.end:
				return
			case <-w.StopChan():
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return w, nil
}

// Patch implements ControllerInstanceInterface for merge patches of the status, and for
// JSON patches that set the spec.
func (c *client) Patch(ctx context.Context, name string, patchType types.PatchType, data []byte, _ metav1.PatchOptions, subresources ...string) (*shardingv1alpha1.ControllerInstance, error) {
	r := c.registry
	q := request{verb: "patch", name: name, part: partSpec}
	var apply func(before []byte) ([]byte, error)
	var err error
	switch {
	case patchType == types.JSONPatchType && len(subresources) == 0:
		apply, err = r.specPatch(&q, data)
	case patchType == types.MergePatchType && slices.Equal(subresources, []string{"status"}):
		apply, err = r.statusPatch(&q, data)
	default:
		err = fmt.Errorf("got a patch of type %s for subresources %q", patchType, subresources)
	}
	if err != nil {
		r.t.Error(err)
		return nil, err
	}
	return c.do(ctx, q, func(q request) (*shardingv1alpha1.ControllerInstance, error) {
		old, ok := r.newest()[name]
		if !ok {
			return nil, apierrors.NewNotFound(resource, name)
		}
		before, err := json.Marshal(old)
		if err != nil {
			return nil, err
		}
		after, err := apply(before)
		if err != nil {
			return nil, err
		}
		patched := &shardingv1alpha1.ControllerInstance{}
		if err := json.Unmarshal(after, patched); err != nil {
			return nil, err
		}
		if now, err := json.Marshal(patched); err != nil || bytes.Equal(now, before) {
			if q.part != partSpec && !r.renewLocked(&old) {
				return nil, conflict(name, fence.CauseLeaseLost, "the lease has ended")
			}
			return patched, nil
		}
		if err := r.fence(q, &old, patched); err != nil {
			return nil, err
		}
		if !reflect.DeepEqual(patched.Spec, old.Spec) {
			patched.Generation++
		}
		r.putLocked(patched)
		return patched, nil
	})
}

func conflict(name string, cause metav1.CauseType, why string) error {
	err := apierrors.NewConflict(resource, name, errors.New(why))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: cause, Message: why}}
	return err
}

// fence says why a change is refused: the instance that it names is gone or has a higher
// epoch, or it is a grant that no record of a living instance gives.
func (r *registry) fence(q request, old, changed *shardingv1alpha1.ControllerInstance) error {
	fenced := func(why string) error { return conflict(q.name, fence.CauseFenced, why) }
	if q.identity == nil {
		return fenced("names no instance")
	}
	by, ok := r.newest()[q.identity.Name]
	if !ok || by.UID != q.identity.UID {
		return fenced("the instance is gone")
	}
	if by.Status.Epoch > q.identity.Epoch {
		return fenced("the instance has a higher epoch")
	}
	if changed == nil {
		return nil
	}
	if changed.Status.Epoch < old.Status.Epoch {
		r.t.Errorf("the epoch of %s falls from %d to %d", q.name, old.Status.Epoch, changed.Status.Epoch)
	}
	now, then := old.Spec.HashKey, changed.Spec.HashKey
	if then == nil || now != nil && *now == *then {
		return nil
	}
	first := now == nil && by.Name == q.name && !r.owned(by.Spec.Ring)
	if gives := by.Status.Gives; !first && (gives == nil || *gives != shardingv1alpha1.Gift{To: q.name, HashKey: *then}) {
		return fenced(fmt.Sprintf("the instance gives %+v", gives))
	}
	return nil
}

// owned says whether an instance of the ring owns a key.
func (r *registry) owned(ring string) bool {
	for _, instance := range r.newest() {
		if instance.Spec.Ring == ring && instance.Spec.HashKey != nil {
			return true
		}
	}
	return false
}

// statusPatch reads a merge patch, whose metadata names the UID and may name a resource
// version.
func (r *registry) statusPatch(q *request, data []byte) (func([]byte) ([]byte, error), error) {
	if err := decode(data, &q.body); err != nil {
		return nil, err
	}
	q.part = partNews
	if q.body["status"] == nil {
		q.part = partRenewal
	}
	metadata, _ := q.body["metadata"].(map[string]any)
	return func(before []byte) ([]byte, error) {
		old := r.newest()[q.name]
		if metadata["uid"] != string(old.UID) {
			return nil, apierrors.NewConflict(resource, q.name, fmt.Errorf("uid is %s, not %v", old.UID, metadata["uid"]))
		}
		if version := metadata["resourceVersion"]; version != nil && version != old.ResourceVersion {
			return nil, apierrors.NewConflict(resource, q.name, fmt.Errorf("version is %s, not %v", old.ResourceVersion, version))
		}
		if q.part == partRenewal {
			return before, nil
		}
		patch, err := json.Marshal(map[string]any{"status": q.body["status"]})
		if err != nil {
			return nil, err
		}
		return jsonpatch.MergePatch(before, patch)
	}, nil
}

// specPatch reads a JSON patch. The body of the request has what it tests as metadata, and
// what it sets as spec.
func (r *registry) specPatch(q *request, data []byte) (func([]byte) ([]byte, error), error) {
	var operations []operation
	if err := decode(data, &operations); err != nil {
		return nil, err
	}
	tests, sets := map[string]any{}, map[string]any{}
	for _, o := range operations {
		if field, ok := strings.CutPrefix(o.Path, "/metadata/"); ok && o.Op == "test" {
			tests[field] = o.Value
		} else if field, ok := strings.CutPrefix(o.Path, "/spec/"); ok && o.Op == "add" {
			sets[field] = o.Value
		} else {
			return nil, fmt.Errorf("a JSON patch has operation %q on %s", o.Op, o.Path)
		}
	}
	q.body = map[string]any{"metadata": tests, "spec": sets}
	patch, err := jsonpatch.DecodePatch(data)
	if err != nil {
		return nil, err
	}
	return func(before []byte) ([]byte, error) {
		after, err := patch.Apply(before)
		if err != nil {
			// As the API server answers.
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", resource, q.name, err.Error(), 0, false)
		}
		return after, nil
	}, nil
}

// decode keeps numbers as they are: a key does not fit into a float64.
func decode(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	return decoder.Decode(into)
}

// Delete implements ControllerInstanceInterface.
func (c *client) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	r := c.registry
	_, err := c.do(ctx, request{verb: "delete", name: name, precondition: options.Preconditions}, func(q request) (*shardingv1alpha1.ControllerInstance, error) {
		old, ok := r.newest()[name]
		if !ok {
			return nil, apierrors.NewNotFound(resource, name)
		}
		if p := options.Preconditions; p != nil && p.UID != nil && *p.UID != old.UID {
			return nil, apierrors.NewConflict(resource, name, errors.New("the UID in the precondition differs"))
		}
		if p := options.Preconditions; p != nil && p.ResourceVersion != nil && *p.ResourceVersion != old.ResourceVersion {
			return nil, apierrors.NewConflict(resource, name, errors.New("the resource version in the precondition differs"))
		}
		if q.identity != nil {
			if err := r.fence(q, &old, nil); err != nil {
				return nil, err
			}
		}
		own := q.identity != nil && q.identity.Name == name && q.identity.UID == old.UID
		atOnce := options.GracePeriodSeconds != nil && *options.GracePeriodSeconds == 0
		if !own && !atOnce {
			r.askToLeaveLocked(old)
			return nil, nil
		}
		r.removeLocked(name)
		return nil, nil
	})
	return err
}

// askToLeave deletes a record as anybody but its instance does.
func (r *registry) askToLeave(name string) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.askToLeaveLocked(r.newest()[name])
}

func (r *registry) askToLeaveLocked(instance shardingv1alpha1.ControllerInstance) {
	if instance.Spec.HashKey == nil {
		r.removeLocked(instance.Name)
		return
	}
	now := metav1.Now().Rfc3339Copy()
	instance.DeletionTimestamp = &now
	r.putLocked(&instance)
}

func (r *registry) number(resourceVersion string) int {
	n, err := strconv.Atoi(resourceVersion)
	if err != nil {
		r.t.Errorf("asked for resource version %q", resourceVersion)
	}
	return n
}

func (r *registry) selects(options metav1.ListOptions, instance *shardingv1alpha1.ControllerInstance) bool {
	selector, err := fields.ParseSelector(options.FieldSelector)
	if err != nil {
		r.t.Error(err)
		return false
	}
	return selector.Matches(fields.Set{"spec.ring": instance.Spec.Ring})
}
