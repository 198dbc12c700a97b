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
# arguments run alone; the long ones are in hack/test.

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
    grep -v -e '^hack/' -e '^examples/' -e '^test/integration/' -e '^test/e2e_ring/' -e '^test/conformance_ring/' -e '^test/benchmark/' |
    xargs -n1 dirname | sort -u |
    while read -r dir; do
      [ -n "$(ls "$tree/$dir"/*.go 2>/dev/null)" ] && echo "./$dir"
    done
}

# pinned prints a pattern that matches the tests of hack/pinned-tests.txt.
pinned() {
  awk '!/^#/ {print $2}' "$root/hack/pinned-tests.txt" | paste -sd '|' | sed 's/.*/^(&)$/'
}

# sources links the tree's modules by import path.
sources() {
  rm -rf "$TEST_SRCDIR"
  mkdir -p "$TEST_SRCDIR/k8s.io"
  ln -s "$tree" "$tree"/staging/src/k8s.io/* "$TEST_SRCDIR/k8s.io/"
}

# overlaid OVERLAY runs upstream's tests with an overlay of hack/overlay: those of PACKAGES, or all
# that it is for.
overlaid() {
  local packages
  # shellcheck disable=SC2086 # PACKAGES holds several
  packages=$(go run ./hack/overlay "$1" ${PACKAGES-})
  sources
  # shellcheck disable=SC2086 # so does packages
  (cd "$tree" && gotest "$1" -count=1 -p 1 -timeout 60m -overlay "$root/_output/overlay/$1/overlay.json" -skip "$(pinned)" $packages)
}

for part in upstream operators images; do
  # shellcheck source=/dev/null
  source "hack/test/$part.sh"
done

check() { go run ./hack/forktree check; }
house() { gotest house ./hack/...; }
tree() { go run ./hack/forktree make; }
verify() {
  go run ./hack/forktree verify
  go run ./hack/codegen -tree "$tree" -verify
}
build() { go run ./hack/forktree build; }
# api checks the OpenAPI and discovery files that build has made.
api() { go run ./hack/codegen -tree "$tree" -api "$root/_output/bin" -verify; }
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
# podreads holds what controllers read of pods against what they declare.
podreads() { go run ./hack/podreads -tree "$tree"; }
# overlays sees that each edit still finds its place in upstream's tests, which run by hand.
overlays() {
  go run ./hack/overlay on-ring >/dev/null
  go run ./hack/overlay trimmed >/dev/null
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
  # The simulated day has one goroutine.
  # Some histories do: races are the same in all.
  (cd "$tree" && RING_DRIVER_HISTORIES=30 gotest race -race -cpu 1 -timeout 30m -skip '^TestSimulatedDay$' k8s.io/client-go/tools/ring/... k8s.io/client-go/tools/rangewatch)
}
# -count=1, here and in e2e: the test cache does not notice new binaries.
integration() {
  sources
  (cd "$tree" && gotest integration -count=1 -timeout 30m -skip "$(pinned)" ./test/integration/ring/... ./test/integration/{replicaset,replicationcontroller,etcd})
  (cd "$tree" && gotest sharding -timeout 30m -run Shard ./test/integration/apiserver)
}
e2e() { (cd "$tree" && gotest e2e -count=1 -timeout 30m ./test/e2e_ring/... ./test/conformance_ring ./test/benchmark/memory ./test/benchmark/join ./test/benchmark/process); }
# faults injects each fault once, or goes on for DURATION. FAULTS has further flags.
faults() {
  (cd "$tree" && go build -o "$root/_output/tools/fault" ./test/fault)
  # shellcheck disable=SC2086 # FAULTS holds several flags
  _output/tools/fault -bin "$root/_output/bin" -dir "$root/_output/faults" -duration "${DURATION:-0s}" ${FAULTS-}
}
# on-ring runs upstream's tests that start controllers by themselves, with three members of a ring
# in their place.
on-ring() { overlaid on-ring; }
# trimmed runs upstream's tests of the controllers that stay behind the leader's lease, on pods that
# have nothing but metadata and what these controllers declare.
trimmed() { overlaid trimmed; }
# explore searches the states of the ring's state machine: those within STEPS steps and
# FAULTS faults, or the long exploration without them, for at most TIME.
explore() {
  [ -n "${STEPS-}${FAULTS-}" ] || export RING_EXPLORATION=long
  [ -z "${STEPS-}" ] || export RING_EXPLORATION_STEPS=$STEPS
  [ -z "${FAULTS-}" ] || export RING_EXPLORATION_FAULTS=$FAULTS
  [ -z "${TIME-}" ] || export RING_EXPLORATION_TIME=$TIME
  (cd "$tree" && go test -v -count=1 -timeout 24h -run '^(Test(Roster)?Exploration|TestNoHealthyInstanceIsRemoved)$' k8s.io/client-go/tools/ring k8s.io/apiserver/pkg/storage/etcd3/presence/inquest)
}
# explore-driver has members live through random histories: HISTORIES of them, or that of SEED.
explore-driver() {
  export RING_DRIVER_HISTORIES=${HISTORIES:-3000} RING_DRIVER_SEED=${SEED-}
  (cd "$tree" && go test -v -count=1 -timeout 24h -run '^TestDriverExploration$' k8s.io/client-go/tools/ring/member)
}
# simulate lets a large ring, of INSTANCES, live through a day, that of SEED.
simulate() {
  export RING_SIMULATION=long RING_SIMULATION_SEED=${SEED-} RING_SIMULATION_INSTANCES=${INSTANCES-}
  # The views of a large ring are many and small: collecting them less often saves a fifth of the
  # time.
  (cd "$tree" && GOGC=400 go test -v -count=1 -timeout 24h -run '^TestSimulatedDay$' k8s.io/client-go/tools/ring)
}

steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(check house tree verify build api imports podreads overlays unit integration e2e example faults)
mkdir -p "$results"
rm -f "$results"/*.json

count() {
  cat "$results"/*.json 2>/dev/null | grep '"Test":' | grep -c "\"Action\":\"$1\"" || true
}
# counted says whether any step is there whose results are counted. The faults, the
# exploration and the simulation close with lines of their own.
counted() {
  local step
  for step in "${steps[@]}"; do
    case $step in
    faults | explore | explore-driver | simulate | broken) ;;
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
