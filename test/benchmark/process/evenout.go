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
	"fmt"
	"log"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/kubernetes/pkg/ringtable"
)

const (
	// restPeriod is for how long no boundary has moved in rings that are even. A process learns what
	// it holds by a garbage collection, which an idle one makes every two minutes.
	restPeriod = 3 * time.Minute
	// evenSoon bounds the wait for that. A twentieth of the keys moves in a minute.
	evenSoon = 20 * time.Minute
)

// evenOut waits until the instances have evened out what they hold.
func (b *benchmark) evenOut(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, evenSoon)
	defer cancel()
	var before []string
	var since time.Time
	begin := time.Now()
	err := wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		rings, err := ringtable.List(ctx, b.client)
		if err != nil {
			return false, err
		}
		var keys []string
		for _, r := range rings {
			for _, i := range r.Instances {
				keys = append(keys, fmt.Sprint(i.Name, i.Owned, hashkey.FormatOptional(i.Next)))
			}
		}
		if slices.Equal(keys, before) {
			return time.Since(since) >= restPeriod, nil
		}
		before, since = keys, time.Now()
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for rings that are even: %w", err)
	}
	log.Printf("the rings were even after %v", since.Sub(begin).Round(time.Second))
	return nil
}
