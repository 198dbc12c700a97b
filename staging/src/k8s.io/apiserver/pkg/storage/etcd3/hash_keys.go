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

package etcd3

import (
	"bytes"
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
)

// WithoutHashKeys returns codec, but what it decodes carries no hash keys. Earlier versions
// stored them.
func WithoutHashKeys(codec runtime.Codec) runtime.Codec {
	return keylessCodec{codec}
}

type keylessCodec struct{ runtime.Codec }

// Decode implements runtime.Decoder.
func (c keylessCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, gvk, err := c.Codec.Decode(data, defaults, into)
	if obj != nil {
		meta.ClearHashKeys(obj)
	}
	return obj, gvk, err
}

// differInHashKeys says whether data differs from that of state in nothing but the hash keys that
// an earlier version has stored there. An update then changes nothing, so servers of both versions
// do not rewrite an object in turns. What is stored in another form than data, such as of another
// API version, differs in more: the migration of stored objects counts on updates that change
// nothing else.
func (s *store) differInHashKeys(data []byte, state *objState) bool {
	if !mayHoldHashKeys(state.data) || formOf(data) != formOf(state.data) {
		return false
	}
	obj, err := runtime.Decode(s.codec, state.data)
	if err != nil {
		return false
	}
	keyless, err := runtime.Encode(s.codec, obj)
	return err == nil && bytes.Equal(keyless, data)
}

// mayHoldHashKeys says whether data, in JSON, CBOR or protobuf, may hold hash keys that an earlier
// version has stored. It is fast, and wrong for other data at times, but never for data that does.
func mayHoldHashKeys(data []byte) bool {
	return bytes.Contains(data, hashKeyName) || bytes.Contains(data, hashKeyTag)
}

var (
	hashKeyName = []byte("hashKey")
	// hashKeyTag began the field in protobuf, where it had the number 1001 and was a varint. It had
	// no value of its own for a key that is missing, and so stood in all metadata, that of templates
	// too. Today's number is another: what lies in etcd is skipped as an unknown field.
	hashKeyTag = []byte{1001<<3&0x7f | 0x80, 1001 << 3 >> 7}
)

// form is how an object is stored.
type form struct {
	encoding         string
	apiVersion, kind string
}

// formOf returns the form of data, or the zero form if it has none that is known.
func formOf(data []byte) form {
	var meta runtime.TypeMeta
	var content map[string]interface{}
	switch {
	case bytes.HasPrefix(data, []byte("k8s\x00")):
		var unknown runtime.Unknown
		if unknown.Unmarshal(data[4:]) != nil {
			return form{}
		}
		return form{"protobuf", unknown.APIVersion, unknown.Kind}
	case direct.Unmarshal(data, &content) == nil:
		apiVersion, _ := content["apiVersion"].(string)
		kind, _ := content["kind"].(string)
		return form{"CBOR", apiVersion, kind}
	case json.Unmarshal(data, &meta) == nil:
		return form{"JSON", meta.APIVersion, meta.Kind}
	}
	return form{}
}
