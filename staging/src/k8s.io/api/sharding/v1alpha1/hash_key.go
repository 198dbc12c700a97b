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
	"bytes"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/hashkey"
)

// HashKey is a hash key in a ControllerInstance: 0 to 9223372036854775807. In JSON, YAML and CBOR
// it is text, its 16 hexadecimal digits, since numbers above 2^53 do not survive many clients of
// JSON. Integers are read, too, as earlier versions wrote them. In protobuf it is a varint.
type HashKey int64

// String returns the key as people see it everywhere: 16 hexadecimal digits.
func (k HashKey) String() string { return hashkey.Format(int64(k)) }

// MarshalJSON writes the key as text. What is below 0 is no hash key, which validation says; it is
// written as an integer.
func (k HashKey) MarshalJSON() ([]byte, error) {
	if k < 0 {
		return json.Marshal(int64(k))
	}
	return json.Marshal(k.String())
}

// UnmarshalJSON reads text of 16 hexadecimal digits, or an integer. Null changes nothing.
func (k *HashKey) UnmarshalJSON(data []byte) error {
	switch {
	case bytes.Equal(data, []byte("null")):
		return nil
	case len(data) > 0 && data[0] == '"':
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
		key, err := hashkey.Parse(text)
		if err != nil {
			return err
		}
		*k = HashKey(key)
		return nil
	}
	var key int64
	if err := json.Unmarshal(data, &key); err != nil {
		return fmt.Errorf("%s is no hash key: want text of 16 hexadecimal digits", data)
	}
	*k = HashKey(key)
	return nil
}

// OpenAPISchemaType says what the key is in JSON.
func (HashKey) OpenAPISchemaType() []string { return []string{"string"} }

// OpenAPISchemaFormat says that the text has no format that OpenAPI knows.
func (HashKey) OpenAPISchemaFormat() string { return "" }
