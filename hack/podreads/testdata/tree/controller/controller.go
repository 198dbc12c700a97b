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

// Package controller reads pods in many ways.
package controller

import (
	"example.com/tree/api"
	"example.com/tree/helper"
	"example.com/tree/stranger"
)

type plugin interface{ Reason(pod *api.Pod) string }

var plugins = []plugin{helper.Plugin{}}

func direct(pod *api.Pod) string { return pod.Name + pod.Spec.Node }

func byMention(pods []*api.Pod) (images []string) {
	image := helper.Image
	for _, pod := range pods {
		images = append(images, image(pod))
	}
	return images
}

func behindAnInterface(pod *api.Pod) string { return plugins[0].Reason(pod) }

func inAClosure(obj any) string {
	return func() string { return obj.(*api.Pod).Spec.Volume }()
}

func live(pod *api.Pod) string { return helper.Live(pod) }

func away(pod *api.Pod, lister stranger.Lister) {
	stranger.Look(pod)
	stranger.LookAtAny[*api.Pod](pod)
	stranger.With(lister)
	println(len([]*api.Pod{pod}))
	stranger.Sort(byName{pod})
	stranger.Wrapped(stranger.Box{Pods: map[string]*api.Pod{"": pod}})
	value := stranger.Value
	value(pod)
	copied := pod.Copy
	copied()
}

type byName []*api.Pod

func (b byName) Less(i, j int) bool { return b[i].Status.Phase < b[j].Status.Phase }
