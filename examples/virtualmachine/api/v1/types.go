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

// Package v1 has the VirtualMachine, a custom resource.
package v1

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of VirtualMachines.
const Group = "virtualmachine.ringmaster.example"

// GroupVersion is the version that this package has.
var GroupVersion = schema.GroupVersion{Group: Group, Version: "v1"}

// VirtualMachine runs in a pod, with a claim for each of its disks.
type VirtualMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   VirtualMachineSpec   `json:"spec,omitempty"`
	Status VirtualMachineStatus `json:"status,omitempty"`
}

// VirtualMachineSpec is what a user wants.
type VirtualMachineSpec struct {
	// Image is what the machine boots.
	Image string `json:"image"`
	// Running says whether the machine is to run.
	Running bool `json:"running,omitempty"`
	// Disks are kept while the machine does not run, and deleted with it.
	Disks []Disk `json:"disks,omitempty"`
}

// Disk is a disk of a machine.
type Disk struct {
	// Name is unique in its machine.
	Name string            `json:"name"`
	Size resource.Quantity `json:"size"`
}

// VirtualMachineStatus is what there is.
type VirtualMachineStatus struct {
	// ObservedGeneration is that of the specification that the rest says something of.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Phase is Stopped, Starting or Running.
	Phase string `json:"phase,omitempty"`
	// Disks is how many claims there are.
	Disks int `json:"disks"`
}

// VirtualMachineList is a list of VirtualMachines.
type VirtualMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []VirtualMachine `json:"items"`
}

// AddToScheme adds the types of this package to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &VirtualMachine{}, &VirtualMachineList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// DeepCopyObject implements runtime.Object.
func (v *VirtualMachine) DeepCopyObject() runtime.Object {
	out := *v
	v.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Disks = slices.Clone(v.Spec.Disks)
	for i := range out.Spec.Disks {
		out.Spec.Disks[i].Size = v.Spec.Disks[i].Size.DeepCopy()
	}
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *VirtualMachineList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]VirtualMachine, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*VirtualMachine)
	}
	return &out
}
