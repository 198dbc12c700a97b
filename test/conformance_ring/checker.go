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

package main

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/kubernetes/test/harness/ownership"
)

// checker judges an operator by two independent sources: all changes in etcd, and the requests that
// the API server's audit log has. It shares no code with the ring, and relies only on the meaning
// of the registry. It does no input or output, and knows no time but what it is told.
type checker struct {
	config   *config
	revision int64
	// records has those of the ring that are there, by name, and known all that ever were.
	records map[string]*record
	known   map[types.UID]*record
	views   views
	// processes has whose records they are, by their UIDs.
	processes map[types.UID]string
	// objects has what is stored now.
	objects   map[objectID]*unstructured.Unstructured
	workloads map[types.UID]*workload
	// past has the workloads that are gone.
	past map[types.UID]objectID
	// changes are those that are not judged yet, and requests those that may have made them. Both
	// stay for one conclusion more, as a request may be answered after it.
	changes, earlierChanges   []*change
	requests, earlierRequests []*request
	// gone are the records that have disappeared since the last conclusion.
	gone []*record
	// touched has the processes that a fault may keep from anything, and leaving those that were
	// asked to end.
	touched, leaving map[string]bool
	violations       []violation
	tally            tally
}

// tally counts what was judged.
type tally struct {
	// writes are those of the operator that were judged, and lost those changes of workloads and
	// dependents that the audit log does not have: the API server was killed before it wrote them.
	writes, lost int
	// refused are the operator's requests that the fence refused, and outdated those of them that
	// are nobody's mistake.
	refused, outdated int
	// moved counts the boundaries that have moved.
	moved int
}

// objectID names an object.
type objectID struct {
	kind            schema.GroupKind
	namespace, name string
}

func (o objectID) String() string {
	if o.namespace == "" {
		return o.kind.Kind + " " + o.name
	}
	return o.kind.Kind + " " + o.namespace + "/" + o.name
}

func idOf(o *unstructured.Unstructured) objectID {
	return objectID{o.GroupVersionKind().GroupKind(), o.GetNamespace(), o.GetName()}
}

// change is one of an object in etcd.
type change struct {
	revision, previous int64
	object             objectID
	uid                types.UID
	before, after      *unstructured.Unstructured
	// findings are what is wrong with it if the operator has made it.
	findings []violation
}

// ends says whether the change deletes the object, or marks it as deleted.
func (c *change) ends() bool {
	return c.after == nil || c.before != nil && !isLive(c.after) && isLive(c.before)
}

// violation is a rule that was broken, and how.
type violation struct {
	rule
	text string
}

// request is one that the API server has answered.
type request struct {
	verb     string
	user     string
	process  string
	resource schema.GroupResource
	// subresource, namespace and name are those of the request; a creation may have no name.
	subresource, namespace, name string
	// uid and revision are those of the object in the answer.
	uid      types.UID
	revision int64
	// instance is in whose name it was sent, if named.
	instance fence.Identity
	named    bool
	code     int32
	answered time.Time
	// fenced means that the fence has refused it, and message says why.
	fenced  bool
	message string
	// created is the object that a creation asks for.
	created *unstructured.Unstructured
}

func (r *request) done() bool { return r.code/100 == 2 }

// doubtful says whether it may have been carried out although it was not answered so. The fence may
// refuse a deletion halfway: the object is marked as deleted, and is not removed.
func (r *request) doubtful() bool {
	return r.code/100 == 5 || r.code == 0 || r.fenced && strings.HasPrefix(r.verb, "delete") || r.done() && r.uid == ""
}

// workload is the state of a workload.
type workload struct {
	object *unstructured.Unstructured
	// wants has what the workload wanted, by generation, of each of the configuration's dependents:
	// from the first generation that the operator may still be acting on.
	wants map[int64][]span
	// live has the dependents that are there and are not deleted.
	live []map[types.UID]bool
	// calm is the generation at the last time that everything was settled, and calmBefore at the
	// time before.
	calm, calmBefore int64
	// anew means that it has the name of another that is gone, of which it has met dependents.
	anew bool
}

// span holds the least and the most of something.
type span struct{ least, most int }

func (s span) with(n int) span { return span{min(s.least, n), max(s.most, n)} }

func newChecker(c *config) *checker {
	return &checker{
		config: c, records: map[string]*record{}, known: map[types.UID]*record{}, objects: map[objectID]*unstructured.Unstructured{},
		workloads: map[types.UID]*workload{}, past: map[types.UID]objectID{},
		processes: map[types.UID]string{}, touched: map[string]bool{}, leaving: map[string]bool{},
	}
}

func (c *checker) violate(r rule, format string, args ...any) {
	c.violations = append(c.violations, violation{r, fmt.Sprintf(format, args...)})
}

// isLive says whether the object is not deleted.
func isLive(o *unstructured.Unstructured) bool { return o.GetDeletionTimestamp() == nil }

// recordStored takes a write of a record, or its end, that was seen in etcd at that time.
func (c *checker) recordStored(r *shardingv1alpha1.ControllerInstance, revision int64, gone bool, seen time.Time) {
	c.revision = revision
	if r.Spec.Ring != c.config.Ring {
		return
	}
	known := c.known[r.UID]
	if known == nil {
		known = &record{name: r.Name, uid: r.UID, holder: r.Spec.HolderIdentity, controllers: r.Spec.Controllers, governs: r.Spec.Governs, lease: time.Duration(r.Spec.LeaseDurationSeconds) * time.Second}
		c.known[r.UID] = known
	}
	if gone {
		known.present, known.key = false, nil
		delete(c.records, r.Name)
		c.gone = append(c.gone, known)
	} else {
		if known.key != nil && r.Spec.HashKey != nil && *known.key != int64(*r.Spec.HashKey) {
			c.tally.moved++
		}
		if r.Status.Epoch > known.epoch {
			known.raises = append(known.raises, raise{r.Status.Epoch, revision, seen, r.Status.Gives})
		}
		known.present, known.key, known.next, known.pinned = true, (*int64)(r.Spec.HashKey), (*int64)(r.Spec.NextHashKey), (*int64)(r.Spec.PinnedHashKey)
		known.phase, known.epoch = r.Status.Phase, r.Status.Epoch
		c.records[r.Name] = known
	}
	var parts []ownership.Part
	for _, r := range c.records {
		if r.key != nil {
			parts = append(parts, ownership.Part{Name: r.name, UID: r.uid, Key: *r.key})
		}
	}
	if now := ownership.Of(parts); !slices.Equal(now, c.views.at(revision).View) {
		c.views = append(c.views, view{revision, now})
	}
}

// stored takes a change of any other object: what it is afterwards, or what it was if it is gone.
func (c *checker) stored(o *unstructured.Unstructured, revision int64, gone bool) error {
	c.revision = revision
	id := idOf(o)
	made := &change{revision: revision, object: id, uid: o.GetUID(), before: c.objects[id]}
	if gone {
		delete(c.objects, id)
	} else {
		made.after = o
		c.objects[id] = o
	}
	if made.before != nil {
		made.previous = revisionOf(made.before)
	}
	c.changes = append(c.changes, made)
	if id.kind == c.config.Workload.kind().GroupKind() {
		return c.workloadStored(made)
	}
	for i := range c.config.Dependents {
		if id.kind == c.config.Dependents[i].kind().GroupKind() {
			c.dependentStored(made, i)
		}
	}
	return nil
}

// revisionOf returns the revision at which the object was stored, which its reader has set.
func revisionOf(o *unstructured.Unstructured) int64 {
	var revision int64
	_, _ = fmt.Sscan(o.GetResourceVersion(), &revision)
	return revision
}

func (c *checker) workloadStored(made *change) error {
	if made.after == nil {
		delete(c.workloads, made.uid)
		c.past[made.uid] = made.object
		return nil
	}
	w := c.workloads[made.uid]
	if w == nil {
		w = &workload{wants: map[int64][]span{}, anew: len(c.dependents(func(o *unstructured.Unstructured) bool {
			return c.past[types.UID(controllerOf(o))] == made.object
		})) > 0}
		for range c.config.Dependents {
			w.live = append(w.live, map[types.UID]bool{})
		}
		c.workloads[made.uid] = w
	}
	w.object = made.after
	generation := made.after.GetGeneration()
	spans, again := w.wants[generation]
	for i := range c.config.Dependents {
		n, err := c.config.Dependents[i].want.number(made.after.Object)
		if err != nil {
			return fmt.Errorf("%s: %w", made.object, err)
		}
		if !again {
			spans = append(spans, span{n, n})
		}
		spans[i] = spans[i].with(n)
		if !isLive(made.after) {
			spans[i] = spans[i].with(0)
		}
	}
	w.wants[generation] = spans
	w.forget()
	return nil
}

// forget drops the generations that the operator cannot be acting on any more: those before the one
// that it says it has observed or, where it says nothing, those that were old when everything was
// settled the last time but one, so that it had the time of a whole fault to see a later one.
func (w *workload) forget() {
	from := w.calmBefore
	if observed, ok := w.observed(); ok {
		from = observed
	}
	maps.DeleteFunc(w.wants, func(generation int64, _ []span) bool {
		return generation < from && generation != w.object.GetGeneration()
	})
}

// observed returns the generation that the operator says it has observed, if it says that.
func (w *workload) observed() (int64, bool) {
	observed, ok, err := unstructured.NestedInt64(w.object.Object, "status", "observedGeneration")
	return observed, ok && err == nil
}

// wanted returns the least and the most that any of the generations wanted.
func (w *workload) wanted(dependent int) span {
	all := w.wants[w.object.GetGeneration()][dependent]
	for _, spans := range w.wants {
		all = all.with(spans[dependent].least).with(spans[dependent].most)
	}
	return all
}

// generations says from which to which they are.
func (w *workload) generations() string {
	all := slices.Sorted(maps.Keys(w.wants))
	if len(all) == 1 {
		return fmt.Sprintf("generation %d", all[0])
	}
	return fmt.Sprintf("one of the generations %d to %d", all[0], all[len(all)-1])
}

// dependentStored finds out whether a workload has too many dependents now, or too few. A dependent
// whose workload is gone may have been made by one that did not know that yet.
func (c *checker) dependentStored(made *change, i int) {
	var had, has *workload
	if made.before != nil && isLive(made.before) {
		had = c.workloads[types.UID(controllerOf(made.before))]
	}
	if made.after != nil && isLive(made.after) {
		has = c.workloads[types.UID(controllerOf(made.after))]
	}
	if made.after != nil {
		if name, gone := c.past[types.UID(controllerOf(made.after))]; gone {
			for _, w := range c.workloads {
				w.anew = w.anew || idOf(w.object) == name
			}
		}
	}
	if had == has {
		return
	}
	if had != nil {
		if wanted := had.wanted(i); made.ends() && len(had.live[i]) <= wanted.least {
			made.findings = append(made.findings, violation{absence, fmt.Sprintf(
				"deleted %s of %s, which had %d and wanted no less than %d (%s)", made.object, idOf(had.object), len(had.live[i]), wanted.least, had.generations())})
		}
		delete(had.live[i], made.uid)
	}
	if has != nil {
		has.live[i][made.uid] = true
		if wanted := has.wanted(i); len(has.live[i]) > wanted.most {
			made.findings = append(made.findings, violation{excess, fmt.Sprintf(
				"made %s for %s, which had %d and wanted no more than %d (%s)", made.object, idOf(has.object), len(has.live[i])-1, wanted.most, has.generations())})
		}
	}
}

// dependents returns those that are there, deleted or not, for which is returns true.
func (c *checker) dependents(is func(*unstructured.Unstructured) bool) (found []*unstructured.Unstructured) {
	for id, o := range c.objects {
		if c.isDependent(id.kind) && is(o) {
			found = append(found, o)
		}
	}
	return found
}

func (c *checker) isDependent(kind schema.GroupKind) bool {
	return slices.ContainsFunc(c.config.Dependents, func(d dependentConfig) bool { return d.kind().GroupKind() == kind })
}

// heard takes a request of the audit log.
func (c *checker) heard(r *request) {
	if r.resource == recordsResource && r.verb == "create" && r.done() {
		c.processes[r.uid] = r.process
	}
	c.requests = append(c.requests, r)
}

// recordsResource is that of the registry's records.
var recordsResource = schema.GroupResource{Group: shardingv1alpha1.GroupName, Resource: "controllerinstances"}

// calm notes that everything is as it should be.
func (c *checker) calm() {
	for _, w := range c.workloads {
		w.calmBefore, w.calm = w.calm, w.object.GetGeneration()
		w.forget()
	}
}

// conclude judges what has happened since the last time, and returns what was found. All that etcd
// and the audit log have of it must have been taken. It forgets which processes faults have
// touched.
func (c *checker) conclude() ([]violation, tally) {
	requests := slices.Concat(c.earlierRequests, c.requests)
	for _, r := range c.requests {
		c.judgeRequest(r)
	}
	of := writersOf(requests)
	var left []*change
	for i, made := range slices.Concat(c.earlierChanges, c.changes) {
		writers := of.of(made)
		if len(writers) == 0 && i >= len(c.earlierChanges) {
			left = append(left, made)
			continue
		}
		c.judgeChange(made, writers)
	}
	for _, r := range c.gone {
		c.judgeEnd(r, requests)
	}
	c.earlierChanges, c.changes = left, nil
	c.earlierRequests, c.requests = c.requests, nil
	c.gone = nil
	clear(c.touched)
	found, sum := c.violations, c.tally
	c.violations, c.tally = nil, tally{}
	return found, sum
}

// judgeRequest judges a request by itself.
func (c *checker) judgeRequest(r *request) {
	if r.user != c.config.User || r.process == "" || r.resource == recordsResource {
		return
	}
	switch {
	case r.fenced && r.named && !c.touched[r.process]:
		c.tally.refused++
		c.judgeRefusal(r)
	case r.fenced:
		c.tally.refused++
	case r.done() && !r.named && r.subresource != "token" && c.governed(r.resource):
		c.violate(named, "%s sent %s without the header %s", r.process, r.what(), fence.Header)
	}
}

// what says what the request asked for.
func (r *request) what() string {
	resource := r.resource.String()
	if r.subresource != "" {
		resource += "/" + r.subresource
	}
	name := r.name
	if name == "" && r.created != nil {
		name = r.created.GetGenerateName() + "..."
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", r.verb, resource, strings.TrimPrefix(r.namespace+"/"+name, "/")))
}

// governed says whether the records say whose key governs what the controller writes to the
// resource.
func (c *checker) governed(resource schema.GroupResource) bool {
	switch resource.Group {
	case shardingv1alpha1.GroupName, "events.k8s.io", "coordination.k8s.io", "authentication.k8s.io", "authorization.k8s.io":
		return false
	case "":
		if resource.Resource == "events" {
			return false
		}
	}
	for _, r := range c.known {
		if _, ok := r.governing(c.config.Controller, resource); ok {
			return true
		}
	}
	return false
}

// judgeRefusal judges a refusal by the fence. It is nobody's mistake where the instance has raised
// its epoch while the request was on its way, to give away other keys than the one that governs it.
func (c *checker) judgeRefusal(r *request) {
	known := c.known[r.instance.UID]
	if known == nil {
		c.violate(gate, "%s sent %s in the name of %s, which was never registered; the API server refused it: %s", r.process, r.what(), r.instance, r.message)
		return
	}
	by, covered := known.governing(r.instance.Controller, r.resource)
	objects := []*unstructured.Unstructured{r.created}
	if r.created == nil {
		objects = c.objectsOf(r)
	}
	if covered && strings.Contains(r.message, outdatedReason) && slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool {
		if o.GetUID() == "" && by == shardingv1alpha1.GoverningKeyOwn {
			return false
		}
		keys := governingKeys(by, nil, o)
		return len(keys) > 0 && outdated(c.views, known, r, keys)
	}) {
		c.tally.outdated++
		return
	}
	c.violate(gate, "%s sent %s in the name of %s; the API server refused it: %s", r.process, r.what(), r.instance.Name, r.message)
}

// objectsOf returns the objects that the request may name, as they are now or were before they
// went: one for each change under that name since the last conclusion but one, or the one that is
// there.
func (c *checker) objectsOf(r *request) (found []*unstructured.Unstructured) {
	is := func(id objectID) bool {
		return id.namespace == r.namespace && id.name == r.name && resourceOf(id.kind) == r.resource
	}
	for _, changes := range [][]*change{c.changes, c.earlierChanges} {
		for _, made := range changes {
			if is(made.object) {
				found = append(found, cmp.Or(made.after, made.before))
			}
		}
	}
	if len(found) > 0 {
		return found
	}
	for id, o := range c.objects {
		if is(id) {
			found = append(found, o)
		}
	}
	return found
}

// resourceOf returns the resource of a kind, by the rule for their names.
func resourceOf(kind schema.GroupKind) schema.GroupResource {
	plural, _ := meta.UnsafeGuessKindToResource(kind.WithVersion(""))
	return plural.GroupResource()
}

// outdatedReason is in the message of a refusal for the epoch, and of no other.
const outdatedReason = "from before it gave hash keys away"

// outdated says whether the record's epoch was raised above that of a request before that was
// answered, each time to give away none of the keys. What is seen of a raise is later than the
// raise, so the first counts in any case.
func outdated(all views, r *record, q *request, keys []int64) bool {
	found := false
	for _, raised := range r.raises {
		if raised.epoch <= q.instance.Epoch || found && raised.seen.After(q.answered) {
			continue
		}
		found = true
		now := all.at(raised.revision).View
		if g := raised.gives; g != nil {
			now = now.With(ownership.Part{Name: g.To, Key: int64(g.HashKey)})
		}
		for _, key := range keys {
			if p, ok := now.Owner(key); !ok || p.Name != r.name {
				return false
			}
		}
	}
	return found
}

// writers finds the requests that may have made a change.
type writers struct {
	byUID  map[types.UID][]*request
	byName map[string][]*request
}

func writersOf(requests []*request) writers {
	w := writers{map[types.UID][]*request{}, map[string][]*request{}}
	for _, r := range requests {
		if r.done() && r.uid != "" {
			w.byUID[r.uid] = append(w.byUID[r.uid], r)
		}
		if r.doubtful() {
			w.byName[r.namespace+"/"+r.name] = append(w.byName[r.namespace+"/"+r.name], r)
			if r.verb == "deletecollection" {
				w.byName[r.namespace] = append(w.byName[r.namespace], r)
			}
		}
	}
	return w
}

// of returns the requests that made the change, or any of which did: that is not known where
// several delete an object, where one changes nothing, or where one was not answered.
func (w writers) of(made *change) (found []*request) {
	deletes := func(r *request) bool { return strings.HasPrefix(r.verb, "delete") }
	for _, r := range w.byUID[made.uid] {
		switch {
		case deletes(r) && made.ends(), !deletes(r) && r.revision == made.revision, !deletes(r) && made.after == nil && r.revision == made.previous:
			found = append(found, r)
		}
	}
	if statusAlone(made) {
		// A request that changes nothing is answered with the revision of this one.
		if ofStatus := slices.DeleteFunc(slices.Clone(found), func(r *request) bool { return r.subresource != "status" }); len(ofStatus) > 0 {
			return ofStatus
		}
	}
	if len(found) > 0 {
		return found
	}
	for _, name := range []string{made.object.namespace + "/" + made.object.name, made.object.namespace} {
		for _, r := range w.byName[name] {
			if r.resource != resourceOf(made.object.kind) {
				continue
			}
			if deletes(r) == made.ends() || !deletes(r) && made.after == nil {
				found = append(found, r)
			}
		}
	}
	return found
}

// statusAlone says whether the change is one of the object's status, and of nothing else.
func statusAlone(made *change) bool {
	if made.before == nil || made.after == nil {
		return false
	}
	rest := func(o *unstructured.Unstructured) map[string]any {
		o = o.DeepCopy()
		o.SetResourceVersion("")
		o.SetManagedFields(nil)
		delete(o.Object, "status")
		return o.Object
	}
	return reflect.DeepEqual(rest(made.before), rest(made.after)) && !reflect.DeepEqual(made.before.Object["status"], made.after.Object["status"])
}

// judgeChange judges a change that one of these requests has made, or nobody known. One of the
// owner is taken to have made it before any other.
func (c *checker) judgeChange(made *change, writers []*request) {
	if slices.ContainsFunc(writers, func(r *request) bool { return r.user != c.config.User }) {
		return
	}
	if len(writers) == 0 {
		if c.concerns(made) {
			c.tally.lost++
		}
		for _, f := range made.findings {
			c.violate(f.rule, "revision %d: somebody %s; the audit log does not have it", made.revision, f.text)
		}
		return
	}
	c.tally.writes++
	var r *request
	var wrong string
	for _, r = range writers {
		if wrong = c.notOwner(made, r); wrong == "" {
			break
		}
	}
	if wrong != "" {
		c.violate(owner, "revision %d: %s (%s) sent %s; %s", made.revision, r.instance.Name, r.process, r.what(), wrong)
	}
	by := r.process
	if r.named {
		by = fmt.Sprintf("%s (%s)", r.instance.Name, r.process)
	}
	for _, f := range made.findings {
		c.violate(f.rule, "revision %d: %s %s", made.revision, by, f.text)
	}
}

// concerns says whether the change is one of a workload or dependent that the operator may have
// made.
func (c *checker) concerns(made *change) bool {
	return made.object.kind == c.config.Workload.kind().GroupKind() || c.isDependent(made.object.kind)
}

// notOwner says why the instance that sent the request was not the one to make the change, "" if it
// was.
func (c *checker) notOwner(made *change, r *request) string {
	if !r.named {
		// That is another rule's.
		return ""
	}
	known := c.known[r.instance.UID]
	if known == nil {
		return "it was never registered"
	}
	by, ok := known.governing(r.instance.Controller, r.resource)
	if !ok {
		return fmt.Sprintf("no line of its spec.governs covers what %q writes to %s", r.instance.Controller, r.resource)
	}
	seen := c.views.at(made.revision)
	for _, key := range governingKeys(by, made.before, made.after) {
		p, ok := seen.Owner(key)
		switch {
		case !ok:
			return fmt.Sprintf("nobody owned key %s, which governs it (%s)", hashkey.Format(key), by)
		case p.UID != r.instance.UID:
			return fmt.Sprintf("key %s, which governs it (%s), was %s's", hashkey.Format(key), by, p.Name)
		}
	}
	return ""
}

// judgeEnd judges the end of a record.
func (c *checker) judgeEnd(r *record, requests []*request) {
	process := c.processes[r.uid]
	if process == "" || c.touched[process] {
		return
	}
	// A process may end once it sees that its record is gone, before it has the answer.
	itself := slices.ContainsFunc(requests, func(q *request) bool {
		return q.resource == recordsResource && q.verb == "delete" && (q.done() || q.doubtful()) && q.name == r.name && q.process == process
	})
	switch {
	case !itself && c.leaving[process]:
		c.violate(leave, "%s got SIGTERM, and did not delete its record %s, which has expired", process, r.name)
	case !itself:
		c.violate(leave, "%s lost its record %s, though no fault had touched it", process, r.name)
	case !c.leaving[process]:
		c.violate(leave, "%s deleted its record %s, though nobody had asked it to end", process, r.name)
	}
}

// leftover is something that is not as it should be, and the rule that is broken if it stays so.
type leftover struct {
	rule
	text string
}

// unsettled lists the workloads that the operator has something left to do for.
func (c *checker) unsettled() (left []leftover) {
	for _, w := range c.workloads {
		of := settled
		if w.anew {
			of = anew
		}
		add := func(format string, args ...any) {
			left = append(left, leftover{of, fmt.Sprintf(format, args...)})
		}
		name := idOf(w.object)
		if !isLive(w.object) {
			add("%s is deleted and still there", name)
			continue
		}
		for i, d := range c.config.Dependents {
			want, err := d.want.number(w.object.Object)
			if err != nil || len(w.live[i]) != want {
				add("%s wants %d of %s and has %d", name, want, d.Kind, len(w.live[i]))
			}
		}
		for _, s := range c.config.Settled {
			if is, want := s.path.of(w.object.Object), s.is.of(w.object.Object); is != want {
				add("%s: %s is %s, %s is %s", name, s.Path, is, s.Is, want)
			}
		}
	}
	slices.SortFunc(left, func(a, b leftover) int { return cmp.Compare(a.text, b.text) })
	return left
}

// incomplete lists what differs from a ring on which these processes work, and nobody else.
func (c *checker) incomplete(processes []string) (left []leftover) {
	add := func(format string, args ...any) {
		left = append(left, leftover{settled, fmt.Sprintf(format, args...)})
	}
	if len(c.records) != len(processes) {
		add("ring %s has %d instances, want %d", c.config.Ring, len(c.records), len(processes))
	}
	unknown := 0
	for _, name := range slices.Sorted(maps.Keys(c.records)) {
		r := c.records[name]
		process := c.processes[r.uid]
		switch {
		case process == "":
			// The API server was killed before the creation was in the audit log.
			unknown++
		case !slices.Contains(processes, process):
			add("%s is that of %s, which has ended", name, process)
		}
		// An instance may give something away to even out the load.
		if r.key == nil || r.phase != shardingv1alpha1.InstanceActive && r.phase != shardingv1alpha1.InstanceWait {
			add("%s (%s) is %s and owns up to %s", name, process, r.phase, hashkey.FormatOptional(r.key))
		}
	}
	for _, process := range processes {
		if c.ofProcess(process) != nil {
			continue
		}
		if unknown--; unknown < 0 {
			add("%s has no record", process)
		}
	}
	return left
}

// sharedPlace returns the place that several instances have, "" if each has one of its own, or
// none.
func (c *checker) sharedPlace() string {
	seen := map[string]bool{}
	for _, r := range c.records {
		place := r.place()
		if place != "" && seen[place] {
			return place
		}
		seen[place] = true
	}
	return ""
}

// ofProcess returns the record of a replica, nil if it has none.
func (c *checker) ofProcess(process string) *record {
	for _, r := range c.records {
		if c.processes[r.uid] == process {
			return r
		}
	}
	return nil
}
