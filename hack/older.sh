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

# Builds a kube-controller-manager of ours as an earlier version would be, with fewer rings and
# controllers, into _output/older; `make upgrade` runs it. Only those of ReplicaSets and Deployments
# stay in the tree's catalogue of rings.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tree=$PWD/_output/kubernetes
older=$PWD/_output/older
catalogue=pkg/controller/ring/catalogue/catalogue.go
export GOFLAGS=-trimpath

mkdir -p "$older"
cp "$tree/$catalogue" "$older/catalogue.go"
for controller in ReplicationController Job CronJob TTLAfterFinished DaemonSet; do
  perl -0pi -e 's/, \{\n(\t+)\tName: +'$controller'Controller,\n.*?\n\1\}//s
    or die "older.sh: $ARGV has no entry of the '$controller' controller where it was\n"' "$older/catalogue.go"
done
for ring in Namespaces Claims; do
  perl -0pi -e 's/\n\t\{\n\t\tName: +'$ring'Ring,\n.*?\n\t\},//s
    or die "older.sh: $ARGV has no entry of the '$ring' ring where it was\n"' "$older/catalogue.go"
done
printf '{"Replace": {"%s": "%s"}}\n' "$tree/$catalogue" "$older/catalogue.go" >"$older/overlay.json"
cd "$tree"
echo "building an older kube-controller-manager"
go build -buildvcs=false -overlay "$older/overlay.json" -o "$older/kube-controller-manager" ./cmd/kube-controller-manager
