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

// Package helper has functions of which some are called.
package helper

import "example.com/tree/api"

func Image(pod *api.Pod) string { return pod.Spec.Image }

func NotCalled(pod *api.Pod) string { return pod.Spec.Secret }

type Plugin struct{}

func (Plugin) Reason(pod *api.Pod) string { return pod.Status.Reason }

func Live(pod *api.Pod) string { return pod.Spec.Secret + pod.Spec.Host }

func Read(pod *api.Pod) string { return pod.Spec.Host }
