package sentinel

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// play has one Sentinel tell of others.
func (r *sentinelSet) play(t *testing.T, now time.Time, from int, list ...string) (joins, leaves string) {
	t.Helper()
	var peers []Peer
	for _, word := range list {
		id, addr, _ := strings.Cut(word, "@")
		addr, down := strings.CutSuffix(addr, "!")
		peers = append(peers, Peer{id, addr, down})
	}
	_, in, out := r.Answered(from, fmt.Sprint("c", from), peers, now)
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
	r := newSentinelSet([]string{"a:1", "b:1"})
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
	// Those that are not listed any more are forgotten, even if they answer.
	now = now.Add(silentFor + unlistedFor + time.Second)
	r.at(2).answered = now
	r.play(t, now, 0)
	if joins, _ := r.play(t, now, 0, "y@y:1", "z@z:1!"); joins != "y:1" || addrs(r.members) != "a:1 b:1 y:1" {
		t.Errorf("%q joins; then %q", joins, addrs(r.members))
	}
}

func TestASentinelThatMovesIsFollowed(t *testing.T) {
	now := time.Now()
	r := newSentinelSet([]string{"a:1", "b:1"})
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
}

// The Sentinels of the configuration say which others there are, as long as one of them answers.
func TestSentinelsSpeakForThemselvesIfNoConfiguredOneAnswers(t *testing.T) {
	now := time.Now()
	r := newSentinelSet([]string{"a:1"})
	r.play(t, now, 0, "x@x:1", "y@y:1")
	tells := func(number int, id string, peers ...Peer) (joins string) {
		t.Helper()
		heard, in, _ := r.Answered(number, id, peers, now)
		if !heard {
			t.Errorf("%s is not heard", id)
		}
		return addrs(in)
	}
	x, y := 1, 2
	if joins := tells(x, "x", Peer{ID: "z", Addr: "z:1"}); joins != "" {
		t.Errorf("%q joins by the word of one that is not configured", joins)
	}
	for range 3 { // x and y list each other
		now = now.Add(silentFor/2 + time.Second)
		tells(x, "x", Peer{ID: "y", Addr: "y:1"})
		tells(y, "y", Peer{ID: "x", Addr: "x:1"})
	}
	if joins := tells(y, "y", Peer{ID: "z", Addr: "z:1"}); joins != "z:1" {
		t.Errorf("%q joins when the configured one is dead", joins)
	}
	if got := addrs(r.Members()); got != "a:1 x:1 y:1 z:1" {
		t.Errorf("%q are asked", got)
	}
	r.play(t, now, 0, "x@x:1")
	now = now.Add(unlistedFor + time.Second)
	r.play(t, now, 0, "x@x:1") // y and z watch another primary of the same name, and answer
	if got := addrs(r.Members()); got != "a:1 x:1" {
		t.Errorf("%q are asked when the configured one is back", got)
	}
}

func TestAnotherSentinelAtAListedAddressIsNotHeard(t *testing.T) {
	now := time.Now()
	r := newSentinelSet([]string{"a:1"})
	r.play(t, now, 0, "x@x:1")
	for _, id := range []string{"", "stranger", "c0"} {
		if heard, _, _ := r.Answered(1, id, nil, now); heard {
			t.Errorf("%q is heard at the address of x", id)
		}
	}
	if heard, _, _ := r.Answered(0, "", nil, now); !heard {
		t.Error("a configured one that does not tell its id is not heard")
	}
	r.play(t, now, 0, "y@x:1") // it has taken the place of x
	if heard, _, _ := r.Answered(1, "y", nil, now); !heard {
		t.Error("the new one is not heard")
	}
}

func TestTheConfiguredOnesVoteUntilAllAreSilent(t *testing.T) {
	now := time.Now()
	r := newSentinelSet([]string{"a:1", "b:1", "alias-of-b:1"})
	if v := r.Voters(now); v.Number != 3 || !v.Has(*r.at(0)) {
		t.Errorf("at the start: %+v", v)
	}
	r.play(t, now, 0, "x@x:1", "y@y:1")
	for number := range 3 {
		r.Answered(number, []string{"A", "B", "B"}[number], nil, now)
	}
	if v := r.Voters(now); v.Number != 2 || !v.Has(*r.at(0)) || v.Has(*r.at(3)) {
		t.Errorf("while a configured one answers: %+v", v)
	}
	if v := r.Voters(now.Add(silentFor + 1)); v.Number != 2 || v.Has(*r.at(0)) || !v.Has(*r.at(3)) {
		t.Errorf("when all are silent: %+v", v)
	}
}
