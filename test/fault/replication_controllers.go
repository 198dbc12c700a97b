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
	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// replicationController is the kind of the ReplicaSets that stand for ReplicationControllers.
const replicationController = "ReplicationController"

// asReplicaSet returns what stands for the ReplicationController wherever both are the same.
func asReplicaSet(rc *v1.ReplicationController) *apps.ReplicaSet {
	return &apps.ReplicaSet{
		TypeMeta:   metav1.TypeMeta{Kind: replicationController},
		ObjectMeta: rc.ObjectMeta,
		Spec:       apps.ReplicaSetSpec{Replicas: rc.Spec.Replicas},
		Status:     apps.ReplicaSetStatus{Replicas: rc.Status.Replicas, ObservedGeneration: rc.Status.ObservedGeneration},
	}
}
