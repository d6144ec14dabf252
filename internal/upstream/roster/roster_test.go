package roster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// play has one Sentinel tell of others.
func (r *Roster) play(t *testing.T, now time.Time, from int, list ...string) (joins, leaves string) {
	t.Helper()
	var peers []Peer
	for _, word := range list {
		id, addr, _ := strings.Cut(word, "@")
		addr, down := strings.CutSuffix(addr, "!")
		peers = append(peers, Peer{id, addr, down})
	}
	in, out := r.Answered(from, fmt.Sprint("c", from), peers, now)
	return addrs(in), addrs(out)
}

func addrs(all []Member) string {
	var list []string
	for _, m := range all {
		list = append(list, m.Addr)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func TestTheRosterIsBounded(t *testing.T) {
	now := time.Now()
	r := New([]string{"a:1", "b:1"})
	var all []string
	for i := range 100 {
		all = append(all, fmt.Sprintf("x%02d@x%02d:1", i, i))
	}
	r.play(t, now, 0, all...)
	if n := len(r.members); n != 2+mostLearnt {
		t.Errorf("%d Sentinels are asked", n)
	}
	if joins, leaves := r.play(t, now.Add(silentFor), 0, all...); joins != "" || leaves != "" {
		t.Errorf("%q joins, %q leaves", joins, leaves)
	}
	// One that has not answered for long makes room. Those of the configuration stay, though one of them has never answered.
	now = now.Add(silentFor + time.Second)
	r.at(2).answered = now
	if joins, leaves := r.play(t, now, 0, "y@y:1", "z@z:1!"); joins != "y:1" || leaves != "x01:1" {
		t.Errorf("%q joins, %q leaves", joins, leaves)
	}
	// Those that are not listed any more are forgotten.
	now = now.Add(unlistedFor)
	r.at(2).answered = now
	r.play(t, now, 0)
	if got := addrs(r.members); got != "a:1 b:1 x00:1 y:1" {
		t.Errorf("then %q", got)
	}
}

func TestASentinelThatMovesIsFollowed(t *testing.T) {
	now := time.Now()
	r := New([]string{"a:1", "b:1"})
	if joins, _ := r.play(t, now, 0, "x@x:1", "c1@elsewhere:1!"); joins != "x:1" {
		t.Errorf("%q joins", joins)
	}
	now = now.Add(recent)
	if joins, _ := r.play(t, now, 0, "x@x:2"); joins != "x:2" {
		t.Errorf("%q joins", joins)
	}
	r.at(3).answered = now.Add(silentFor)
	if _, leaves := r.play(t, now.Add(unlistedFor+time.Second), 0, "x@x:2"); leaves != "x:1" {
		t.Errorf("%q leaves", leaves)
	}
	// The first one is heard at its configured address again.
	now = now.Add(unlistedFor + 2*time.Second)
	r.play(t, now, 0, "c1@elsewhere:1")
	if _, leaves := r.play(t, now, 1); leaves != "elsewhere:1" {
		t.Errorf("%q leaves", leaves)
	}
}
