package locks

import (
	"testing"
	"time"
)

// synced makes an acquire one that all replicas have.
func synced(o op) op {
	o.Sync = all
	return o
}

// A primary dies at 20 ms; all that was done before 10 ms was replicated. Another one is there at 30 ms.
func TestALossExcusesOnlyWhatItMayTake(t *testing.T) {
	const ms = int64(time.Millisecond)
	died := loss{keys: []string{"a"}, sure: span{10 * ms, 11 * ms}, from: 20 * ms, seen: 30 * ms, to: 20 * ms}
	cut := died // it was cut off at 20 ms, and demoted at 60 ms
	cut.to = 60 * ms
	for _, c := range []struct {
		name    string
		loss    loss
		ops     []op
		illegal bool
	}{
		{"a grant of the last moments is lost", died, []op{
			said("a", "LOCK", 12, 13, acquired, 5), said("b", "LOCK", 31, 32, acquired, 6),
		}, false},
		{"a grant that was replicated is lost", died, []op{
			said("a", "LOCK", 5, 6, acquired, 5), said("b", "LOCK", 31, 32, acquired, 6),
		}, true},
		{"a grant with SYNC is lost", died, []op{
			synced(said("a", "LOCK", 12, 13, acquired, 5)), said("b", "LOCK", 31, 32, acquired, 6),
		}, true},
		{"a grant after the failover is lost", died, []op{
			said("a", "LOCK", 29, 31, acquired, 5), said("b", "LOCK", 32, 33, acquired, 6),
		}, true},
		{"two holders before the primary died", died, []op{
			said("a", "LOCK", 12, 13, acquired, 5), said("a", "LOCKINFO", 18, 19, mine, 5), said("b", "LOCK", 15, 16, acquired, 6),
		}, true},
		{"a grant of another lock's primary is lost", loss{keys: []string{"b"}, sure: died.sure, from: died.from, seen: died.seen, to: died.to}, []op{
			said("a", "LOCK", 12, 13, acquired, 5), said("b", "LOCK", 31, 32, acquired, 6),
		}, true},
		{"a release of the last moments is lost", died, []op{
			said("a", "LOCK", 5, 6, acquired, 5), said("a", "UNLOCK", 12, 13, released, 0), said("b", "TRYLOCK", 31, 32, busy, 0),
		}, false},
		{"a release that a grant with SYNC followed is lost", died, []op{
			said("a", "LOCK", 5, 6, acquired, 5), said("a", "UNLOCK", 12, 13, released, 0), synced(said("b", "LOCK", 14, 15, acquired, 6)),
			said("b", "UNLOCK", 31, 32, notHeld, 0),
		}, true},
		{"a re-entry of the last moments is lost, and the proxy knows it", died, []op{
			said("a", "LOCK", 5, 6, acquired, 5), said("a", "LOCK", 12, 13, acquired, 5),
			said("a", "UNLOCK", 31, 32, still, 0), said("a", "UNLOCK", 33, 34, released, 0),
		}, false},
		{"a longer lease is lost", died, []op{
			said("a", "LOCK", 5, 6, acquired, 5), said("a", "EXTENDLOCK", 15, 16, extended, 0), said("b", "LOCK", 106, 107, acquired, 6),
		}, false},
		{"a longer lease that was replicated is lost", died, []op{
			said("a", "LOCK", 0, 1, acquired, 5), said("a", "EXTENDLOCK", 8, 9, extended, 0), said("b", "LOCK", 101, 102, acquired, 6),
		}, true},
		{"both primaries grant", cut, []op{
			said("a", "LOCK", 40, 41, acquired, 5), said("b", "LOCK", 42, 43, acquired, 6),
		}, false},
		{"three holders at two primaries", cut, []op{
			said("a", "LOCK", 40, 41, acquired, 5), said("b", "LOCK", 42, 43, acquired, 6), said("c", "LOCK", 44, 45, acquired, 7),
		}, true},
		{"the old primary grants with SYNC", cut, []op{
			synced(said("a", "LOCK", 40, 41, acquired, 5)), synced(said("b", "LOCK", 42, 43, acquired, 6)),
		}, true},
		{"the old primary grants after its end", cut, []op{
			said("a", "LOCK", 61, 62, acquired, 5), said("b", "LOCK", 63, 64, acquired, 6),
		}, true},
		{"a grant with SYNC before the cut meets one of the new primary", cut, []op{
			synced(said("a", "LOCK", 12, 13, acquired, 5)), said("b", "LOCK", 63, 64, acquired, 6),
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) { judge(t, c.ops, []loss{c.loss}, c.illegal) })
	}
}
