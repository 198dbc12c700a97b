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

package ringtable

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
)

func TestText(t *testing.T) {
	responsibleFor := func(n int64) options {
		return func(i *shardingv1alpha1.ControllerInstance) {
			i.Status.Weight, i.Status.Busy, i.Status.Work = n, 1, 347
			i.Status.PhaseSince = &metav1.Time{Time: now.Add(-5 * time.Second)}
			i.Spec.HolderIdentity, i.Spec.Controllers = "host-1_4711_x", []string{"replicaset-controller", "job-controller"}
			i.Status.Controllers = []shardingv1alpha1.ControllerState{{Name: "replicaset-controller", Working: true}, {Name: "job-controller", Working: true}}
		}
	}
	for _, tc := range []struct {
		name      string
		instances []*shardingv1alpha1.ControllerInstance
		width     int
		now       time.Time
		want      string
	}{{
		name: "nobody",
		now:  now,
		want: "ring workloads has no instance: nothing works on its hash keys, unless a kube-controller-manager that leads does\n",
	}, {
		name:      "one",
		instances: []*shardingv1alpha1.ControllerInstance{instance("a", key(math.MaxInt64), responsibleFor(2))},
		width:     128,
		now:       now,
		want: `
INSTANCE  PHASE   SINCE  RANGE                                  SHARE            WEIGHT  WORK  WORKS ON  PODS READY  AGE  HOST
a         Active  5s     [0000000000000000, 7fffffffffffffff]  100.0% █████████  2       35%   2/2       22/24       90s  host-1
1 instance, 1 Active: it covers all hash keys; 22 of 24 pods ready
`,
	}, {
		name: "three, and one that joins",
		instances: []*shardingv1alpha1.ControllerInstance{
			instance("c", key(math.MaxInt64), responsibleFor(1)),
			instance("b", key(3*quarter-1)),
			instance("a", key(quarter-1), responsibleFor(1)),
			instance("new", phase(shardingv1alpha1.InstanceLocked), donor("b"), next(2*quarter-1)),
		},
		width: 121,
		now:   now,
		want: `
INSTANCE  PHASE   SINCE  RANGE                                    SHARE           WEIGHT  WORK  WORKS ON  PODS READY  AGE
a         Active  5s     [0000000000000000, 1fffffffffffffff]     25.0% ██······  1       35%   2/2       2/4         90s
b         Active  -      (1fffffffffffffff, 5fffffffffffffff]     50.0% ··████··  0       0%    0/0       0/0         90s
c         Active  5s     (5fffffffffffffff, 7fffffffffffffff]     25.0% ······██  1       35%   2/2       20/20       90s
new       Locked  -      -> (1fffffffffffffff, 3fffffffffffffff]   0.0% ········  0       0%    0/0       0/0         90s
4 instances, 3 Active: they cover all hash keys; the largest weight is 1.50 times the mean; 22 of 24 pods ready
`,
	}, {
		name: "the seam, a gap, and no ages",
		instances: []*shardingv1alpha1.ControllerInstance{
			instance("a", key(quarter-1)),
			instance("b", key(3*quarter-1), cached(2*quarter, math.MaxInt64)),
			instance("c", phase(shardingv1alpha1.InstanceInit)),
		},
		width: 106,
		want: `
INSTANCE  PHASE   RANGE                                 SHARE           WEIGHT  WORK  WORKS ON  PODS READY
a         Active  (5fffffffffffffff, 1fffffffffffffff]  50.0% ██····██  0       0%    0/0       22/24
b         Active  (1fffffffffffffff, 5fffffffffffffff]  50.0% ··████··  0       0%    0/0       0/0
c         Init    -                                      0.0% ········  0       0%    0/0       0/0
3 instances, 2 Active: nothing works on 25.0% of the hash keys: (1fffffffffffffff, 3fffffffffffffff]; 22 of 24 pods ready
`,
	}} {
		t.Run(tc.name, func(t *testing.T) {
			r := of(t, tc.instances, replicaSet(1, 2, 4), replicaSet(math.MaxInt64, 20, 20))
			if got, want := r.Text(tc.width, tc.now), strings.TrimPrefix(tc.want, "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestTextOfAnotherRing(t *testing.T) {
	i := instance("a", key(math.MaxInt64))
	i.Spec.Ring = "nobody-knows"
	r, err := Of("nobody-knows", []*shardingv1alpha1.ControllerInstance{i}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text := r.Text(90, time.Time{})
	if !strings.Contains(text, "WORKS ON\n") || strings.Contains(text, "pods") {
		t.Errorf("got\n%s", text)
	}
}

func TestTextSaysWhatIsAboutToChange(t *testing.T) {
	a, b := instance("a", key(quarter), next(2*quarter)), instance("b", key(math.MaxInt64), phase(shardingv1alpha1.InstanceWait))
	b.Spec.Controllers = []string{"job-controller"}
	text := of(t, []*shardingv1alpha1.ControllerInstance{a, b}).Text(100, now)
	want := `
a: the end of its range is to move from 2000000000000000 to 4000000000000000: b gives to a
25.0% of the hash keys change hands just now: (2000000000000000, 4000000000000000]
b does not work on job-controller
`
	if !strings.HasSuffix(text, want) {
		t.Errorf("got\n%s", text)
	}
}

func TestTextSaysWhatWaits(t *testing.T) {
	a, b := instance("a", key(quarter)), instance("b", key(math.MaxInt64))
	for _, i := range []*shardingv1alpha1.ControllerInstance{a, b} {
		i.Status.Controllers = []shardingv1alpha1.ControllerState{
			{Name: "replicaset-controller", Working: true}, {Name: "job-controller", Reason: "the leader, h_1, runs it"},
		}
	}
	text := of(t, []*shardingv1alpha1.ControllerInstance{a, b}).Text(100, now)
	if !strings.HasSuffix(text, "; 0 of 0 pods ready\nwaits: job-controller: the leader, h_1, runs it\n") {
		t.Errorf("got\n%s", text)
	}
}

func TestTextMarksWhatPeopleHaveSet(t *testing.T) {
	pinned := func(k int64) options {
		return func(i *shardingv1alpha1.ControllerInstance) { i.Spec.PinnedHashKey = (*shardingv1alpha1.HashKey)(&k) }
	}
	drained := func(i *shardingv1alpha1.ControllerInstance) { i.Spec.Drained = true }
	off := func(i *shardingv1alpha1.ControllerInstance) { i.Spec.Balance = shardingv1alpha1.BalanceDisabled }
	phaseless := instance("f", drained, phase(""))
	r := of(t, []*shardingv1alpha1.ControllerInstance{
		instance("a", key(quarter), pinned(quarter)),
		// It has left the key that it was pinned to.
		instance("b", key(2*quarter), pinned(quarter), off),
		instance("c", key(math.MaxInt64), next(3*quarter), pinned(3*quarter), drained, off),
		instance("d", phase(shardingv1alpha1.InstanceInit), drained),
		phaseless,
	})
	text := r.Text(160, time.Time{})
	for _, want := range []string{
		"a         Active            [0000000000000000, 2000000000000000] pinned  ",
		"b         Active            (2000000000000000, 4000000000000000]         ",
		"c         Active (drained)  (4000000000000000, 7fffffffffffffff] pinned  ",
		"d         Init (drained)    -   ",
		"f         (drained)         -   ",
		"; balance off (by b); 0 of 0 pods ready\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "all instances are drained") {
		t.Errorf("not all are drained:\n%s", text)
	}
	if narrow := r.Text(20, time.Time{}); !strings.Contains(narrow, "[00…, 20…] pinned") {
		t.Errorf("got\n%s", narrow)
	}
}

// A ring whose instances are all drained works, but not as anybody wants it to.
func TestARingOfDrainedInstancesHasANote(t *testing.T) {
	drained := func(i *shardingv1alpha1.ControllerInstance) { i.Spec.Drained = true }
	for name, tc := range map[string]struct {
		instances []*shardingv1alpha1.ControllerInstance
		want      bool
	}{
		"nobody":   {nil, false},
		"one":      {[]*shardingv1alpha1.ControllerInstance{instance("a", key(math.MaxInt64), drained)}, true},
		"both":     {[]*shardingv1alpha1.ControllerInstance{instance("a", key(math.MaxInt64), drained), instance("b", drained)}, true},
		"one of 2": {[]*shardingv1alpha1.ControllerInstance{instance("a", key(math.MaxInt64)), instance("b", drained)}, false},
	} {
		r := of(t, tc.instances)
		text := r.Text(160, time.Time{})
		if got := len(r.Notes()) == 1; got != tc.want || strings.Contains(text, "all instances are drained: one of them owns all hash keys") != tc.want {
			t.Errorf("%s: notes %q, and\n%s", name, r.Notes(), text)
		}
		if problems := r.Problems(); len(tc.instances) > 0 && len(problems) > 0 {
			t.Errorf("%s: %q, though every key is worked on", name, problems)
		}
	}
}

// TestWidth: as the width shrinks, details go in a fixed order. Lines stay within the
// width until no detail is left to drop.
func TestWidth(t *testing.T) {
	r := of(t, []*shardingv1alpha1.ControllerInstance{instance("a", key(quarter)), instance("b", key(math.MaxInt64))})
	for _, tc := range []struct {
		width, line, bar int
		cut, host, ages  bool
	}{
		{width: 200, line: 150, bar: maxBar, host: true, ages: true},
		{width: 126, line: 126, bar: minBar, host: true, ages: true},
		{width: 125, line: 125, bar: 15, ages: true},
		{width: 118, line: 118, bar: minBar, ages: true},
		{width: 117, line: 117, bar: 29, ages: true, cut: true},
		{width: 96, line: 96, bar: minBar, ages: true, cut: true},
		{width: 95, line: 95, bar: 19, cut: true},
		{width: 84, line: 84, bar: minBar, cut: true},
		{width: 83, line: 65, cut: true},
		{width: 10, line: 65, cut: true},
	} {
		text := r.Text(tc.width, now)
		lines := strings.Split(text, "\n")
		longest := max(utf8.RuneCountInString(lines[0]), utf8.RuneCountInString(lines[1]))
		bar := strings.Count(lines[1], "█") + strings.Count(lines[1], "·")
		if cut, ages := strings.Contains(text, "…"), strings.Contains(text, "AGE"); longest != tc.line || bar != tc.bar || cut != tc.cut || ages != tc.ages || tc.host != strings.Contains(text, "HOST") {
			t.Errorf("width %d: lines of %d, bars of %d, keys cut %t, ages %t, want %+v", tc.width, longest, bar, cut, ages, tc)
		}
	}
}

// TestBarsMeet: of two ranges that cover the line, each cell is full in one bar, and
// each bar has a full cell, however small its range.
func TestBarsMeet(t *testing.T) {
	for _, split := range []int64{0, 1, quarter / 2, quarter, quarter*3/2 + 5, quarter * 3, math.MaxInt64 - 1} {
		low, high := bar(hashkey.Between(math.MaxInt64, split), 8), bar(hashkey.Between(split, math.MaxInt64), 8)
		for _, b := range []string{low, high} {
			if !strings.Contains(b, "█") {
				t.Errorf("split at %x: nothing in %s", split, b)
			}
		}
		l, h := []rune(low), []rune(high)
		for cell := range l {
			if l[cell] == '·' && h[cell] == '·' {
				t.Errorf("split at %x: cell %d is empty in %s and %s", split, cell, low, high)
			}
		}
	}
}

func TestAgeIsNeverNegative(t *testing.T) {
	i := instance("a", key(math.MaxInt64))
	i.CreationTimestamp.Time = now.Add(time.Hour)
	if text := of(t, []*shardingv1alpha1.ControllerInstance{i}).Text(130, now); !strings.Contains(text, " 0s   host:a\n") {
		t.Errorf("got\n%s", text)
	}
}

func TestWideText(t *testing.T) {
	a := instance("a", key(math.MaxInt64))
	a.Spec.HolderIdentity, a.Status.Weight, a.Status.Heaviest = "host_123_abcde", 70, 30
	a.Status.Heap = &shardingv1alpha1.ProcessHeap{LiveBytes: 5 << 20}
	b := instance("b", key(1<<62))
	text := of(t, []*shardingv1alpha1.ControllerInstance{a, b}).Wide(time.Time{})
	for _, want := range []string{"WEIGHT  HEAVIEST KEY  HEAP  WORK", " 70      30            5Mi   0% ", " host_123_abcde\n", " 0       0             -     0% "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
