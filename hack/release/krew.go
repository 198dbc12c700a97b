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
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

const krewDir = "krew"

// packKrew writes an archive of kubectl-ring for each platform, and the manifest from which krew
// installs it.
func (r *release) packKrew() error {
	r.say("packing kubectl-ring for krew")
	type selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	}
	type file struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	type krewPlatform struct {
		Selector selector `json:"selector"`
		URI      string   `json:"uri"`
		Sha256   string   `json:"sha256"`
		Bin      string   `json:"bin"`
		Files    []file   `json:"files"`
	}
	var all []krewPlatform
	for _, platform := range platforms {
		name := "kubectl-ring-" + dashed(platform) + ".tar.gz"
		path := filepath.Join(r.out, krewDir, name)
		if err := writeTarball(path, []entry{
			{path: "kubectl-ring", mode: 0o755, file: r.binary("kubectl-ring", platform)},
			{path: "LICENSE", mode: 0o644, data: r.license},
		}, r.Date); err != nil {
			return err
		}
		sum, err := hashFile(path)
		if err != nil {
			return err
		}
		all = append(all, krewPlatform{
			Selector: selector{map[string]string{"os": "linux", "arch": arch(platform)}},
			URI:      "https://example.com/ringmaster/" + r.tag() + "/" + name,
			Sha256:   sum,
			Bin:      "kubectl-ring",
			Files:    []file{{"kubectl-ring", "."}, {"LICENSE", "."}},
		})
	}
	// krew takes no build metadata in a version.
	version := strings.Replace(r.Version, "+", "-", 1)
	plugin, err := yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
		"kind":       "Plugin",
		"metadata":   map[string]string{"name": "ring"},
		"spec": map[string]any{
			"version":          version,
			"shortDescription": "Show and steer the rings of controller managers",
			"description": "Shows which controller manager works on which part of a cluster's objects, how\n" +
				"even their load is, and what each of them sees. Moves boundaries, drains\ninstances, and gathers what a bug report needs.\n",
			"platforms": all,
		},
	})
	if err != nil {
		return err
	}
	comment := "# Put the address from which you serve the archives in place of https://example.com/ringmaster, or\n" +
		"# install without one, on amd64 or arm64 with that archive:\n" +
		"# kubectl krew install --manifest=ring.yaml --archive=kubectl-ring-linux-ARCH.tar.gz\n"
	return writeFile(filepath.Join(r.out, krewDir, "ring.yaml"), append([]byte(comment), plugin...))
}
