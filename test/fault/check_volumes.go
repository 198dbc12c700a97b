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
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"
)

// unbound means that the data of a claim may be lost.
const unbound = "volume deleted that is bound"

// volumeWritten handles a write of a volume, whose last revision was before if it is deleted.
func (c *checker) volumeWritten(volume *v1.PersistentVolume, deleted bool, before int64) {
	revision := c.revision
	if !deleted {
		c.volumes[volume.Name] = volume
	} else {
		revision = before
		delete(c.volumes, volume.Name)
		if volume.Status.Phase == v1.VolumeBound {
			c.violate(unbound, "%s", volume.Name)
		}
	}
	c.allowOn(catalogue.ClaimsRing, writeID{"write", volume.UID, revision}, volume)
}

// unkept lists the volumes that have yet to be protected, or to go.
func (c *checker) unkept() (left []string) {
	for name, volume := range c.volumes {
		switch {
		case volume.DeletionTimestamp != nil && volume.Status.Phase != v1.VolumeBound:
			left = append(left, "volume "+name+" is still there")
		case volume.DeletionTimestamp == nil && !slices.Contains(volume.Finalizers, volumeutil.PVProtectionFinalizer):
			left = append(left, "volume "+name+" is not protected")
		}
	}
	return left
}
