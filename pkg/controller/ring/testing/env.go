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

package testing

import (
	"context"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/ring"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
)

// Described returns the catalogue's controller of that name.
func Described(t testing.TB, controller string) catalogue.Controller {
	t.Helper()
	for _, r := range catalogue.Rings() {
		for _, c := range r.Controllers {
			if c.Name == controller {
				return c
			}
		}
	}
	t.Fatalf("the catalogue has no %s", controller)
	return catalogue.Controller{}
}

// NewEnv returns what the catalogue's controller of that name is built from. Its informers are
// empty until they run.
func NewEnv(t testing.TB, ctx context.Context, controller string, gate ring.Gate, client kubernetes.Interface) (*ring.Env, *ring.Informers) {
	t.Helper()
	informers := ring.NewInformers(client, 0, ring.NewWhole(ctx, client, 0))
	env, err := ring.NewEnv(ctx, Described(t, controller), informers, gate, client)
	if err != nil {
		t.Fatal(err)
	}
	return env, informers
}
