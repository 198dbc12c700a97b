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

// Package hashkey places objects on a line of hash keys, and describes parts of
// that line as ranges. It is pure: it knows types.UID and nothing else of the API.
//
// A hash key is an int64 in [0, MaxInt64], made from an object's UID or, for the key of
// a namespace, from its name. It never changes and is no identifier: two objects may
// share one.
package hashkey

import (
	"fmt"
	"math"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
)

// Max is the highest hash key there is.
const Max int64 = math.MaxInt64

const (
	fnvOffset64 uint64 = 14695981039346656037
	fnvPrime64  uint64 = 1099511628211
)

// OfUID returns the hash key of the object with that UID: FNV-1a-64(uid) >> 1.
// The shift keeps the order of upstream's hash of a UID, so that the hash keys
// [s, e) are exactly the UID hashes [2s, 2e) of a shardRange over
// object.metadata.uid. It does not allocate.
func OfUID(uid types.UID) int64 { return int64(fnv64(string(uid)) >> 1) }

// OfNamespace returns the hash key of the namespace with that name:
// fmix64(FNV-1a-64(name)) >> 1. It is made from the name, which every object in the
// namespace carries, and not from the UID, which none does. It does not allocate.
//
// The last characters of a string hardly reach the upper bits of its FNV hash, so the
// keys of team-001 to team-100 would lie side by side, and one instance would own them
// all. fmix64 is the last step of MurmurHash3 (Austin Appleby, public domain), by which
// each bit depends on all.
func OfNamespace(name string) int64 {
	hash := fnv64(name)
	hash ^= hash >> 33
	hash *= 0xff51afd7ed558ccd
	hash ^= hash >> 33
	hash *= 0xc4ceb9fe1a85ec53
	hash ^= hash >> 33
	return int64(hash >> 1)
}

func fnv64(s string) uint64 {
	hash := fnvOffset64
	for i := 0; i < len(s); i++ {
		hash ^= uint64(s[i])
		hash *= fnvPrime64
	}
	return hash
}

// Format returns the key as people see it everywhere: 16 hexadecimal digits.
func Format(key int64) string { return fmt.Sprintf("%016x", key) }

// Parse returns the key that Format wrote. It is an error if text does not have exactly 16
// hexadecimal digits, as it may have been cut short, or if there is no such key.
func Parse(text string) (int64, error) {
	key, err := strconv.ParseUint(text, 16, 63)
	if err != nil || len(text) != len(Format(0)) {
		return 0, fmt.Errorf("%q is no hash key: want 16 hexadecimal digits, up to %s", text, Format(Max))
	}
	return int64(key), nil
}

// FormatOptional returns the key as Format does, and "none" for nil.
func FormatOptional(key *int64) string {
	if key == nil {
		return "none"
	}
	return Format(*key)
}
