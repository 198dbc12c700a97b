# shellcheck shell=bash disable=SC2154 # hack/test.sh sets the variables

# Copyright The Ringmaster Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

# A step of hack/test.sh: the images of a release.

# images unpacks the images that `make release` has made, runs each binary from its own root, and
# the e2e suite on them.
images() {
  local roots=$results/images name layer image
  if ! grep -q "\"commit\": \"$(git rev-parse HEAD)\"" "$root/_output/release/manifest.json"; then
    echo "_output/release is not of this commit: run make release"
    return 1
  fi
  rm -rf "$roots"
  mkdir -p "$roots/bin"
  for name in kube-apiserver kube-controller-manager kube-scheduler kubectl kubectl-ring; do
    image=$root/_output/release/images/$name-linux-$(go env GOARCH).tar
    mkdir -p "$roots/$name"
    # The layers, from the lowest, as the archive lists them.
    tar -xOf "$image" manifest.json | grep -o '"[0-9a-z]*\.tar\.gz"' | tr -d '"' | while read -r layer; do
      tar -xOf "$image" "$layer" | tar -xz -C "$roots/$name"
    done
    if [ "$(id -u)" = 0 ]; then
      printf '%s, as nobody in its own root: ' "$name"
      chroot --userspec=65532:65532 "$roots/$name" "/usr/local/bin/$name" "$([ "${name#kubectl}" = "$name" ] && echo --version || echo --help)" | sed -n 1p
    fi
    ln -s "../$name/usr/local/bin/$name" "$roots/bin/$name"
  done
  ln -s "$root"/_output/bin/{etcd,kwok,local-up-cluster} "$roots/bin"
  ln -s "$root/_output/kwok" "$roots/kwok"
  (cd "$tree" && RINGMASTER_BIN=$roots/bin gotest images -count=1 -timeout 30m ./test/e2e_ring/...)
}
