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

package hashkey_test

import (
	"fmt"
	"math/rand"
	"strconv"
	"testing"

	"github.com/google/uuid"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
)

func TestKeysAreUpstreamsHashHalved(t *testing.T) {
	uids := []types.UID{"", "a", "not-a-uuid", "日本語"}
	for range 1000 {
		uids = append(uids, types.UID(uuid.NewString()))
	}
	for _, uid := range uids {
		hash, err := strconv.ParseUint(sharding.HashField(string(uid)), 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		want := int64(hash >> 1)
		if got := hashkey.OfUID(uid); got != want || got < 0 {
			t.Errorf("OfUID(%q) = %d, want %d", uid, got, want)
		}
	}
}

// Processes of different versions have to agree.
func TestKeysOfNamespacesNeverChange(t *testing.T) {
	for name, want := range map[string]int64{"": 8640173135264257171, "default": 7653940617598397142, "kube-system": 8181325781521475694} {
		if got := hashkey.OfNamespace(name); got != want {
			t.Errorf("OfNamespace(%q) = %d, want %d", name, got, want)
		}
	}
}

// People number their namespaces. An instance that owns a sixteenth of the line should have about
// as much of them.
func TestNamespacesWithNamesThatAreAlikeSpread(t *testing.T) {
	for _, pattern := range []string{"space-%03d", "team-%d", "customer-%05d", "%d-team", "ns%d"} {
		const n, parts = 1600, 16
		var per [parts]int
		for i := range n {
			per[uint64(hashkey.OfNamespace(fmt.Sprintf(pattern, i)))/(hashkey.Limit/parts)]++
		}
		for part, got := range per {
			if got < n/parts/2 || got > n/parts*3/2 {
				t.Errorf("%d of %d namespaces named %q are in part %d of %d", got, n, pattern, part, parts)
			}
		}
	}
}

// The hash keys [s, e) must be exactly upstream's UID hashes [2s, 2e), so that the
// same ranges can be asked of a stock server.
func TestOfUIDKeepsTheOrderOfUpstreamsHash(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	for range 1000 {
		uid := types.UID(uuid.NewString())
		key := uint64(hashkey.OfUID(uid))
		bounds := []uint64{0, key, key + 1, hashkey.Limit, uint64(random.Int63())}
		for _, start := range bounds {
			for _, end := range bounds {
				inKeys := start <= key && key < end
				hash := "0x" + sharding.HashField(string(uid))
				inHashes := !sharding.HexLess(hash, twice(start)) && sharding.HexLess(hash, twice(end))
				if inKeys != inHashes {
					t.Fatalf("uid %s, key %x: in [%x, %x) is %t, its hash %s in [%s, %s) is %t",
						uid, key, start, end, inKeys, hash, twice(start), twice(end), inHashes)
				}
			}
		}
	}
}

// twice returns 2*key as a bound of a shard range; 2^64 takes one more digit.
func twice(key uint64) string {
	if key == hashkey.Limit {
		return "0x10000000000000000"
	}
	return fmt.Sprintf("0x%016x", 2*key)
}

func TestOfUIDDoesNotAllocate(t *testing.T) {
	uid := types.UID(uuid.NewString())
	if allocs := testing.AllocsPerRun(100, func() { hashkey.OfUID(uid) }); allocs != 0 {
		t.Errorf("OfUID allocates %v times", allocs)
	}
}
