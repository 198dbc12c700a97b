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
	"context"
	"encoding/json"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/pkg/localcluster"
	etcd "k8s.io/kubernetes/test/harness/history"
)

// event is a change of a record of the ring, as etcd told it.
type event struct {
	At time.Time `json:"at"`
	// Deleted says that the record is gone; the rest is what it last was.
	Deleted  bool                           `json:"deleted,omitempty"`
	Name     string                         `json:"name"`
	UID      string                         `json:"uid"`
	Key      *int64                         `json:"key,omitempty"`
	Next     *int64                         `json:"next,omitempty"`
	Donor    string                         `json:"donor,omitempty"`
	Phase    shardingv1alpha1.InstancePhase `json:"phase,omitempty"`
	Weight   int64                          `json:"weight"`
	Heaviest int64                          `json:"heaviest"`
	Work     int32                          `json:"work,omitempty"`
	Heap     *shardingv1alpha1.ProcessHeap  `json:"heap,omitempty"`
	// Gives says that it gives something away.
	Gives bool `json:"gives,omitempty"`
	// Asked says that it has been asked to leave.
	Asked bool `json:"asked,omitempty"`
}

// recorded has all changes of the records of the ring, in order, and writes each to a file, a line
// of JSON.
type recorded struct {
	events []event
	file   *json.Encoder
}

// records are followed in etcd.
type records struct{ *etcd.History[*recorded] }

// follow follows the records until ctx ends, and writes their changes to the file.
func follow(ctx context.Context, cluster *localcluster.Cluster, path string) (records, error) {
	endpoint, err := cluster.Endpoint(string(localcluster.Etcd))
	if err != nil {
		return records{}, err
	}
	file, err := os.Create(path)
	if err != nil {
		return records{}, err
	}
	h, err := etcd.Follow(ctx, endpoint, &recorded{file: json.NewEncoder(file)}, (*recorded).add,
		[]string{etcd.Registry + "controllerinstances/"}, clientv3.WithPrevKV())
	return records{h}, err
}

func (r *recorded) add(e *clientv3.Event) error {
	object, err := etcd.Object(e)
	if err != nil {
		return err
	}
	i, ok := object.(*shardingv1alpha1.ControllerInstance)
	if !ok || i.Spec.Ring != catalogue.WorkloadsRing {
		return nil
	}
	seen := event{
		At: time.Now(), Deleted: e.Type == clientv3.EventTypeDelete, Name: i.Name, UID: string(i.UID),
		Key: (*int64)(i.Spec.HashKey), Next: (*int64)(i.Spec.NextHashKey), Donor: i.Spec.Donor, Phase: i.Status.Phase,
		Weight: i.Status.Weight, Heaviest: i.Status.Heaviest, Work: i.Status.Work, Heap: i.Status.Heap,
		Gives: i.Status.Gives != nil, Asked: i.DeletionTimestamp != nil,
	}
	r.events = append(r.events, seen)
	return r.file.Encode(seen)
}

// all returns the changes so far.
func (r records) all() (events []event) {
	r.See(func(r *recorded) { events = r.events[:len(r.events):len(r.events)] })
	return events
}
