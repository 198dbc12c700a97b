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

# Usage: hack/local-up-cluster.sh        run a cluster on this machine until Ctrl-C
#        hack/local-up-cluster.sh add    add a controller manager to it
#
# INSTANCES= (controller managers), NODES=, REPLICASETS= and PODS= size it, and API_PORT=
# is the port of its API server. Its state is in _output/local.

set -o errexit -o nounset -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
launcher=_output/bin/local-up-cluster
dir=_output/local

case "$*" in
add)
  if [[ ! -x ${launcher} ]]; then
    echo "No cluster is running: ${launcher} has not been built. Start one with: make up" >&2
    exit 1
  fi
  exec "${launcher}" add --dir="${dir}"
  ;;
"") ;;
*)
  echo "usage: $0 [add]" >&2
  exit 2
  ;;
esac

# The launcher checks the bounds, but it may not be built yet.
for name in INSTANCES NODES REPLICASETS PODS API_PORT; do
  if [[ ! ${!name-} =~ ^[0-9]*$ ]]; then
    echo "${name}=${!name} is not a whole number" >&2
    exit 2
  fi
done
# Nothing is needed here of what else a whole build makes.
make --no-print-directory build BINARIES="etcd kwok kube-apiserver kube-controller-manager kube-scheduler kubectl kubectl-ring local-up-cluster"
exec "${launcher}" --bin-dir=_output/bin --dir="${dir}" \
  ${INSTANCES:+--instances="${INSTANCES}"} \
  ${NODES:+--nodes="${NODES}"} \
  ${REPLICASETS:+--replicasets="${REPLICASETS}"} \
  ${PODS:+--pods="${PODS}"} \
  ${API_PORT:+--api-port="${API_PORT}"}
