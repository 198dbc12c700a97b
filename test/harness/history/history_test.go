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

package history

import (
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

func TestObject(t *testing.T) {
	pod := &v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "pod"}}
	binary, err := runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), pod)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		value string
		// want is the name of the object, "" if there is none.
		want string
		bad  bool
	}{
		"protobuf":                 {value: string(binary), want: "pod"},
		"JSON":                     {value: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"pod"}}`, want: "pod"},
		"a kind that nobody knows": {value: `{"apiVersion":"example.com/v1","kind":"Machine","metadata":{"name":"m"}}`},
		"JSON of something else":   {value: `{"1":"2"}`},
		"a number":                 {value: "17"},
		"half of an object":        {value: `{"apiVersion":"v1","kind":"Pod",`, bad: true},
	} {
		kv := &mvccpb.KeyValue{Value: []byte(c.value)}
		for _, e := range []*clientv3.Event{{Type: clientv3.EventTypePut, Kv: kv}, {Type: clientv3.EventTypeDelete, Kv: &mvccpb.KeyValue{}, PrevKv: kv}} {
			object, err := Object(e)
			got := ""
			if pod, ok := object.(*v1.Pod); ok {
				got = pod.Name
			}
			if got != c.want || (object != nil) != (c.want != "") || (err != nil) != c.bad {
				t.Errorf("%s, %v: got %q (%T), %v, want %q", name, e.Type, got, object, err, c.want)
			}
		}
	}
	if object, err := Object(&clientv3.Event{Type: clientv3.EventTypeDelete, Kv: &mvccpb.KeyValue{}}); object != nil || err != nil {
		t.Errorf("without a previous value: got %v, %v", object, err)
	}
}
