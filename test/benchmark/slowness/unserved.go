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

package main

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/client-go/tools/ring/member"
)

// serving is what a process works on: of each controller, the keys that its door is open for.
type serving map[string]hashkey.Ranges

// allControllers stands for all controllers of a stock process, which works on all of them or none.
const allControllers = "all"

// everythingOf returns what a process works on that works on all keys of these controllers.
func everythingOf(controllers []string) serving {
	s := serving{}
	for _, c := range controllers {
		s[c] = hashkey.All()
	}
	return s
}

// servingOf returns what a process works on by what it shows of its rings.
func servingOf(shown member.Process) (serving, error) {
	s := serving{}
	for _, instance := range shown.Instances {
		for _, door := range instance.Doors {
			open, err := parseRanges(door.Open)
			if err != nil {
				return nil, err
			}
			if instance.BelievesForSeconds == 0 || instance.Barred != "" {
				open = nil
			}
			s[instance.Ring+"/"+door.Controller] = open
		}
	}
	return s, nil
}

// parseRanges is the reverse of Ranges.String.
func parseRanges(text string) (hashkey.Ranges, error) {
	if text == (hashkey.Ranges{}).String() {
		return nil, nil
	}
	var all hashkey.Ranges
	for part := range strings.SplitSeq(strings.TrimSuffix(text, "]"), "], ") {
		bounds := strings.Split(part, ", ")
		if len(bounds) != 2 || len(bounds[0]) < 2 {
			return nil, fmt.Errorf("%q is not a range of hash keys", part)
		}
		first, err := strconv.ParseInt(bounds[0][1:], 16, 64)
		if err != nil {
			return nil, err
		}
		last, err := strconv.ParseInt(bounds[1], 16, 64)
		if err != nil {
			return nil, err
		}
		if bounds[0][0] == '[' {
			all = all.Union(hashkey.NewRanges(hashkey.Range{Start: uint64(first), End: uint64(last) + 1}))
		} else {
			all = all.Union(hashkey.Between(first, last))
		}
	}
	return all, nil
}

// unserved adds up the keys that no process works on, over time.
type unserved struct {
	lock sync.Mutex
	// controllers are those that count, all alike.
	controllers []string
	processes   map[string]serving
	since       time.Time
	// share of the keys has no worker since then, as a mean over the controllers.
	share float64
	total time.Duration
	// wholeSince is when every key last got a worker.
	wholeSince time.Time
}

func newUnserved(now time.Time, controllers []string) *unserved {
	return &unserved{controllers: controllers, processes: map[string]serving{}, since: now, share: 1}
}

// set says what a process works on from now on; nil: nothing.
func (u *unserved) set(now time.Time, process string, s serving) {
	u.lock.Lock()
	defer u.lock.Unlock()
	u.advanceLocked(now)
	u.processes[process] = s
	was := u.share
	u.share = 0
	for _, c := range u.controllers {
		var served hashkey.Ranges
		for _, s := range u.processes {
			served = served.Union(s[c])
		}
		u.share += (1 - float64(served.Width())/float64(hashkey.Limit)) / float64(len(u.controllers))
	}
	if was > 0 && u.share == 0 {
		u.wholeSince = now
	}
}

func (u *unserved) advanceLocked(now time.Time) {
	if now.After(u.since) {
		u.total += time.Duration(u.share * float64(now.Sub(u.since)))
		u.since = now
	}
}

// until returns for how long keys had no worker up to now: a second is all keys for a second, or a
// third of them for three.
func (u *unserved) until(now time.Time) time.Duration {
	u.lock.Lock()
	defer u.lock.Unlock()
	u.advanceLocked(now)
	return u.total
}

// whole says whether every key has a worker, and since when.
func (u *unserved) whole() (since time.Time, whole bool) {
	u.lock.Lock()
	defer u.lock.Unlock()
	return u.wholeSince, u.share == 0
}
