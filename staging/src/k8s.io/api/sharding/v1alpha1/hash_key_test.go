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

package v1alpha1

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	cbor "k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/sharding"
)

// Whoever reads the schema is to find every name that a record may have, and no other.
func TestGoverningKeysAreThoseOfTheTable(t *testing.T) {
	want := sharding.GoverningKeys()
	got := []string{string(GoverningKeyOwn), string(GoverningKeyController), string(GoverningKeyHome), string(GoverningKeyNamespace), string(GoverningKeyClaim)}
	if !slices.Equal(got, want) {
		t.Errorf("the API has the governing keys %q, the table of key paths %q", got, want)
	}
}

func TestHashKeysAreText(t *testing.T) {
	for key, want := range map[HashKey]string{
		0:             `"0000000000000000"`,
		1<<53 + 1:     `"0020000000000001"`,
		math.MaxInt64: `"7fffffffffffffff"`,
		-1:            `-1`,
	} {
		data, err := json.Marshal(Gift{To: "a", HashKey: key})
		if want := `{"to":"a","hashKey":` + want + `}`; err != nil || string(data) != want {
			t.Errorf("%d: %s, %v, want %s", int64(key), data, err, want)
		}
	}
}

func TestHashKeysAreReadFromTextAndIntegers(t *testing.T) {
	for text, want := range map[string]HashKey{
		`"0000000000000000"`: 0, `"0020000000000001"`: 1<<53 + 1, `"7FFFFFFFFFFFFFFF"`: math.MaxInt64,
		`9007199254740993`: 1<<53 + 1, `9223372036854775807`: math.MaxInt64, `0`: 0, `-1`: -1,
	} {
		var got Gift
		if err := json.Unmarshal([]byte(`{"hashKey":`+text+`}`), &got); err != nil || got.HashKey != want {
			t.Errorf("%s: %d, %v, want %d", text, int64(got.HashKey), err, int64(want))
		}
	}
	for text, want := range map[string]string{
		`""`:                   "want 16 hexadecimal digits",
		`"5000"`:               `"5000" is no hash key: want 16 hexadecimal digits`,
		`"0x00000000000000"`:   "want 16 hexadecimal digits",
		`"+000000000000001"`:   "want 16 hexadecimal digits",
		`"000000000000_001"`:   "want 16 hexadecimal digits",
		`"8000000000000000"`:   "up to 7fffffffffffffff",
		`"00000000000000001"`:  "want 16 hexadecimal digits",
		`9223372036854775808`:  "9223372036854775808 is no hash key: want text of 16 hexadecimal digits",
		`1.5`:                  "1.5 is no hash key",
		`true`:                 "true is no hash key",
		`{"key":1}`:            "is no hash key",
		`["0000000000000000"]`: "is no hash key",
	} {
		var got Gift
		if err := json.Unmarshal([]byte(`{"hashKey":`+text+`}`), &got); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d, %v, want %q", text, int64(got.HashKey), err, want)
		}
	}
	var spec ControllerInstanceSpec
	if err := json.Unmarshal([]byte(`{"hashKey":null}`), &spec); err != nil || spec.HashKey != nil {
		t.Errorf("null: %v, %v", spec.HashKey, err)
	}
}

func TestHashKeysSurviveEachEncoding(t *testing.T) {
	for _, key := range []HashKey{0, 1<<53 + 1, math.MaxInt64, -1} {
		object := &ControllerInstance{}
		object.Spec.HashKey, object.Spec.PinnedHashKey = &key, &key
		object.Spec.Held = []HashKeyRange{{First: 0, Last: key}}
		object.Status.Gives = &Gift{To: "a", HashKey: key}
		text := key.String()
		if key < 0 {
			text = "-1"
		}

		data, err := cbor.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		got := &ControllerInstance{}
		if err := cbor.Unmarshal(data, got); err != nil || !reflect.DeepEqual(got, object) {
			t.Errorf("%s in CBOR: %+v, %v", text, got, err)
		}
		if key >= 0 && !strings.Contains(string(data), text) {
			t.Errorf("%s is no text in CBOR: %q", text, data)
		}

		if data, err = object.Marshal(); err != nil {
			t.Fatal(err)
		}
		got = &ControllerInstance{}
		if err := got.Unmarshal(data); err != nil || !reflect.DeepEqual(got, object) {
			t.Errorf("%s in protobuf: %+v, %v", text, got, err)
		}

		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			t.Fatal(err)
		}
		spec := content["spec"].(map[string]any)
		if is, ok := spec["hashKey"].(string); key >= 0 && (!ok || is != text) {
			t.Errorf("unstructured: %#v, want %s", spec["hashKey"], text)
		}
		got = &ControllerInstance{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, got); err != nil || !reflect.DeepEqual(got, object) {
			t.Errorf("%s from unstructured: %+v, %v", text, got, err)
		}
	}
}
