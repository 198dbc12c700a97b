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

package ring

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/hashkey"
)

// dayScene is what happens in a part of the day.
type dayScene struct {
	name   string
	length time.Duration
	quiet  bool
	// begin starts what is to happen; what it starts ends before the phase does.
	begin func(*day)
}

// during has f happen so many times, at about equal intervals in the first part of the phase.
func (d *day) during(part float64, times int, f func(i int)) {
	length := time.Duration(part * float64(d.phase.length))
	for i := range times {
		d.at(d.now+time.Duration(i)*length/time.Duration(times), func() { f(i) })
	}
}

// die has a process crash. Another one begins in its place after a while.
func (d *day) die(p *simulatedProcess, pause time.Duration) {
	host := Place(p.holder)
	d.phase.deaths++
	p.crash()
	d.after(pause, func() { d.start(host) })
}

func (d *day) pauseBetween(least, most time.Duration) time.Duration {
	return least + time.Duration(d.chance.Int63n(int64(most-least)))
}

// weather has so many things go wrong in the first four fifths of the phase.
func (d *day) weather(times int) {
	d.during(0.8, times, func(int) {
		kind, at, length := d.chance.Intn(20), d.chance.Float64(), d.chance.Float64()
		if len(d.alive) == 0 {
			return
		}
		p := d.alive[int(at*float64(len(d.alive)))]
		if p.machine == nil || p.leaving {
			return
		}
		during := func(most time.Duration) time.Duration {
			return 200*time.Millisecond + time.Duration(length*float64(most))
		}
		switch {
		case kind < 8:
			p.pause(during(40 * time.Second))
		case kind < 14:
			p.turnDeaf(during(30 * time.Second))
		case kind < 19:
			// It is cut off from the registry, but works on.
			if p.blocked == 0 {
				d.note("%s cannot renew for a while", p.name)
				p.hold()
				d.after(during(15*time.Second), func() {
					if !p.ended {
						p.release()
					}
				})
			}
		default:
			d.stall(during(8 * time.Second))
		}
	})
}

// dayScenes are those of a day.
func dayScenes(s size) []dayScene {
	minutes := func(long, short float64) time.Duration {
		if s.long {
			short = long
		}
		return time.Duration(short * float64(time.Minute))
	}
	n := s.instances
	rest := func(long, short float64) dayScene {
		return dayScene{name: "rest", length: minutes(long, short), quiet: true}
	}
	faults := max(3, n/5)
	return []dayScene{
		{name: "all start", length: minutes(10, 2), begin: func(d *day) {
			d.load(0.5)
			d.intensity = 200
			for range n / 20 {
				d.heat(1 + d.chance.Int63n(int64(s.keys/n/3)))
			}
			d.during(0.6, n, func(int) { d.start("") })
		}},
		rest(50, 30),
		{name: "the load grows", length: minutes(180, 3), begin: func(d *day) {
			d.during(0.9, 100, func(i int) {
				d.load(0.5 + 0.4*float64(i+1)/100)
				d.intensity = 200 + 300*float64(i+1)/100
			})
			d.during(0.9, 6, func(i int) {
				// The last one has a twentieth of all objects.
				d.heat(int64(s.keys) * int64(i+1) / 120)
			})
			d.weather(faults)
		}},
		rest(90, 30),
		{name: "single crashes", length: minutes(60, 3), begin: func(d *day) {
			d.during(0.9, max(3, n/40), func(int) {
				if p := d.random(); p != nil {
					d.die(p, d.pauseBetween(2*time.Second, 30*time.Second))
				}
			})
			d.weather(faults)
		}},
		rest(60, 30),
		{name: "a tenth crashes", length: minutes(10, 2), begin: func(d *day) {
			for range max(1, n/10) {
				if p := d.random(); p != nil {
					d.die(p, d.pauseBetween(10*time.Second, 60*time.Second))
				}
			}
		}},
		rest(60, 30),
		{name: "rolling upgrade", length: minutes(60, 4), begin: func(d *day) {
			old := slices.Clone(d.alive)
			d.chance.Shuffle(len(old), func(i, j int) { old[i], old[j] = old[j], old[i] })
			d.during(0.85, len(old), func(i int) {
				p := old[i]
				if p.ended || p.leaving {
					return
				}
				d.phase.leaves++
				host := Place(p.holder)
				p.leave()
				d.after(d.pauseBetween(2*time.Second, 6*time.Second), func() { d.start(host) })
			})
			d.weather(faults)
		}},
		rest(90, 30),
		{name: "drained and back", length: minutes(60, 4), begin: func(d *day) {
			set := func(p *simulatedProcess, drained bool) {
				if r, ok := d.registry.get(p.name); ok && !p.ended {
					r.Drained = drained
					d.registry.put(r, "")
				}
			}
			for range max(2, n/20) {
				if p := d.random(); p != nil {
					d.at(d.now+d.pauseBetween(0, d.phase.length/4), func() { set(p, true) })
					d.at(d.now+d.phase.length/2+d.pauseBetween(0, d.phase.length/4), func() { set(p, false) })
				}
			}
			d.weather(faults)
		}},
		rest(60, 30),
		{name: "boundaries pinned", length: minutes(60, 2), begin: func(d *day) {
			d.during(0.5, max(2, n/50), func(int) {
				at, to := d.chance.Float64(), d.chance.Float64()
				g := d.registry
				if len(g.ring) < 3 {
					return
				}
				i := int(at * float64(len(g.ring)))
				between := hashkey.Between(*g.owner(i - 1).Key, *g.owner(i + 1).Key)
				key := int64((uint64(*g.owner(i - 1).Key) + 1 + uint64(to*float64(between.Width()))) & (hashkey.Limit - 1))
				r, _ := g.get(g.owner(i).Name)
				d.note("a person moves the boundary of %s to %s", r.Name, hashkey.Format(key))
				r.Next, r.PinnedKey = &key, &key
				g.put(r, "person")
			})
		}},
		rest(60, 30),
		{name: "pins released", length: minutes(10, 1), begin: func(d *day) {
			for _, r := range slices.Clone(d.registry.records) {
				if r.PinnedKey != nil {
					released := *r
					released.PinnedKey = nil
					d.registry.put(released, "")
				}
			}
		}},
		rest(60, 30),
		{name: "balance off", length: minutes(60, 2), begin: func(d *day) {
			if p := d.random(); p != nil {
				r, _ := d.registry.get(p.name)
				r.BalanceOff = true
				d.registry.put(r, "")
			}
			d.during(0.9, 10, func(i int) {
				d.cool(0.1)
				d.heat(int64(s.keys) / int64(n) * int64(i+1) / 4)
			})
		}},
		{name: "balance on", length: minutes(10, 1), begin: func(d *day) {
			for _, r := range slices.Clone(d.registry.records) {
				if r.BalanceOff {
					on := *r
					on.BalanceOff = false
					d.registry.put(on, "")
				}
			}
		}},
		rest(90, 60),
		{name: "storm", length: minutes(60, 3), begin: func(d *day) {
			d.during(0.8, max(3, n/40), func(int) {
				if p := d.random(); p != nil {
					d.die(p, d.pauseBetween(2*time.Second, 30*time.Second))
				}
			})
			d.weather(10 * faults)
		}},
		rest(90, 30),
		{name: "evening", length: minutes(120, 3), begin: func(d *day) {
			d.during(0.9, 100, func(i int) {
				d.load(0.9 - 0.6*float64(i+1)/100)
				d.intensity = 500 - 400*float64(i+1)/100
			})
			d.during(0.9, n/4, func(int) {
				if p := d.random(); p != nil {
					d.phase.leaves++
					p.leave()
				}
			})
			d.during(0.9, 4, func(int) { d.cool(0.4) })
			d.weather(faults)
		}},
		rest(90, 30),
	}
}
