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

// Package rangeindex finds the values whose ranges of hash keys hold a key.
package rangeindex

import (
	"math/bits"

	"k8s.io/apimachinery/pkg/hashkey"
)

// Index holds values by ranges of hash keys, which may overlap. The zero value is
// empty and ready to use. It is not safe for concurrent use.
//
// It is a treap ordered by the start of a range. Each node knows the highest end in its
// subtree. Adding and removing cost O(log n), finding k values O((1+k) log n).
type Index[T any] struct {
	root   *node[T]
	values int
}

// node holds one range of one value.
type node[T any] struct {
	hashkey.Range
	id    int
	value T
	// first is set for one of the value's ranges, so each visits the value once.
	first bool

	// priority orders the tree as a heap, with the highest at the root.
	priority    uint64
	left, right *node[T]
	// maxEnd is the highest end of a range in the node's subtree.
	maxEnd uint64
}

// Len returns the number of values.
func (x *Index[T]) Len() int { return x.values }

// Add adds value under id, which must not be in the index yet.
func (x *Index[T]) Add(id int, ranges hashkey.Ranges, value T) {
	x.values++
	for i, r := range places(ranges) {
		x.root = x.root.insert(&node[T]{Range: r, id: id, value: value, first: i == 0, priority: scatter(uint64(id), r.Start), maxEnd: r.End})
	}
}

// Remove removes the value that was added under id with the same ranges.
func (x *Index[T]) Remove(id int, ranges hashkey.Ranges) {
	x.values--
	for _, r := range places(ranges) {
		x.root = x.root.remove(r.Start, id)
	}
}

// Visit calls f for each value with key in its ranges, once and in no particular
// order. f must not change the index.
func (x *Index[T]) Visit(key int64, f func(T)) {
	x.root.visit(uint64(key), f)
}

// Each calls f for each value, once and in no particular order. f must not change
// the index.
func (x *Index[T]) Each(f func(T)) {
	x.root.each(f)
}

// places returns the ranges under which a value is stored. A value without ranges gets an
// empty one, which holds no key.
func places(ranges hashkey.Ranges) []hashkey.Range {
	if ranges.Empty() {
		return []hashkey.Range{{}}
	}
	return ranges
}

func (n *node[T]) visit(key uint64, f func(T)) {
	if n == nil || key >= n.maxEnd {
		return
	}
	n.left.visit(key, f)
	if key < n.Start {
		return
	}
	if key < n.End {
		f(n.value)
	}
	n.right.visit(key, f)
}

func (n *node[T]) each(f func(T)) {
	if n != nil {
		n.left.each(f)
		if n.first {
			f(n.value)
		}
		n.right.each(f)
	}
}

// before says whether n comes before the range of id that begins at start.
func (n *node[T]) before(start uint64, id int) bool {
	return n.Start < start || n.Start == start && n.id < id
}

func (n *node[T]) insert(add *node[T]) *node[T] {
	switch {
	case n == nil:
		return add
	case add.priority > n.priority:
		add.left, add.right = n.split(add.Start, add.id)
		return add.update()
	case n.before(add.Start, add.id):
		n.right = n.right.insert(add)
	default:
		n.left = n.left.insert(add)
	}
	return n.update()
}

// split returns the nodes before the range of id that begins at start, and the rest.
func (n *node[T]) split(start uint64, id int) (before, rest *node[T]) {
	if n == nil {
		return nil, nil
	}
	if n.before(start, id) {
		n.right, rest = n.right.split(start, id)
		return n.update(), rest
	}
	before, n.left = n.left.split(start, id)
	return before, n.update()
}

func (n *node[T]) remove(start uint64, id int) *node[T] {
	switch {
	case n == nil:
		return nil
	case n.Start == start && n.id == id:
		return join(n.left, n.right)
	case n.before(start, id):
		n.right = n.right.remove(start, id)
	default:
		n.left = n.left.remove(start, id)
	}
	return n.update()
}

// join makes one tree of two. All nodes of a come before those of b.
func join[T any](a, b *node[T]) *node[T] {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.priority > b.priority:
		a.right = join(a.right, b)
		return a.update()
	default:
		b.left = join(a, b.left)
		return b.update()
	}
}

func (n *node[T]) update() *node[T] {
	n.maxEnd = n.End
	for _, child := range []*node[T]{n.left, n.right} {
		if child != nil {
			n.maxEnd = max(n.maxEnd, child.maxEnd)
		}
	}
	return n
}

// scatter makes a priority from the id and the start that identify a range. Clients
// cannot choose an id, so they cannot make the tree deep.
func scatter(id, start uint64) uint64 {
	high, low := bits.Mul64(id^0x9e3779b97f4a7c15, start^0xd1342543de82ef95)
	high2, low2 := bits.Mul64(high^low^0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9)
	return high2 ^ low2
}
