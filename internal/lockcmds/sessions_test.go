package lockcmds

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
)

func TestASessionIsKnownWhileItHasAHold(t *testing.T) {
	w, a, b := newLockWorld(t), newClient(1), newClient(2)
	h := w.acquire(t, a, "", nil)
	w.begin(&b.caller, lock, "")
	for _, c := range []struct {
		session     uint64
		lock, owner string
		keeps       bool
	}{{1, lock, "", true}, {1, lock, "me", false}, {1, "other", "", false}, {2, lock, "", false}, {2, lock, h.Owner, false}, {3, lock, "", false}} {
		if got := w.Keeps(c.session, grammar.Command{Verb: grammar.Unlock, Key: c.lock, Owner: c.owner}); got != c.keeps {
			t.Errorf("session %d keeps %s of %q: %v", c.session, c.lock, c.owner, got)
		}
	}
	if w.Leave(1) || !w.Leave(2) || !w.Leave(3) {
		t.Error("the wrong session has left")
	}
	w.force(h.Key, fence)
	if !w.Leave(1) || !w.noWaiter() {
		t.Error("a session without holds is known")
	}
}

func TestThereIsOneQuestionAtATimeAboutAGrant(t *testing.T) {
	w := newLockWorld(t)
	h := w.acquire(t, newClient(1), "", nil)
	begins := func(fence int64) bool {
		_, ok := w.beginLook(lock, fence)
		return ok
	}
	if begins(fence+1) || !begins(fence) || begins(fence) || begins(fence) {
		t.Error("not one question")
	}
	if !w.endLook(h.Key, fence) || w.endLook(h.Key, fence) {
		t.Error("the reasons that have come meanwhile are not one question more")
	}
	if !begins(fence) || w.endLook(h.Key, fence+1) {
		t.Error("no question behind the answer")
	}
	w.force(h.Key, fence)
	if w.endLook(h.Key, fence) || begins(fence) {
		t.Error("a question about a hold that has ended")
	}
}
