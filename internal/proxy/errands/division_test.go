package errands

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology/clustertest"
)

// divided begins the division of a DEL.
func divided(c *client, keys []string) {
	args := append([]string{"DEL"}, keys...)
	raw := resp.AppendCommand(nil, args...)
	c.args = resp.Split(raw, c.args[:0])
	c.errands.Look(c.table.Lookup(c.args[0]), c.args)
	c.errands.Divide("del", raw, c.slots.Hold(), false)
}

// next does what has been put aside last.
func (c *client) next() {
	work := c.aside
	c.aside = nil
	for _, f := range work {
		f()()
	}
}

// A division sends nothing while others wait, and a slice of its parts in each of its turns.
func TestADivisionIsSentInSlices(t *testing.T) {
	var keys []string
	for i := range 3 * sliceParts {
		keys = append(keys, fmt.Sprint("k", i))
	}
	c := newClient(t)
	divided(c, keys)
	all, turns := 0, 0
	for len(c.aside) > 0 {
		if turns++; len(c.sent) > 0 {
			t.Fatal("it is sent without a turn")
		}
		c.errands.Slot, c.errands.Target = 7, "b" // the session has sent something else
		c.next()
		slice := c.take()
		if len(slice) == 0 || len(slice) > sliceParts {
			t.Fatalf("turn %d: %d parts are sent", turns, len(slice))
		}
		if turns == 2 { // slots may move meanwhile
			c.view = clustertest.Split(t, hashslot.Count/4)
		}
		for _, to := range slice {
			args := resp.Split([]byte(to.raw), nil)
			n := len(args) - 1
			all += n
			slot := hashslot.Of(args[1])
			if at := c.errands.Owner(slot); at != to.at {
				t.Fatalf("a part of slot %d is sent to %s, not to %s", slot, to.at, at)
			}
			c.answer(to, fmt.Sprintf(":%d\r\n", n))
		}
	}
	if want := fmt.Sprintf(":%d\r\n", len(keys)); turns < 3 || all != len(keys) || c.got.String() != want {
		t.Errorf("%d turns, %d keys, reply %q, want %q", turns, all, c.got.String(), want)
	}
}

func TestADivisionOfLargePartsHasMoreTurns(t *testing.T) {
	c := newClient(t)
	var keys []string
	for i := range 4 {
		keys = append(keys, fmt.Sprint(strings.Repeat("x", sliceBytes), i))
	}
	divided(c, keys)
	for turns := 1; turns <= 4; turns++ {
		if c.next(); len(c.take()) != 1 {
			t.Fatalf("turn %d sends more than one part", turns)
		}
	}
	if len(c.aside) > 0 {
		t.Error("there are more turns than parts")
	}
}

// All keys may be in one slot: then there is one part.
func TestADivisionMayHaveOnePart(t *testing.T) {
	c := newClient(t)
	divided(c, []string{"{a}1", "{a}2", "{a}3"})
	c.next()
	list := c.take()
	if len(list) != 1 || len(c.aside) > 0 {
		t.Fatalf("%d parts", len(list))
	}
	c.answer(list[0], ":3\r\n")
	if got := c.got.String(); got != ":3\r\n" {
		t.Errorf("%q", got)
	}
}
