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

// Package host lets any process take part in a ring with controllers of its own: an operator,
// whether it is built with controller-runtime or with plain informers and work queues.
//
// A Host gives a program four things. Its informers follow the ranges of the ring (NewInformer),
// its queues stand behind the gate (NewQueue), its clients name the instance in what they write
// (Client), and Start takes part in the ring until the process ends:
//
//	ring, err := host.New(host.Config{
//		REST: config,
//		Ring: "virtualmachines",
//		Controllers: []host.Controller{{
//			Name:  "virtualmachine-controller",
//			Works: &v1.VirtualMachine{},
//			Owns:  []runtime.Object{&corev1.Pod{}},
//		}},
//	})
//
// docs/guides/operators.md of the fork has the rest: which controllers are fit for a ring, and how
// to test one.
package host
