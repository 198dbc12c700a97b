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
	"bytes"
	"fmt"
	"path/filepath"
)

const (
	kubeadmDir = "kubeadm"
	// nodeDir is where that folder is to lie on each control plane.
	nodeDir = "/etc/kubernetes/ringmaster"
	// patchesDir is in it, and has the patches of all static pods; firstDir has that of
	// kube-apiserver, for the first round of an upgrade. kubeadm reads subfolders, too, so neither is
	// in the other.
	patchesDir = "patches"
	firstDir   = "api-servers"
)

// writeKubeadm writes patches for the static pods of a control plane, and configurations with which
// kubeadm puts the first control plane and two more together. All other images are upstream's.
func (r *release) writeKubeadm() error {
	r.say("writing patches for kubeadm")
	for _, pod := range staticPods {
		// The keys that kubeadm makes are root's alone.
		patch := fmt.Appendf(nil, `# Has kubeadm run this release's %[1]s: kubeadm init --patches=DIR, join, and upgrade.
apiVersion: v1
kind: Pod
metadata:
  name: %[1]s
  namespace: kube-system
spec:
  securityContext:
    runAsUser: 0
    runAsGroup: 0
  containers:
  - name: %[1]s
    image: %[2]s/%[1]s:%[3]s
    imagePullPolicy: IfNotPresent
`, pod, r.registry, r.tag())
		folders := []string{patchesDir}
		if pod == "kube-apiserver" {
			folders = append(folders, firstDir)
		}
		for _, folder := range folders {
			if err := writeFile(filepath.Join(r.out, kubeadmDir, folder, pod+"0+strategic.yaml"), patch); err != nil {
				return err
			}
		}
	}
	common := fmt.Sprintf(`patches:
  directory: %s
`, nodeDir+"/"+patchesDir)
	files := map[string][]byte{
		"init.yaml": fmt.Appendf(nil, `# The first control plane: kubeadm init --config=init.yaml --upload-certs
# Put the address of your load balancer in place of 192.0.2.10.
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
%s---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %s
controlPlaneEndpoint: 192.0.2.10:6443
`, common, r.Upstream),
		"join.yaml": fmt.Appendf(nil, `# Each further control plane: kubeadm join --config=join.yaml
# Put in what kubeadm init has printed.
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
%sdiscovery:
  bootstrapToken:
    apiServerEndpoint: 192.0.2.10:6443
    token: "abcdef.0123456789abcdef"
    caCertHashes:
    - "sha256:%s"
controlPlane:
  certificateKey: "%[2]s"
`, common, bytes.Repeat([]byte("0"), 64)),
	}
	for name, data := range files {
		if err := writeFile(filepath.Join(r.out, kubeadmDir, name), data); err != nil {
			return err
		}
	}
	return nil
}
