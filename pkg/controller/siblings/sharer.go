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

// Package siblings has the objects in the store of an informer share memory where they are alike:
// the pods of a ReplicaSet differ in little but their names.
package siblings

import (
	"reflect"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/lru"
)

// groups is of how many controllers a Sharer knows an object, each in about 200 bytes. A list comes
// in the order of names, in which siblings are neighbors.
const groups = 1 << 14

// A Sharer has each object share memory with the version of it that is stored, and with a sibling:
// the newest that has the same controller, or the newest of the same namespace if neither has one,
// or else the newest of all. It keeps none of them alive. Its methods may be called from any
// goroutine.
type Sharer[T any] struct {
	// stored has the objects that the informer holds; it may be nil.
	stored cache.Store
	// newest has, weakly, the object of each controller by its UID, of each namespace by its name, and
	// of all by "", that was the last to be new, in its latest version.
	newest *lru.Cache
}

// NewSharer returns a Sharer of objects of type T, of which a pointer has metadata. stored, which
// may be nil, is the store of their informer.
func NewSharer[T any](stored cache.Store) *Sharer[T] {
	return &Sharer[T]{stored: stored, newest: lru.New(groups)}
}

// Transformer returns a function that shares each *T that it is given, and leaves all else alone.
func Transformer[T any](stored cache.Store) func(any) {
	sharer := NewSharer[T](stored)
	return func(obj any) {
		if obj, ok := obj.(*T); ok {
			sharer.Share(obj)
		}
	}
}

// Share replaces parts of obj by equal parts of other objects. Nobody else may have obj yet, or a
// part of it: it must not have been shared before. From now on nobody may write into it, as into
// all that a store has.
func (s *Sharer[T]) Share(obj *T) {
	meta := any(obj).(metav1.Object)
	group := meta.GetNamespace()
	if owner := metav1.GetControllerOfNoCopy(meta); owner != nil {
		group = string(owner.UID)
	}
	stored, sibling := s.storedAs(meta), s.newestOf(group)
	if sibling == nil {
		sibling = s.newestOf("")
	}
	if sibling == stored {
		sibling = nil
	}
	share(reflect.ValueOf(obj).Elem(), elem(reflect.ValueOf(stored)), elem(reflect.ValueOf(sibling)))
	for _, group := range []string{group, ""} {
		// An object that is known may be about to go, and the others of its group would be unknown.
		newest := s.newestOf(group)
		if stored == nil || newest == nil || any(newest).(metav1.Object).GetUID() == meta.GetUID() {
			s.newest.Add(group, weak.Make(obj))
		}
	}
}

func (s *Sharer[T]) newestOf(group string) *T {
	newest, ok := s.newest.Get(group)
	if !ok {
		return nil
	}
	return newest.(weak.Pointer[T]).Value()
}

// storedAs returns the version of an object that the informer holds, or nil.
func (s *Sharer[T]) storedAs(meta metav1.Object) *T {
	if s.stored == nil {
		return nil
	}
	obj, exists, err := s.stored.GetByKey(cache.MetaObjectToName(meta).String())
	if !exists || err != nil {
		return nil
	}
	stored, _ := obj.(*T)
	return stored
}

// share has mine, which can be set, hold the same memory as a, or else as b, for each part in which
// they are equal. Either may be the zero value, for none.
func share(mine, a, b reflect.Value) {
	if !a.IsValid() && !b.IsValid() {
		return
	}
	switch mine.Kind() {
	case reflect.Struct:
		for i := range mine.NumField() {
			// What is not exported is not ours to set.
			if field := mine.Field(i); field.CanSet() {
				share(field, fieldOf(a, i), fieldOf(b, i))
			}
		}
	case reflect.String, reflect.Map:
		if mine.Len() > 0 {
			_ = take(mine, a) || take(mine, b)
		}
	case reflect.Pointer:
		if !mine.IsNil() && !take(mine, a) && !take(mine, b) {
			share(mine.Elem(), elem(a), elem(b))
		}
	case reflect.Slice:
		if mine.Len() > 0 && !take(mine, a) && !take(mine, b) && mine.Type().Elem().Kind() != reflect.Uint8 {
			for i := range mine.Len() {
				share(mine.Index(i), itemOf(a, i), itemOf(b, i))
			}
		}
	}
}

// take sets mine to other if they are equal.
func take(mine, other reflect.Value) bool {
	if !other.IsValid() || !equal(mine, other) {
		return false
	}
	if mine.Kind() == reflect.Slice {
		// Who appends to it gets memory of his own. Slices within it are taken as they are.
		other = other.Slice3(0, other.Len(), other.Len())
	}
	mine.Set(other)
	return true
}

func equal(mine, other reflect.Value) bool {
	if mine.Kind() == reflect.String {
		return mine.String() == other.String()
	}
	// Pointers to them, so that nothing is allocated to compare them.
	return reflect.DeepEqual(mine.Addr().Interface(), other.Addr().Interface())
}

func fieldOf(of reflect.Value, i int) reflect.Value {
	if !of.IsValid() {
		return reflect.Value{}
	}
	return of.Field(i)
}

func itemOf(of reflect.Value, i int) reflect.Value {
	if !of.IsValid() || i >= of.Len() {
		return reflect.Value{}
	}
	return of.Index(i)
}

// elem returns what of points to, or the zero value.
func elem(of reflect.Value) reflect.Value {
	if !of.IsValid() || of.IsNil() {
		return reflect.Value{}
	}
	return of.Elem()
}
