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
// loopback interface: etcd, kube-apiserver (TLS, RBAC), kube-scheduler, any number of
// kube-controller-managers, and kwok, which acts as the kubelet of every Node. Pods run
// no containers. The binaries are in one directory, and all state is in another.
//
// Every component is a process of its own, which can be killed, paused and inspected.
// The package never restarts one by itself. On Linux all processes end when the process
// that started them ends, even if that is killed. Elsewhere they end only with Stop.
//
// No state passes from one cluster to the next: Start begins with an empty etcd and
// new keys.
package localcluster
