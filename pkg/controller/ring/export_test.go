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

package ring

import "k8s.io/kubernetes/pkg/controller/ring/catalogue"

// Behind is what the sources of all informers call: one of each controller's is behind, or none.
func (i *Informers) Behind(is bool) {
	for _, s := range i.subjects {
		s.Behind(is)
	}
}

// Waiting returns how many names wait for an informer that is behind, or to be tried again.
func (e *Env) Waiting() int {
	return e.subjects.Waiting()
}

// BehindIn is what the source of that informer calls.
func (i *Informers) BehindIn(read catalogue.Read, is bool) { i.readers[read].behind(is) }
