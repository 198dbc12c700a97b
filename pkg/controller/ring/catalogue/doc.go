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

// Package catalogue is the catalogue of the rings of kube-controller-manager: which
// controllers run on which ring, from which resources each works, by which path those
// are divided, and whose hash key governs what it writes. It is data. The controller
// manager builds its informers from it and says in its ControllerInstances what governs
// its writes; kubectl shows rings with it. What makes a controller stands in the
// controller manager (cmd/kube-controller-manager/app), the protocol in
// client-go/tools/ring.
package catalogue
