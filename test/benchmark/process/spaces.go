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

	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/objects"
)

const (
	// allSpaces is the number of namespaces of equal size.
	allSpaces = 100
	// bigSpace is the namespace that has half of everything, where there is one.
	bigSpace = "big"
)

func spaceName(i int) string { return fmt.Sprintf("space-%03d", i%allSpaces) }

// evenly returns the namespace of a Deployment where all namespaces have as many.
func evenly(i int) string { return spaceName(i) }

// unevenly returns the namespace of a Deployment where one namespace has half of them.
func unevenly(i int) string {
	if i%2 == 0 {
		return bigSpace
	}
	return spaceName(i / 2)
}

// createSpaces creates the namespaces, and waits until pods can be created in them.
func (b *benchmark) createSpaces(ctx context.Context) error {
	return harness.Parallel(ctx, creators, allSpaces+1, func(ctx context.Context, i int) error {
		name := bigSpace
		if i < allSpaces {
			name = spaceName(i)
		}
		if err := objects.Create(ctx, b.client, "", objects.Namespace(name)); err != nil {
			return err
		}
		return b.cluster.AwaitServiceAccount(ctx, name)
	})
}
