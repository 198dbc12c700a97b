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
	"testing"
	"time"
)

func TestLedgerCountsRegistrationsAnew(t *testing.T) {
	l := newLedger()
	for _, r := range []registrant{{"a", "x"}, {"a", "y"}, {"b", "x"}, {"a", "x"}, {"a", "x"}} {
		l.registered(r.holder, r.ring)
	}
	if l.again != 2 {
		t.Errorf("got %d, want 2", l.again)
	}
}

func TestLedgerCountsLeaders(t *testing.T) {
	l := newLedger()
	for _, holder := range []string{"a", "a", "", "a", "b", "a"} {
		l.leads(holder)
	}
	if l.leaders != 3 {
		t.Errorf("got %d, want 3: a, b and a again", l.leaders)
	}
}

func TestLedgerKnowsWhenTheLastChangeWasSeen(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	l := newLedger()
	l.setWritten(at(1), "early", 2)
	l.want("early", 2)
	l.want("late", 3)
	l.setWritten(at(2), "late", 2)
	if last, all := l.last(); all {
		t.Errorf("all was seen at %v, but late was not", last)
	}
	l.setWritten(at(3), "late", 3)
	// What comes after that does not count.
	l.setWritten(at(4), "late", 4)
	l.setWritten(at(4), "early", 3)
	if last, all := l.last(); !all || !last.Equal(at(3)) {
		t.Errorf("got %v, %t; want 3 s", last, all)
	}
	l.want("early", 4)
	if _, all := l.last(); all {
		t.Error("all was seen, but the new change was not")
	}
}

func TestLedgerFindsAProcessByItsPID(t *testing.T) {
	l := newLedger()
	l.gone["host:10257_12_abc"] = time.Unix(1, 0)
	if at, ok := l.goneOf(12); !ok || !at.Equal(time.Unix(1, 0)) {
		t.Errorf("got %v, %t", at, ok)
	}
	if at, ok := l.goneOf(1); ok {
		t.Errorf("got %v for another process", at)
	}
}
