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

package job

import (
	"context"
	"slices"
	"testing"
	"time"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/ring"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	ringtesting "k8s.io/kubernetes/pkg/controller/ring/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

// ringFixture is a Job controller behind a gate that is shut.
type ringFixture struct {
	*testing.T
	*Controller
	ctx    context.Context
	ring   *ring.Controller
	gate   *ringtesting.Gate
	env    *ring.Env
	client *fake.Clientset
}

func newRingFixture(t *testing.T) *ringFixture {
	_, ctx := ktesting.NewTestContext(t)
	f := &ringFixture{T: t, ctx: ctx, gate: &ringtesting.Gate{}, client: fake.NewClientset()}
	f.env, _ = ringtesting.NewEnv(t, ctx, catalogue.JobController, f.gate, f.client)
	var err error
	f.Controller, err = NewController(ctx, f.env.Client, f.env.Informers.Core().V1().Pods(), f.env.Informers.Batch().V1().Jobs(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if f.ring, err = f.putOnRing(ctx, f.env); err != nil {
		t.Fatal(err)
	}
	return f
}

// add puts an object into a cache.
func (f *ringFixture) add(indexer cache.Indexer, object metav1.Object) {
	f.Helper()
	if err := indexer.Add(object); err != nil {
		f.Fatal(err)
	}
}

func (f *ringFixture) pods() cache.Indexer {
	return f.env.Informers.Core().V1().Pods().Informer().GetIndexer()
}

func (f *ringFixture) jobs() cache.Indexer {
	return f.env.Informers.Batch().V1().Jobs().Informer().GetIndexer()
}

// tracked returns a pod with its finalizer, of that Job if there is one.
func tracked(name string, of *batch.Job) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name), ResourceVersion: "1",
		Finalizers: []string{batch.JobTrackingFinalizer}, Labels: map[string]string{"of": "job"},
	}}
	if of != nil {
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(of, controllerKind)}
	}
	return pod
}

func ringJob(uid string, conditions ...batch.JobConditionType) *batch.Job {
	job := &batch.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: types.UID(uid), ResourceVersion: "1"},
		Spec: batch.JobSpec{
			Parallelism: ptr.To[int32](1), Completions: ptr.To[int32](1), BackoffLimit: ptr.To[int32](6),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"of": "job"}},
		},
	}
	for _, c := range conditions {
		job.Status.Conditions = append(job.Status.Conditions, batch.JobCondition{Type: c, Status: v1.ConditionTrue})
	}
	return job
}

// finished works off the queue of pods without a Job, and returns those whose finalizer was
// removed.
func (f *ringFixture) finished() []string {
	f.Helper()
	f.client.ClearActions()
	before, _, _ := f.gate.Count()
	for f.orphanQueue.Len() > 0 {
		f.processNextOrphanPod(f.ctx)
	}
	var names []string
	for _, action := range f.client.Actions() {
		if patch, ok := action.(interface{ GetName() string }); ok && action.Matches("patch", "pods") {
			names = append(names, patch.GetName())
		}
	}
	slices.Sort(names)
	if inside, _, _ := f.gate.Count(); inside != before {
		f.Errorf("%d pieces of work never left the gate", inside-before)
	}
	return names
}

func (f *ringFixture) expectFinished(when string, want ...string) {
	f.Helper()
	if got := f.finished(); !slices.Equal(got, want) {
		f.Errorf("%s: the finalizers of %q were removed, want %q", when, got, want)
	}
}

// That a Job is not in the cache says nothing while its key is another's: its pods would never be
// counted.
func TestAFinalizerIsRemovedBehindTheGateOfThePodsHome(t *testing.T) {
	f := newRingFixture(t)
	gone, alone := tracked("gone", ringJob("gone")), tracked("alone", nil)
	f.add(f.pods(), gone)
	f.add(f.pods(), alone)
	queue := func() {
		f.enqueueOrphanPod(gone, false)
		f.enqueueOrphanPod(alone, false)
		f.enqueueLabelSelector(ringJob("gone"))
	}
	queue()
	f.expectFinished("the gate is shut")
	if n := f.orphanQueue.NumRequeues(orphanPodKey{OrphanPodKeyKindName, "ns", "gone"}); n != 0 {
		t.Errorf("%d failures of what was never tried are remembered", n)
	}
	f.gate.Set(ringtesting.Around(metav1.HashKeyOf(ringJob("gone"))))
	queue()
	f.expectFinished("the gate is open for the Job", "gone", "gone")
	f.gate.Set(ringtesting.Around(metav1.HashKeyOf(alone)))
	queue()
	f.expectFinished("the gate is open for the pod without a Job", "alone", "alone")
}

func TestAPodIsReadAgainBehindTheGate(t *testing.T) {
	f := newRingFixture(t)
	pod := tracked("pod", ringJob("gone"))
	f.add(f.pods(), pod)
	f.gate.Set(hashkey.All())
	another := tracked("pod", ringJob("gone"))
	another.UID = "another"
	adopted := tracked("pod", ringJob("adopter"))
	for what, now := range map[string]*v1.Pod{"another pod of that name": another, "a pod that was adopted": adopted} {
		f.add(f.pods(), pod)
		f.enqueueOrphanPod(pod, false)
		f.gate.OnEnter = func() { f.add(f.pods(), now) }
		f.expectFinished(what)
	}
	f.enqueueOrphanPod(pod, false)
	f.gate.OnEnter = func() { _ = f.pods().Delete(pod) }
	f.expectFinished("a pod that is gone")
}

// A lister shows no other Job of a name while one is worked on. That is no absence.
func TestAJobThatTookAnothersNameIsNotGone(t *testing.T) {
	f := newRingFixture(t)
	f.gate.Set(hashkey.All())
	f.add(f.jobs(), ringJob("first"))
	f.queue.Add("ns/job")
	name, _ := f.queue.Get()
	f.add(f.jobs(), ringJob("second"))
	pod := tracked("pod", ringJob("second"))
	f.add(f.pods(), pod)
	f.enqueueOrphanPod(pod, false)
	f.expectFinished("the first Job is worked on")
	f.queue.Done(name)
	f.add(f.jobs(), ringJob("second", batch.JobComplete))
	if err := wait.PollUntilContextTimeout(f.ctx, 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return f.orphanQueue.Len() > 0, nil
	}); err != nil {
		t.Fatalf("the pod is not looked at again: %v", err)
	}
	f.expectFinished("the second Job has finished", "pod")
}

func TestAcquiredQueuesThePodsWithoutAJob(t *testing.T) {
	f := newRingFixture(t)
	f.gate.Set(hashkey.All())
	running := ringJob("running")
	f.add(f.jobs(), running)
	untracked := tracked("untracked", nil)
	untracked.Finalizers = nil
	theirs := tracked("theirs", ringJob("theirs"))
	for _, pod := range []*v1.Pod{tracked("running", running), tracked("gone", ringJob("gone")), tracked("alone", nil), untracked, theirs} {
		f.add(f.pods(), pod)
	}
	f.ring.Acquired(t.Context(), hashkey.All().Minus(ringtesting.Around(homeKey(theirs))))
	f.expectFinished("acquired all but one", "alone", "gone")
	f.add(f.jobs(), ringJob("running", batch.JobComplete))
	f.ring.Acquired(t.Context(), ringtesting.Around(metav1.HashKeyOf(running)))
	f.expectFinished("acquired a Job that has finished", "running")
}

// The next owner keeps its own account, and so does this instance if it becomes the owner again.
func TestReleasedForgetsAllThatWasKeptOfAJob(t *testing.T) {
	f := newRingFixture(t)
	logger := klog.FromContext(f.ctx)
	f.gate.Set(hashkey.All())
	job := ringJob("job")
	f.add(f.jobs(), job)
	f.queue.Add("ns/job")
	name, _ := f.queue.Get()
	f.queue.Done(name)

	_ = f.expectations.ExpectCreations(logger, "ns/job", 1)
	_ = f.finalizerExpectations.expectFinalizersRemoved(logger, "ns/job", []types.UID{"pod"})
	_ = f.podBackoffStore.updateBackoffRecord(backoffRecord{key: "ns/job", failuresAfterLastSuccess: 1})
	f.finishedJobExpectations.Store(job.UID, struct{}{})
	f.pods().Bookmark("1")
	f.consistencyStore.WroteAt(types.NamespacedName{Namespace: "ns", Name: "job"}, job.UID, podGroupResource, "1000")
	if f.consistencyStore.EnsureReady(types.NamespacedName{Namespace: "ns", Name: "job"}) == nil {
		t.Fatal("no write is waited for before the range is released")
	}

	f.ring.Released(hashkey.All())
	if !f.expectations.SatisfiedExpectations(logger, "ns/job") {
		t.Error("expectations are remembered")
	}
	if uids := f.finalizerExpectations.getExpectedUIDs("ns/job"); len(uids) != 0 {
		t.Errorf("the removal of the finalizers of %v is expected", uids)
	}
	if _, exists, _ := f.podBackoffStore.store.GetByKey("ns/job"); exists {
		t.Error("the back-off is remembered")
	}
	if _, ok := f.finishedJobExpectations.Load(job.UID); ok {
		t.Error("that the Job has finished is remembered")
	}
	if err := f.consistencyStore.EnsureReady(types.NamespacedName{Namespace: "ns", Name: "job"}); err != nil {
		t.Errorf("a write is remembered: %v", err)
	}
}

// A parent has another key, so its Workload is in another range.
func TestTheWorkloadOfAParentIsReadLive(t *testing.T) {
	f := newRingFixture(t)
	yes := true
	job := ringJob("job")
	job.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Set", Name: "parent", UID: "parent", Controller: &yes}}
	workload := &schedulingv1beta1.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "workload"},
		Spec:       schedulingv1beta1.WorkloadSpec{ControllerRef: &schedulingv1beta1.TypedLocalObjectReference{APIGroup: "example.com", Kind: "Set", Name: "parent"}},
	}
	if got, err := f.parentWorkload(f.ctx, job); got != nil || err != nil {
		t.Errorf("found %v, %v; want none", got, err)
	}
	if err := f.client.Tracker().Add(workload); err != nil {
		t.Fatal(err)
	}
	if got, err := f.parentWorkload(f.ctx, job); err != nil || got == nil || got.Name != "workload" {
		t.Errorf("found %v, %v; want the parent's", got, err)
	}
}

func TestTheBackOffOfAJobFromAnotherInstance(t *testing.T) {
	f := newRingFixture(t)
	job := ringJob("uid")
	now := time.Now().Truncate(time.Second)
	ended := func(name string, phase v1.PodPhase, ago time.Duration) *v1.Pod {
		pod := tracked(name, job)
		pod.Finalizers, pod.Status.Phase = nil, phase
		pod.CreationTimestamp = metav1.NewTime(now.Add(-ago))
		return pod
	}
	surplus := ended("surplus", v1.PodFailed, 0)
	surplus.DeletionTimestamp = ptr.To(metav1.NewTime(now))
	last := ended("d", v1.PodFailed, time.Minute)
	running := tracked("e", job)
	sync := &syncJobCtx{job: job, pods: []*v1.Pod{
		ended("a", v1.PodFailed, 4*time.Minute), ended("b", v1.PodSucceeded, 3*time.Minute), ended("c", v1.PodFailed, 2*time.Minute), last, running, surplus,
	}}
	// Only the last is not counted yet.
	record := f.backoffRecord(sync, "ns/job", nil, []*v1.Pod{last})
	if at := now.Add(-time.Minute); record.failuresAfterLastSuccess != 2 || !record.lastFailureTime.Equal(at) {
		t.Errorf("%d failures up to %v, want 2 up to %v", record.failuresAfterLastSuccess, record.lastFailureTime, at)
	}
	// What is remembered has all but the new.
	if err := f.podBackoffStore.updateBackoffRecord(record); err != nil {
		t.Fatal(err)
	}
	if record = f.backoffRecord(sync, "ns/job", nil, []*v1.Pod{ended("f", v1.PodFailed, 0)}); record.failuresAfterLastSuccess != 3 {
		t.Errorf("%d failures with one more, want 3", record.failuresAfterLastSuccess)
	}
	f.Controller.ring = nil
	if record = f.backoffRecord(sync, "ns/other", nil, []*v1.Pod{last}); record.failuresAfterLastSuccess != 1 {
		t.Errorf("%d failures without a ring, want that which is new", record.failuresAfterLastSuccess)
	}
}
