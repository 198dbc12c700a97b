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

# Steps of hack/test.sh: operators on a ring of their own.

# conformance judges the operator of a file for the conformance suite, such as example.yaml, with
# further flags.
conformance() {
  local file=$1
  shift
  (cd "$tree" && go build -o "$root/_output/tools/ring-conformance" ./test/conformance_ring)
  _output/tools/ring-conformance -bin "$root/_output/bin" -dir "$root/_output/conformance" -config "$file" "$@"
}
# example tests the operator of examples/virtualmachine as its author would: its own tests, how much
# longer it is than one that elects a leader, what it serves to whom, and the conformance suite,
# with the flags CONFORMANCE.
example() {
  local plain ring
  (cd examples/virtualmachine && go vet ./... && gotest example ./... && go build -o "$root/_output/example/bin/" ./...)
  plain=$(wc -l <examples/virtualmachine/plain/main.go)
  ring=$(wc -l <examples/virtualmachine/ring/main.go)
  echo "the operator has $ring lines on a ring, $plain without one"
  [ $((ring - plain)) -le 20 ]
  hack/example.sh check
  # shellcheck disable=SC2086 # CONFORMANCE holds several flags
  conformance examples/virtualmachine/conformance.yaml -faults 9 ${CONFORMANCE-}
}
# broken sees that the suite notices the mistake of the operator's broken twin, for each rule.
broken() {
  local rule log
  (cd examples/virtualmachine && go build -o "$root/_output/example/bin/" ./...)
  for rule in named owner gate excess absence settled anew leave; do
    log=$results/broken-$rule.log
    # The faults that show it soonest.
    BREAK=$rule conformance examples/virtualmachine/conformance-broken.yaml -only move,leave,die -faults 6 >"$log" 2>&1 || true
    if ! awk -v rule="$rule" '$1 == "rule" {rules = 1} rules && $1 == rule && $2 > 0 {print "noticed:", $0; found = 1} END {exit !found}' "$log"; then
      tail -n 20 "$log"
      echo "the suite does not notice that the operator breaks the rule $rule"
      return 1
    fi
  done
}
