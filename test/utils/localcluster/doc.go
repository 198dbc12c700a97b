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

// Package localcluster runs a whole Kubernetes control plane on this machine's
// loopback interface, out of binaries in one directory and with all its state in
// another: etcd, kube-apiserver (TLS, RBAC), kube-scheduler, any number of
// kube-controller-managers, and kwok, which plays the kubelets of bare Node
// objects. Nothing runs in the pods.
//
// Every component is a process of its own, which can be killed, paused and
// watched; none is started again unless asked for. All of them end with the process
// that started them, however that ends (on Linux; elsewhere only if it calls Stop).
//
// What the package does not do: keep anything from one cluster to the next.
// Start begins with an empty etcd and new keys.
package localcluster
