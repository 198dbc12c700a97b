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


# Usage: hack/example.sh        run the operator of examples/virtualmachine until Ctrl-C
#        hack/example.sh check  look at what it serves, and end
#
# It starts a cluster on this machine, and REPLICAS= of the operator for MACHINES= VirtualMachines,
# and shows their ring. All of it lies in _output/example.

set -o errexit -o nounset -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
replicas=${REPLICAS:-3} machines=${MACHINES:-60}
for name in replicas machines; do
  if [[ ! ${!name} =~ ^[1-9][0-9]{0,3}$ ]]; then
    echo "${name^^}=${!name} is not a whole number from 1 to 9999" >&2
    exit 2
  fi
done
if [[ $# -gt 1 || ${1-check} != check ]]; then
  echo "unexpected: $*; the only argument is check" >&2
  exit 2
fi
out=$PWD/_output/example
config=$PWD/examples/virtualmachine/config
export GOFLAGS=-trimpath PATH=$PWD/_output/bin:$PATH KUBECONFIG=$out/cluster/kubeconfig

make --no-print-directory build BINARIES="etcd kwok kube-apiserver kube-controller-manager kube-scheduler kubectl kubectl-ring local-up-cluster"
mkdir -p "$out/bin" "$out/logs"
echo "building the operator"
(cd examples/virtualmachine && go build -o "$out/bin/" ./...)

pids=()
finish() {
  trap - EXIT
  # The replicas leave their ring first. What has ended already is no fault.
  if [[ ${#pids[@]} -gt 1 ]]; then
    kill "${pids[@]:1}" 2>/dev/null || true
    wait "${pids[@]:1}" 2>/dev/null || true
  fi
  if [[ ${#pids[@]} -gt 0 ]]; then
    kill "${pids[0]}" 2>/dev/null || true
    wait "${pids[0]}" 2>/dev/null || true
  fi
}
trap finish EXIT
trap 'exit 0' INT TERM

echo "starting a cluster; its log is $out/logs/cluster.log"
# Ctrl-C is for this script: it ends the cluster after the operator.
setsid local-up-cluster --dir="$out/cluster" --instances=1 --replicasets=0 --pods=0 >"$out/logs/cluster.log" 2>&1 &
pids+=($!)
until kubectl get serviceaccount default >/dev/null 2>&1; do
  if ! kill -0 "${pids[0]}" 2>/dev/null; then
    tail -n 20 "$out/logs/cluster.log" >&2
    exit 1
  fi
  sleep 0.5
done

kubectl apply -f "$config/crd.yaml" -f "$config/rbac.yaml"
kubectl wait --for=condition=Established crd/virtualmachines.virtualmachine.ringmaster.example
token=$(kubectl create token operator --namespace=virtualmachines --duration=24h)
operator=$out/operator.kubeconfig
kubectl config view --minify --raw >"$operator"
kubectl --kubeconfig="$operator" config set-credentials operator --token="$token" >/dev/null
kubectl --kubeconfig="$operator" config set-context --current --user=operator >/dev/null

# The certificate that the cluster's own processes serve with is for this machine.
mkdir -p "$out/certs"
cp "$out/cluster/pki/serving.crt" "$out/certs/tls.crt"
cp "$out/cluster/pki/serving.key" "$out/certs/tls.key"
free_address() {
  local port
  while port=$((20000 + RANDOM % 10000)); (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
  echo "127.0.0.1:$port"
}
for ((i = 1; i <= replicas; i++)); do
  address=$(free_address)
  KUBECONFIG=$operator setsid "$out/bin/ring" --metrics-bind-address="$address" --metrics-cert-dir="$out/certs" \
    --holder-identity="${address}_operator-$i" --health-probe-bind-address=0 >"$out/logs/operator-$i.log" 2>&1 &
  pids+=($!)
  echo "replica $i of the operator is process $!; its log is $out/logs/operator-$i.log"
done
for ((i = 1; i <= machines; i++)); do
  sed "s/name: machine$/name: machine-$i/" "$config/machine.yaml"
  echo ---
done | kubectl apply -f - >"$out/logs/machines.log"
# What a token of the operator's viewers is good for: its metrics, and what each replica sees.
views=(kubectl ring views virtualmachines --controllers-ca="$out/cluster/pki/ca.crt")
echo "$machines VirtualMachines are created. In another terminal:"
echo "  export KUBECONFIG=$KUBECONFIG PATH=$PWD/_output/bin:\$PATH"
echo "  kubectl get vm,pods,pvc; kubectl ring owner vm/machine-1; kill -9 ${pids[-1]}"
echo "  ${views[*]} --token=\$(kubectl create token viewer --namespace=virtualmachines)"
kubectl ring status virtualmachines --wait --timeout=1m
if [[ ${1-} != check ]]; then
  kubectl ring virtualmachines --watch
  exit
fi
viewer=$(kubectl create token viewer --namespace=virtualmachines)
"${views[@]}" --token="$viewer"
# answers PATH WHO prints the code of the last replica's answer to the one with that token.
answers() {
  curl --silent --cacert "$out/cluster/pki/ca.crt" --oauth2-bearer "$2" --output "$out/logs/answer" --write-out '%{http_code}' "https://$address$1"
}
other=$(kubectl create token default)
for path in /ringz /metrics; do
  codes="$(answers $path "") $(answers $path "$other") $(answers $path "$viewer")"
  echo "$path is answered to nobody, another account and a viewer with $codes"
  [[ $codes == "401 403 200" ]]
done
grep '^controller_ring_owned_ratio' "$out/logs/answer"
