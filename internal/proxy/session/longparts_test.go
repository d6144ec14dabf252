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
func (c *twoServers) divided(keys []string) *longParts {
	raw := resp.AppendCommand(nil, append([]string{"DEL"}, keys...)...)
	args := resp.Split(raw, nil)
	var p *longParts
	c.locked(func() {
		c.s.wait = waitReply
		r := c.s.newRequest(c.table.Lookup(args[0]), raw)
		r.Args = args
		r.Look()
		r.Keep()
		p = &longParts{shards: c.way, of: r, at: c.s.out.Slots.Hold()}
	})
	p.cut()
	return p
}

// next has the next slice sent. more: there is another one.
func (p *longParts) next() (more bool) {
	p.s.mu.Lock()
	defer p.s.unlock()
	p.send()
	more = len(p.s.afterUnlock) > 0
	p.s.afterUnlock = nil
	return more
}

// A long command sends nothing while others wait, and a slice of its parts in each of its turns.
func TestALongCommandIsSentInSlices(t *testing.T) {
	inFrontOfTwo(t, func(t *testing.T, c *twoServers) {
		var keys []string
		for i := range 3 * sliceParts {
			keys = append(keys, fmt.Sprint("k", i))
		}
		parts := c.divided(keys)
		all, turns := 0, 0
		for more := true; more; {
			turns++
			more = parts.next()
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
			keys = append(keys, fmt.Sprint(strings.Repeat("x", sliceBytes), i))
		}
		parts := c.divided(keys)
		for turn := 1; turn <= 4; turn++ {
			if more := parts.next(); len(c.take()) != 1 || more != (turn < 4) {
				t.Fatalf("turn %d sends more than one part, or another turn follows: %v", turn, more)
			}
		}
	})
}

// All keys may be in one slot: then there is one part.
func TestALongCommandMayHaveOnePart(t *testing.T) {
	inFrontOfTwo(t, func(t *testing.T, c *twoServers) {
		more := c.divided([]string{"{a}1", "{a}2", "{a}3"}).next()
		list := c.take()
		if len(list) != 1 || more {
			t.Fatalf("%d parts", len(list))
		}
		c.answer(list[0], ":3\r\n")
		c.clientGot(":3\r\n")
	})
}
