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

// Package stranger is not known in source.
package stranger

import "example.com/tree/api"

func Look(*api.Pod) {}

func LookAtAny[T any](T) {}

type Lister interface{ List() []*api.Pod }

func With(Lister) {}

type Sorter interface{ Less(i, j int) bool }

func Sort(Sorter) {}

type Box struct {
	Next *Box
	Pods map[string]*api.Pod
}

func Wrapped(Box) {}

func Value(*api.Pod) {}
