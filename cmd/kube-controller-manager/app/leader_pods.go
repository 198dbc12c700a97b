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

package app

import (
	"context"

	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/podtrim"
)

// leaderPods trims the pods of one shared informer to what the controllers that are built on it
// read. A nil one, which goes with the feature gate ControllerRing off, leaves them whole.
type leaderPods struct {
	trimmer *podtrim.Trimmer
	// client may read all pods.
	client kubernetes.Interface
}

func newLeaderPods(client kubernetes.Interface) *leaderPods {
	if !utilfeature.DefaultFeatureGate.Enabled(genericfeatures.ControllerRing) {
		return nil
	}
	return &leaderPods{podtrim.NewTrimmer(), client}
}

// transform trims obj if it is a pod.
func (p *leaderPods) transform(obj any) {
	if p != nil {
		p.trimmer.Transform(obj)
	}
}

// keepFor says who will read the pods that informers holds. It must come before informers starts.
func (p *leaderPods) keepFor(controllers []Controller, informers informers.SharedInformerFactory) {
	if p == nil {
		return
	}
	fields := podtrim.ReadBy(func(yield func(string) bool) {
		for _, c := range controllers {
			if !yield(c.Name()) {
				return
			}
		}
	})
	if fields == 0 {
		// Perhaps nobody wants pods at all; then no informer of theirs must be made here.
		p.trimmer.Keep(fields, nil)
		return
	}
	p.trimmer.Keep(fields, informers.Core().V1().Pods().Informer().GetStore())
}

// whole returns an informer of pods whose lister finds them whole.
func (p *leaderPods) whole(ctx context.Context, cached coreinformers.PodInformer) coreinformers.PodInformer {
	if p == nil {
		return cached
	}
	return podtrim.Live(ctx, cached, p.client)
}
