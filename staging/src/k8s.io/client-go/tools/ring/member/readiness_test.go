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
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/client-go/tools/ring"
)

// readTo takes the log to that revision.
func (t *term) readTo(revision int64) {
	t.machine.Apply(ring.Record{Name: "peer", Revision: revision, Controllers: listed})
}

// inBubble runs f with a term whose sources are slow and follow low and high, and which has
// read the log up to revision 7.
func inBubble(t *testing.T, f func(t *testing.T, ctx context.Context, i *instance, term *term)) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		i := newInstance(t, newRegistry(t)).slow()
		term := i.registered(ctx)
		term.setFollow(both)
		term.readTo(7)
		f(t, ctx, i, term)
	})
}

// answer answers the newest question of each source in turn.
func (i *instance) answer(term *term) {
	for _, s := range i.sources {
		synctest.Wait()
		asked := s.asked()
		close(asked[len(asked)-1].answer)
	}
	term.settle()
}

func TestAQuestionGoesToAllSourcesAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, i *instance, term *term) {
		for n := range i.sources {
			if term.hold(ctx, low, 7) {
				t.Fatalf("the range counts as held, and only %d sources have answered", n)
			}
			synctest.Wait()
			// Asking again while the question is under way asks nobody again.
			for _, s := range i.sources {
				if asked := s.asked(); len(asked) != 1 || !asked[0].ranges.Equal(low) {
					t.Fatalf("source %s was asked %v, want once for %v", s.name, asked, low)
				}
			}
			// The first is the last to answer.
			close(i.sources[len(i.sources)-1-n].asked()[0].answer)
		}
		term.settle()
		if !term.hold(ctx, low, 7) {
			t.Error("the range does not count as held, though all sources hold it")
		}
	})
}

func TestAnAnswerIsHandedToTheDecidingGoroutine(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, i *instance, term *term) {
		term.hold(ctx, low, 7)
		for _, s := range i.sources {
			synctest.Wait()
			close(s.asked()[0].answer)
		}
		synctest.Wait()
		if len(term.events) != 1 || len(term.readiness.known) > 0 {
			t.Errorf("%d events are posted and %v is known to be held, want one event and nothing yet", len(term.events), term.readiness.known)
		}
	})
}

func TestAQuestionCountsForAllThatTheLogHadShownWhenItWasAsked(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, i *instance, term *term) {
		term.hold(ctx, both, 5)
		i.answer(term)
		if !term.hold(ctx, low, 5) || !term.hold(ctx, both, 3) || !term.hold(ctx, both, 7) {
			t.Error("a part, an earlier revision or the one that the log was at does not count as held")
		}
		term.readTo(8)
		if !term.hold(ctx, both, 7) {
			t.Error("what was held counts no more as the log goes on")
		}
		if term.hold(ctx, low, 8) {
			t.Error("what the log showed after the question counts as held")
		}
		synctest.Wait()
		if n := len(i.sources[0].asked()); n != 2 {
			t.Errorf("%d questions were asked, want one for the later revision alone", n)
		}
	})
}

func TestAQuestionUnderWayCountsForWhatTheLogHadShownWhenItWasAsked(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, i *instance, term *term) {
		term.hold(ctx, both, 5)
		synctest.Wait()
		if term.hold(ctx, both, 7); i.sources[0].asked()[0].ctx.Err() != nil {
			t.Error("the question was cancelled")
		}
		i.answer(term)
		if !term.hold(ctx, both, 7) {
			t.Error("the answer does not count")
		}
	})
}

func TestANewQuestionCancelsTheOldOne(t *testing.T) {
	for name, tc := range map[string]struct {
		ranges   hashkey.Ranges
		revision int64
	}{"fewer keys": {hashkey.Between(hashkey.Max, 49), 7}, "a later revision": {low, 8}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context, i *instance, term *term) {
				term.hold(ctx, low, 7)
				synctest.Wait()
				old := i.sources[0].asked()[0]
				term.readTo(8)
				if term.hold(ctx, tc.ranges, tc.revision) {
					t.Error("the new question was answered at once")
				}
				if old.ctx.Err() == nil {
					t.Error("the old question is still under way")
				}
				i.answer(term)
				if !term.hold(ctx, tc.ranges, tc.revision) {
					t.Error("the new question was not answered")
				}
			})
		})
	}
}

// The answer may be on its way to the deciding goroutine as the new question is asked.
func TestTheAnswerToAnOldQuestionDoesNotCount(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, i *instance, term *term) {
		term.hold(ctx, both, 7)
		for _, s := range i.sources {
			synctest.Wait()
			close(s.asked()[0].answer)
		}
		synctest.Wait()
		if len(term.events) != 1 {
			t.Fatal("the answer is not on its way")
		}
		term.readTo(8)
		term.hold(ctx, low, 8)
		term.settle()
		if term.hold(ctx, low, 8) {
			t.Error("an answer as of revision 7 was taken for one as of 8")
		}
	})
}

func TestAnAnswerDoesNotCountForKeysThatAreNoLongerFollowed(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, i *instance, term *term) {
		term.hold(ctx, both, 7)
		term.setFollow(low)
		i.answer(term)
		if term.hold(ctx, both, 7) {
			t.Error("keys that are not followed count as held")
		}
	})
	inBubble(t, func(t *testing.T, ctx context.Context, i *instance, term *term) {
		term.hold(ctx, both, 7)
		term.setFollow(low)
		i.answer(term)
		if !term.hold(ctx, low, 7) {
			t.Error("keys that are followed still do not count as held")
		}
	})
}

func TestKeysThatWereLetGoMustBeAskedForAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, i *instance, term *term) {
		term.hold(ctx, both, 7)
		i.answer(term)
		term.setFollow(low)
		term.setFollow(both)
		if !term.hold(ctx, low, 7) {
			t.Error("keys that were followed all the time do not count as held")
		}
		if term.hold(ctx, high, 7) {
			t.Error("keys that were let go count as held")
		}
	})
}

// The range of a second neighbour that has died is filled while that of the first is ready.
func TestKeysThatAreReadyDoNotWaitForOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, i *instance, term *term) {
		term.ready(ctx, low, 7)
		synctest.Wait()
		if got := term.ready(ctx, both, 7); !got.Empty() {
			t.Errorf("%v is ready before a source has answered", got)
		}
		synctest.Wait()
		for _, s := range i.sources {
			asked := s.asked()
			if len(asked) != 2 || !asked[0].ranges.Equal(low) || asked[0].ctx.Err() != nil || !asked[1].ranges.Equal(high) {
				t.Fatalf("source %s was asked %v, want for one range after the other", s.name, asked)
			}
			close(asked[0].answer)
		}
		term.settle()
		if got := term.ready(ctx, both, 7); !got.Equal(low) {
			t.Errorf("%v is ready, want %v", got, low)
		}
	})
}

func TestKeysThatAreHeldDoNotWaitForOthersThatAreAskedForAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, i *instance, term *term) {
		for _, s := range i.sources {
			s.hold(high)
		}
		term.ready(ctx, both, 7)
		synctest.Wait()
		for _, s := range i.sources {
			for _, q := range s.asked() {
				if q.ranges.Equal(high) {
					close(q.answer)
				}
			}
		}
		term.settle()
		if got := term.ready(ctx, both, 7); !got.Equal(high) {
			t.Errorf("%v is ready, want %v", got, high)
		}
	})
}
