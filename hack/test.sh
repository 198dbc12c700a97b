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

# Tests everything, the fastest check first; `make test` runs it. Steps named as
# arguments run alone.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
tree=$root/_output/kubernetes
results=$root/_output/test
export GOFLAGS=-trimpath
# Where the tree's tests find etcd and the other binaries.
export PATH=$root/_output/bin:$PATH
# With -trimpath, upstream's test servers look for their own files by import path
# below TEST_SRCDIR.
export TEST_SRCDIR=$root/_output/src TEST_WORKSPACE=.

# gotest LABEL ARGS...: runs go test in the current folder, prints a line for each
# package, and keeps the results for the closing count.
gotest() {
  local label=$1
  shift
  (cd "$root" && go build -o _output/tools/gotestsum gotest.tools/gotestsum)
  "$root/_output/tools/gotestsum" --format pkgname-and-test-fails --hide-summary skipped \
    --jsonfile "$results/$label.json" -- "$@"
}

# The packages with a patch or a new file of ours, except those that other steps test.
# All their tests run, upstream's unchanged.
patched_packages() {
  git ls-files -co --exclude-standard -- '*.go' '*.go.patch' |
    grep -v -e '^hack/' -e '^test/integration/' -e '^test/e2e_ring/' -e '^test/benchmark/' |
    xargs -n1 dirname | sort -u |
    while read -r dir; do
      [ -n "$(ls "$tree/$dir"/*.go 2>/dev/null)" ] && echo "./$dir"
    done
}

# pinned [HOW] prints a pattern that matches the tests of hack/pinned-tests.txt.
pinned() {
  awk -v how="${1-}" '!/^#/ && (how == "" || $3 == how) {print $2}' "$root/hack/pinned-tests.txt" | paste -sd '|' | sed 's/.*/^(&)$/'
}

check() { go run ./hack/forktree check; }
house() { gotest house ./hack/...; }
tree() { go run ./hack/forktree make; }
verify() {
  go run ./hack/forktree verify
  go run ./hack/codegen -tree "$tree" -verify
}
build() { go run ./hack/forktree build; }
# imports checks the imports of our packages: upstream's import-boss against the
# .import-restrictions files of ours, then the order of layers.
imports() {
  local packages log=$results/import-boss.log
  mapfile -t packages < <(git ls-files -co --exclude-standard -- '*.import-restrictions' | xargs -rn1 dirname | sort -u | sed 's|.*|./&/...|')
  if [ ${#packages[@]} -gt 0 ]; then
    echo "import-boss on ${packages[*]}"
    (cd "$tree" && go run ./cmd/import-boss "${packages[@]}") 2>&1 | tee "$log"
    # It exits with 0 even if it cannot load packages.
    if grep 'failed to load packages' "$log"; then return 1; fi
  fi
  go run ./hack/imports -tree "$tree"
}
unit() {
  go run ./hack/codegen -tree "$tree" -fixtures
  local packages
  mapfile -t packages < <(patched_packages)
  (cd "$tree" && gotest unit -timeout 30m -skip "$(pinned)" "${packages[@]}")
  if [ -z "$(command -v "$(go env CC)")" ]; then
    echo "no C compiler: the race detector does not run"
    return
  fi
  # -cpu 1: with more, Go 1.26's detector itself crashes after some thousand timers of a
  # synctest bubble. All threads that run them share one race context.
  (cd "$tree" && gotest race -race -cpu 1 k8s.io/client-go/tools/ring/... k8s.io/client-go/tools/rangewatch)
}
# sources links the tree's modules by import path.
sources() {
  rm -rf "$TEST_SRCDIR"
  mkdir -p "$TEST_SRCDIR/k8s.io"
  ln -s "$tree" "$tree"/staging/src/k8s.io/* "$TEST_SRCDIR/k8s.io/"
}
# -count=1, here and in e2e: the test cache does not notice new binaries.
integration() {
  sources
  (cd "$tree" && gotest integration -count=1 -timeout 30m -skip "$(pinned)" ./test/integration/ring/... ./test/integration/{replicaset,replicationcontroller,etcd})
  (cd "$tree" && CONTROLLER_RING=false gotest gate-off -timeout 30m -run "$(pinned off)" ./test/integration/{replicaset,replicationcontroller})
  (cd "$tree" && gotest sharding -timeout 30m -run Shard ./test/integration/apiserver)
}
e2e() { (cd "$tree" && gotest e2e -count=1 -timeout 30m ./test/e2e_ring/... ./test/benchmark/memory ./test/benchmark/join); }
# faults injects each fault once, or goes on for DURATION. FAULTS has further flags.
faults() {
  (cd "$tree" && go build -o "$root/_output/tools/fault" ./test/fault)
  # shellcheck disable=SC2086 # FAULTS holds several flags
  _output/tools/fault -bin "$root/_output/bin" -dir "$root/_output/faults" -duration "${DURATION:-0s}" ${FAULTS-}
}
# explore searches the states of the ring's state machine: those within STEPS steps and
# FAULTS faults, or the long exploration without them, for at most TIME.
explore() {
  [ -n "${STEPS-}${FAULTS-}" ] || export RING_EXPLORATION=long
  [ -z "${STEPS-}" ] || export RING_EXPLORATION_STEPS=$STEPS
  [ -z "${FAULTS-}" ] || export RING_EXPLORATION_FAULTS=$FAULTS
  [ -z "${TIME-}" ] || export RING_EXPLORATION_TIME=$TIME
  (cd "$tree" && go test -v -count=1 -timeout 24h -run '^Test(Roster)?Exploration$' k8s.io/client-go/tools/ring)
}

steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(check house tree verify build imports unit integration e2e faults)
mkdir -p "$results"
rm -f "$results"/*.json

count() {
  cat "$results"/*.json 2>/dev/null | grep '"Test":' | grep -c "\"Action\":\"$1\"" || true
}
# counted says whether any step is there whose results are counted. The faults and the
# exploration close with a line of their own.
counted() {
  local step
  for step in "${steps[@]}"; do
    case $step in
    faults | explore) ;;
    *) return 0 ;;
    esac
  done
  return 1
}
# CI reads the counts from the last line.
closing() {
  status=$?
  if counted; then
    echo
    [ $status -eq 0 ] || echo "make test failed in step '$step'; run that step alone with: hack/test.sh $step"
    echo "$(count pass) passed, $(count fail) failed, $(count skip) skipped"
  fi
  exit $status
}
step=start
trap closing EXIT

for step in "${steps[@]}"; do
  printf '\n=== %s (after %dm%02ds)\n' "$step" $((SECONDS / 60)) $((SECONDS % 60))
  "$step"
done
