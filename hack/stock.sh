#!/usr/bin/env bash

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

# Builds upstream's own kube-apiserver and kube-controller-manager, without a patch of ours,
# into _output/stock/bin; `make stock` runs it. The source is the tree's commit `upstream`,
# which forktree has compared with go.sum.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
stock=$PWD/_output/stock
# As in forktree's builds, so that packages without a patch come from their build cache.
export GOFLAGS=-trimpath

version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
minor=${version#v1.}
minor=${minor%%.*}
flags=()
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  flags+=(-X "$package.gitVersion=$version" -X "$package.gitMajor=1" -X "$package.gitMinor=$minor")
done

commit=$(git -C _output/kubernetes rev-parse --verify 'refs/tags/upstream^{commit}')
if [ "$(cat "$stock/commit" 2>/dev/null)" != "$commit" ]; then
  rm -rf "$stock"
  mkdir -p "$stock/src"
  git -C _output/kubernetes archive "$commit" | tar -x -C "$stock/src"
  echo "$commit" >"$stock/commit"
fi

cd "$stock/src"
for name in kube-apiserver kube-controller-manager; do
  echo "building stock $name $version"
  go build -buildvcs=false -ldflags "${flags[*]}" -o "$stock/bin/$name" "./cmd/$name"
  said=$("$stock/bin/$name" --version)
  if [ "$said" != "Kubernetes $version" ]; then
    echo "stock $name says '$said', not 'Kubernetes $version'" >&2
    exit 1
  fi
done
