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

// Package testing has what tests of controllers on a ring share.
package testing

import (
	"sync"

	"k8s.io/apimachinery/pkg/hashkey"
)

// Gate is open for the keys of its ranges, and counts the work that passes.
type Gate struct {
	lock sync.Mutex
	open hashkey.Ranges
	// inside is the work that goes on, entered all that has begun, turnedAway all that was not
	// let in.
	inside, entered, turnedAway int
	// OnEnter, if set, is called first in each Enter.
	OnEnter func()
}

// Set opens the gate for exactly these keys.
func (g *Gate) Set(open hashkey.Ranges) {
	g.lock.Lock()
	defer g.lock.Unlock()
	g.open = open
}

// Enter implements ring.Gate.
func (g *Gate) Enter(key int64) (leave func(), ok bool) {
	if g.OnEnter != nil {
		g.OnEnter()
	}
	g.lock.Lock()
	defer g.lock.Unlock()
	if !g.open.Contains(key) {
		g.turnedAway++
		return nil, false
	}
	g.entered++
	g.inside++
	return func() {
		g.lock.Lock()
		defer g.lock.Unlock()
		g.inside--
	}, true
}

// Open returns what the gate is open for.
func (g *Gate) Open() hashkey.Ranges {
	g.lock.Lock()
	defer g.lock.Unlock()
	return g.open
}

// Serves implements ring.Gate.
func (g *Gate) Serves(key int64) bool {
	g.lock.Lock()
	defer g.lock.Unlock()
	return g.open.Contains(key)
}

// ServesAll implements ring.Gate.
func (g *Gate) ServesAll() bool {
	g.lock.Lock()
	defer g.lock.Unlock()
	return g.open.Covers(hashkey.All())
}

// Count returns how much work goes on, has begun, and was turned away.
func (g *Gate) Count() (inside, entered, turnedAway int) {
	g.lock.Lock()
	defer g.lock.Unlock()
	return g.inside, g.entered, g.turnedAway
}

// Around returns the range that has only this key.
func Around(key int64) hashkey.Ranges {
	return hashkey.NewRanges(hashkey.Range{Start: uint64(key), End: uint64(key) + 1})
}
