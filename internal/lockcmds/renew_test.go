package lockcmds

import (
	"context"
	"slices"
	"testing"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

// rights is a connection that may renew all locks but those of one owner.
type rights struct {
	redislink.Node
	refused string
	with    resp.Value
	batches int
}

func (n *rights) Eval(_ context.Context, _ redislink.Script, keys, args []string) (resp.Value, error) {
	n.batches++
	if slices.Contains(args, n.refused) {
		return n.with, nil
	}
	v := resp.Value{Kind: resp.Array}
	for i := range keys {
		held := int64(1)
		if args[4*i] == "gone" {
			held = 0
		}
		v.Elems = append(v.Elems, resp.Value{Kind: resp.Integer, Int: held})
	}
	return v, nil
}

// renewalFor is a renewal of the hold of that owner.
func renewalFor(owner string) watchdog.Renewal {
	return watchdog.Renewal{Of: &watchedHold{Hold: table.Hold{Key: table.Key{Lock: "k", Owner: owner}}}}
}

// A refusal of one lock must not cost the others their leases. A state that passes is asked about once.
func TestABatchThatIsRefusedIsRenewedInHalves(t *testing.T) {
	batch := make([]watchdog.Renewal, 8)
	for i := range batch {
		batch[i] = renewalFor("o")
	}
	batch[2], batch[5] = renewalFor("gone"), renewalFor("refused")
	for _, c := range []struct {
		with    string
		halves  bool
		batches int
	}{
		{"NOPERM no", true, 7},
		{"TRYAGAIN the slot is being moved", true, 7},
		{"LOADING soon", false, 1},
	} {
		w := newCallWorld(t)
		by := &rights{refused: "refused", with: locktest.Refusal(c.with)}
		own := scriptRunner{Topology: only{w, by}}
		verdicts, err := own.Renew(t.Context(), watchdog.Group{By: by, Kind: exclusive{}}, batch)
		if (err == nil) != c.halves || by.batches != c.batches {
			t.Errorf("%s: %v after %d batches, want %d", c.with, err, by.batches, c.batches)
		}
		for i, v := range verdicts {
			want := watchdog.Renewed
			switch i {
			case 2:
				want = watchdog.Gone
			case 5:
				want = 0 // tried again
			}
			if v != want {
				t.Errorf("%s: verdict %d on lock %d, want %d", c.with, v, i, want)
			}
		}
	}
}

// only is a topology of one connection.
type only struct {
	redislink.Topology
	node redislink.Node
}

func (o only) Node(string) redislink.Node { return o.node }

func TestAnAnswerOfAnotherLengthIsNoVerdict(t *testing.T) {
	w := newCallWorld(t)
	w.Own.Answers = []any{locktest.Numbers(1)}
	of := watchdog.Group{By: w.Own, Kind: exclusive{}}
	batch := []watchdog.Renewal{renewalFor("o"), renewalFor("o")}
	if _, err := w.calls.Client.Renew(t.Context(), of, batch); err == nil {
		t.Error("one answer for two renewals")
	}
	w.Own.Answers = []any{contract.ErrInDoubt}
	if _, err := w.calls.Client.Renew(t.Context(), of, batch); err == nil {
		t.Error("a lost answer is no error")
	}
}
