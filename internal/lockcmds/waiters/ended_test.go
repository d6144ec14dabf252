package waiters

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/endings"
	"github.com/lockproxy/lockproxy/internal/lockcmds/slowlog"
	"github.com/lockproxy/lockproxy/internal/resp"
)

func TestSlowWaitsAndHoldsAreLogged(t *testing.T) {
	w := newWorld(t)
	w.limits.Slow = slowlog.Settings{Wait: time.Second, Hold: 3 * time.Second, Len: 10}
	a := w.client(1)
	a.sends("LOCK k OWNER me")
	a.answered(grantOfFence(7), nil)
	late, brief := w.waits(2, "LOCK k WAIT 5000"), w.waits(3, "FAIRLOCK k WAIT 900")
	other := w.waits(4, "LOCK other OWNER x WAIT 60000")
	w.pass(4 * time.Second)
	w.holds.End(1)
	w.x.Left(1)
	w.pass(2 * time.Second)
	late.got("(nil)")
	brief.got("(nil)")
	w.x.Unblock(4, true)
	w.work()
	other.got("-UNBLOCKED client unblocked via CLIENT UNBLOCK")
	slow := w.holds.Told[0].(*slowlog.Log)
	start := time.Unix(1000, 0)
	want := []slowlog.Entry{
		{ID: 2, Ending: endings.Ending{
			At: start.Add(6 * time.Second), Kind: endings.Wait, Key: "other", By: endings.Party{Owner: "x"}, Took: 6 * time.Second, Outcome: "error",
			Behind: endings.Party{Owner: "elsewhere"},
		}},
		{ID: 1, Ending: endings.Ending{
			At: start.Add(5 * time.Second), Kind: endings.Wait, Key: "k", By: endings.Party{Owner: "u:c"}, Took: 5 * time.Second, Outcome: "timed-out",
			Behind: endings.Party{Owner: "me"},
		}},
		{ID: 0, Ending: endings.Ending{
			At: start.Add(4 * time.Second), Kind: endings.Hold, Key: "k", By: endings.Party{Owner: "me"}, Took: 4 * time.Second, Outcome: "client-gone", Fence: 7,
		}},
	}
	var got []slowlog.Entry
	for _, e := range slow.Latest(-1) {
		got = append(got, *e)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestAGrantAfterALongTimeIsASlowWait(t *testing.T) {
	w := newWorld(t)
	w.limits.Slow = slowlog.Settings{Wait: time.Second, Len: 10}
	a := w.waits(1, "LOCK k OWNER me")
	w.pass(2 * time.Second)
	w.answers = []any{grantOfFence(9)}
	w.x.Wake("k")
	w.work()
	a.got(":9")
	entries := w.holds.Told[0].(*slowlog.Log).Latest(-1)
	if len(entries) != 1 || entries[0].Outcome != "granted" || entries[0].Fence != 9 || entries[0].Took != 2*time.Second || entries[0].Behind.Owner != "elsewhere" {
		t.Errorf("%+v", entries)
	}
}

func TestNoSlowHoldOrWaitIsLoggedWithoutThresholds(t *testing.T) {
	w := newWorld(t)
	w.limits.Slow.Len = 10
	a := w.waits(1, "LOCK k WAIT 5000")
	w.pass(6 * time.Second)
	a.got("(nil)")
	b := w.client(2)
	b.sends("LOCK k")
	b.answered(resp.Value{}, contract.ErrUnsent)
	if n := w.holds.Told[0].(*slowlog.Log).Len(); n != 0 {
		t.Errorf("%d entries", n)
	}
}
