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

# Steps of hack/test.sh: the suites of others, unchanged, which take hours.

# upstream runs those of upstream's integration tests that our patches could break, and
# kubectl's suite, all unchanged. It takes hours. PACKAGES names some of them, such as
# "./test/integration/quota test-cmd", where test-cmd is kubectl's suite.
upstream() {
  local packages package n=0 junit=$results/upstream
  read -ra packages <<<"${PACKAGES-}"
  if [ ${#packages[@]} -eq 0 ]; then
    mapfile -t packages < <(cd "$tree" && go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' \
      ./test/integration/{apiserver/...,garbagecollector,client,dryrun,quota,namespace,deployment,statefulset,job,daemonset,cronjob,endpointslice,disruption,podgc,controlplane} |
      sed 's|^k8s.io/kubernetes|.|')
    packages+=(test-cmd)
  fi
  sources
  rm -rf "$junit"
  mkdir -p "$junit"
  for package in "${packages[@]}"; do
    n=$((n + 1))
    printf -- '--- %s (%d of %d, after %dm)\n' "$package" $n ${#packages[@]} $((SECONDS / 60))
    case $package in
    test-cmd) test-cmd "$junit" ;;
    *) (cd "$tree" && GOTESTSUM_JUNITFILE=$junit/$n.xml gotest "upstream-$n" -count=1 -timeout 60m "$package") || [ -s "$junit/$n.xml" ] ;;
    esac
  done
  go run ./hack/failures hack/upstream-failures.txt "$junit"
  for package in "${packages[@]}"; do
    gate-off "$package"
  done
  # Certificates that the test servers leave.
  git -C "$tree" clean -fdq cmd/kube-apiserver/app/testing/testdata
}
# gate-off PACKAGE runs those tests of a package with the feature gate ControllerRing off that
# are listed to pass then.
gate-off() {
  local tests
  tests=$(awk -v class="k8s.io/kubernetes/${1#./}" '$1 == class && $4 == "gate:" {sub("/.*", "", $2); print $2}' hack/upstream-failures.txt | sort -u | paste -sd '|')
  [ -n "$tests" ] || return 0
  go run ./hack/overlay gate-off "$1" >/dev/null
  (cd "$tree" && CONTROLLER_RING=false gotest "upstream-off-$(basename "$1")" -count=1 -timeout 60m -overlay "$root/_output/overlay/gate-off/overlay.json" -run "^($tests)\$" "$1")
}

# test-cmd JUNIT runs kubectl's suite, and leaves its report in a folder. The suite litters the
# folder that its scripts lie in, so it has copies of those, and links to the rest of the tree. It
# uses the binaries that are built, as its make does nothing.
test-cmd() {
  local dir=$root/_output/test-cmd log=$results/test-cmd.log
  rm -rf "$dir"
  mkdir -p "$dir/_output/bin" "$dir/_output/make"
  find "$tree" -mindepth 1 -maxdepth 1 ! -name .git ! -name _output ! -name hack ! -name test -exec ln -s -t "$dir" {} +
  cp -r "$tree/hack" "$tree/test" "$dir"
  ln -s "$root"/_output/bin/{kube-apiserver,kube-controller-manager,kubectl} "$dir/_output/bin"
  (cd "$tree" && go build -o "$dir/_output/bin/" ./cmd/kubectl-convert)
  ln -s "$(type -P true)" "$dir/_output/make/make"
  (cd "$dir" && PATH=$dir/_output/make:$PATH TERM=xterm KUBE_JUNIT_REPORT_DIR=$1 hack/make-rules/test-cmd.sh 2>&1) | tee "$log" |
    awk '/^\+\+\+ Running case: /{name = $4} /^\+\+\+ exit code: /{print $4 == 0 ? "passed" : "FAILED", name; fflush()}' || true
  if ! grep -q -e 'TESTS PASSED' -e '^FAILED TESTS: ' "$log"; then
    echo "kubectl's suite ended early; see $log"
    return 1
  fi
}

# controller-runtime runs its own suites, unchanged, against stock's API server and ours.
controller-runtime() {
  local module=sigs.k8s.io/controller-runtime@v0.25.2 dir=$root/_output/controller-runtime
  local source server package name
  hack/stock.sh
  source=$(cd / && go mod download -json $module | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  rm -rf "$dir"
  for server in stock ours; do
    mkdir -p "$dir/$server/bin"
    ln -s "$root"/_output/bin/{etcd,kube-apiserver,kubectl} "$dir/$server/bin"
  done
  ln -sf "$root/_output/stock/bin/kube-apiserver" "$dir/stock/bin"
  for package in client cache controller/controllerutil manager builder; do
    name=${package##*/}
    for server in stock ours; do
      echo "--- pkg/$package with $server"
      (cd "$source" && KUBEBUILDER_ASSETS=$dir/$server/bin GOTESTSUM_JUNITFILE=$dir/$server/$name.xml \
        gotest "controller-runtime-$server-$name" -count=1 -timeout 60m "./pkg/$package" \
        -args -ginkgo.flake-attempts=2 -ginkgo.junit-report="$dir/$server/$name-specs.xml") || [ -s "$dir/$server/$name-specs.xml" ]
    done
  done
  go run ./hack/failures hack/upstream-failures.txt "$dir/ours" "$dir/stock"
}
