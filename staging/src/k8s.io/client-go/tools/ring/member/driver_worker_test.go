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

package member

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/hashkey"
)

// workTimeout is how long a worker waits for an answer.
const workTimeout = 10 * time.Second

// work is what a worker does.
func (p *process) work(ctx context.Context, controller string, d *dice) {
	for {
		select {
		case <-time.After(p.world.workPause(d)):
		case <-p.wanted[controller]:
		case <-ctx.Done():
			return
		case <-p.killed:
			return
		}
		p.thaw()
		if what, ok := p.world.nextTask(controller, d); ok && p.claim(what) {
			if leave, ok := p.gate.For(controller).Enter(what.key); ok {
				p.workOn(ctx, what, d)
				leave()
			}
			p.unclaim(what)
		}
	}
}

// claim keeps two workers of a process off one task, as a queue does.
func (p *process) claim(what task) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.claimed[what] {
		return false
	}
	p.claimed[what] = true
	return true
}

func (p *process) unclaim(what task) {
	p.lock.Lock()
	defer p.lock.Unlock()
	delete(p.claimed, what)
}

// claims says whether one of its workers has a task.
func (p *process) claims(what task) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.claimed[what]
}

// workOn writes once or twice.
func (p *process) workOn(ctx context.Context, what task, d *dice) {
	w := p.world
	self, _ := p.gate.identity()
	w.begin(p, self, what)
	defer w.finish(p, what)
	if stuck := w.stuck.Load(); stuck != nil && *stuck == what {
		w.chronicle.note(hashkey.Between(what.key-1, what.key), "%v is stuck on %v", p, what)
		select {
		case <-w.calm:
		case <-p.killed:
		}
		return
	}
	time.Sleep(d.upTo(5 * time.Millisecond))
	for range 1 + d.below(2) {
		p.write(ctx, what, d)
	}
}

// write sends one write of a worker, as the transport of its client does.
func (p *process) write(ctx context.Context, what task, d *dice) {
	self, limited, end, err := p.gate.admit(ctx)
	if err != nil {
		return
	}
	defer end()
	limited, cancel := context.WithTimeout(limited, workTimeout)
	defer cancel()
	p.thaw()
	f := p.world.network.flight(p, d)
	if f.troubled {
		p.isLate(what, 1)
		defer p.isLate(what, -1)
	}
	_, _ = carry(limited, p, f, &connection{}, func() (bool, error) {
		p.world.arrive(self, what)
		return true, nil
	})
}

// isLate counts the writes under way of a task that fare badly.
func (p *process) isLate(what task, n int) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.late[what] += n
}

// drainsLate says whether a write that fares badly is under way where the process works no more.
func (p *process) drainsLate() bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	for what, n := range p.late {
		if n > 0 && !p.gate.For(what.controller).Serves(what.key) {
			return true
		}
	}
	return false
}
