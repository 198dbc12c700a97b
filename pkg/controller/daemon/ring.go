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

package daemon

import (
	"context"
	"time"

	apps "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/ring"
)

// The back-off of deletions of failed pods, as in stock.
const (
	failedPodsInitialBackoff = time.Second
	failedPodsMaxBackoff     = 15 * time.Minute
)

// predecessorPeriod is how often a DaemonSet looks whether its predecessor's revision is gone,
// which it uses meanwhile. No informer here may tell: that is on the predecessor's key.
const predecessorPeriod = 10 * time.Second

// OnRing returns a DaemonSet controller that shares the DaemonSets with others. It has all Nodes: a
// Node that is missing in the cache would cost it its daemon pods.
func OnRing(ctx context.Context, env *ring.Env) (*ring.Controller, error) {
	dsc, err := newOnRing(ctx, env)
	if err != nil {
		return nil, err
	}
	return dsc.putOnRing(ctx, env)
}

func newOnRing(ctx context.Context, env *ring.Env) (*DaemonSetsController, error) {
	return NewDaemonSetsController(ctx,
		env.Informers.Apps().V1().DaemonSets(), env.Informers.Apps().V1().ControllerRevisions(),
		env.Informers.Core().V1().Pods(), env.Informers.Core().V1().Nodes(),
		env.Client, flowcontrol.NewBackOff(failedPodsInitialBackoff, failedPodsMaxBackoff))
}

// putOnRing puts the controller, which was built from env, behind its gate.
func (dsc *DaemonSetsController) putOnRing(ctx context.Context, env *ring.Env) (*ring.Controller, error) {
	logger := klog.FromContext(ctx)
	dsc.onRing = true
	return ring.New(env, ring.Config[string]{
		Queue: &dsc.queue, Item: ring.Named, Name: ring.Named, Steady: true,
		Work: dsc.processNextWorkItem,
		// What happens to a Node only queues DaemonSets.
		Side: []func(context.Context) bool{dsc.processNextNodeUpdate},
		Run:  dsc.Run,
		Forget: func(name cache.ObjectName, uid types.UID) {
			dsc.expectations.DeleteExpectations(logger, name.String())
			dsc.consistencyStore.Clear(name.AsNamespacedName(), uid)
		},
	})
}

// borrow has a DaemonSet looked at again that uses a revision of another, an earlier one of its
// name, as both have the same template and so the same name for it: once that is gone it makes its
// own.
func (dsc *DaemonSetsController) borrow(ds *apps.DaemonSet, revision *apps.ControllerRevision) {
	if dsc.onRing && !metav1.IsControlledBy(revision, ds) {
		dsc.enqueueDaemonSetAfter(ds, predecessorPeriod)
	}
}
