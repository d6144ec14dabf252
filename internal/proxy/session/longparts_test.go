package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology/clustertest"
)

// divided begins a long DEL. The test gives it its turns.
func (c *twoServers) divided(keys []string) {
	c.turns = true
	c.ask(resp.AppendCommand(nil, append([]string{"DEL"}, keys...)...))
	if c.aside == nil {
		c.t.Fatal("it is not divided aside")
	}
}

// turn has the next slice sent. more: there is another one.
func (c *twoServers) turn() (more bool) {
	work := c.aside
	c.aside = nil
	c.locked(work())
	return c.aside != nil
}

const long, slice = 2048, 512 // arguments, parts

// A long command sends nothing while others wait, and a slice of its parts in each of its turns.
func TestALongCommandIsSentInSlices(t *testing.T) {
	inFrontOfTwo(t, func(t *testing.T, c *twoServers) {
		var keys []string
		for i := range long {
			keys = append(keys, fmt.Sprint("k", i))
		}
		c.divided(keys)
		all, turns := 0, 0
		for more := true; more; {
			turns++
			more = c.turn()
			sent := c.take()
			if len(sent) == 0 || len(sent) > slice {
				t.Fatalf("turn %d: %d parts are sent", turns, len(sent))
			}
			if turns == 2 { // slots may move meanwhile
				c.view = clustertest.Split(t, hashslot.Count/4)
			}
			for _, to := range sent {
				args := resp.Split([]byte(to.raw), nil)
				n := len(args) - 1
				all += n
				slot := hashslot.Of(args[1])
				if at := c.way.OwnerOf(slot); at != to.at {
					t.Fatalf("a part of slot %d is sent to %s, not to %s", slot, to.at, at)
				}
				c.answer(to, fmt.Sprintf(":%d\r\n", n))
			}
		}
		if want := fmt.Sprintf(":%d\r\n", len(keys)); turns < 3 || all != len(keys) || c.got.String() != want {
			t.Errorf("%d turns, %d keys, reply %q, want %q", turns, all, c.got.String(), want)
		}
	})
}

func TestALongCommandOfLargePartsHasMoreTurns(t *testing.T) {
	inFrontOfTwo(t, func(t *testing.T, c *twoServers) {
		var keys []string
		for i := range 4 {
			keys = append(keys, fmt.Sprint(strings.Repeat("x", 1<<20), i))
		}
		for i := range long {
			keys = append(keys, fmt.Sprint("{a}", i)) // one part
		}
		c.divided(keys)
		for turn := 1; turn <= 5; turn++ {
			if more := c.turn(); len(c.take()) != 1 || more != (turn < 5) {
				t.Fatalf("turn %d sends more than one part, or another turn follows: %v", turn, more)
			}
		}
	})
}

// All keys may be in one slot: then there is one part.
func TestALongCommandMayHaveOnePart(t *testing.T) {
	inFrontOfTwo(t, func(t *testing.T, c *twoServers) {
		var keys []string
		for i := range long {
			keys = append(keys, fmt.Sprint("{a}", i))
		}
		c.divided(keys)
		more := c.turn()
		list := c.take()
		if len(list) != 1 || more {
			t.Fatalf("%d parts", len(list))
		}
		c.answer(list[0], ":3\r\n")
		c.clientGot(":3\r\n")
	})
}
