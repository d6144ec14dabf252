package reply

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// collector is the session of one joined reply.
type collector struct {
	Session
	got  []byte
	held int

	aside []func() func()
}

func (c *collector) Gone() bool                 { return false }
func (c *collector) Put(_ ID, b []byte, _ bool) { c.got = append(c.got, b...) }
func (c *collector) Held(bytes int)             { c.held = bytes }
func (c *collector) Resume()                    {}
func (c *collector) Aside(work func() func())   { c.aside = append(c.aside, work) }
func (c *collector) Answered(ID, int)           {}
func together(replies [][]byte) []byte          { return bytes.Join(replies, nil) }
func takeAll(g *Gathering, i int, b string, pieces int) {
	p := g.Part(i)
	for ; pieces > 1; pieces-- {
		p.Take(0, []byte(b[:1]), 0, true)
		b = b[1:]
	}
	p.Take(0, []byte(b), 1, false)
}

func TestPartsAreJoinedInTheirOrder(t *testing.T) {
	words := []string{":1\r\n", "$3\r\nabc\r\n", "$5000\r\n" + strings.Repeat("x", 5000) + "\r\n", ":4\r\n", "$-1\r\n"}
	for _, order := range [][]int{{0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {2, 0, 4, 1, 3}} {
		for pieces := 1; pieces <= 3; pieces++ {
			c := &collector{}
			g := Gather(c, 1, false, len(words), together)
			for n, i := range order {
				takeAll(g, i, words[i], pieces)
				if done := n == len(order)-1; done != (len(c.got) > 0) {
					t.Fatalf("order %v: a reply after %d parts", order, n+1)
				}
			}
			if want := strings.Join(words, ""); string(c.got) != want {
				t.Errorf("order %v, %d pieces: %.60q, want %.60q", order, pieces, c.got, want)
			}
			if c.held != 0 {
				t.Errorf("%d bytes are held for ever", c.held)
			}
		}
	}
}

func TestGatheringManySmallRepliesTakesLittleSpace(t *testing.T) {
	const parts = 100
	reply := []byte("*1\r\n$4\r\nabcd\r\n")
	got := testing.AllocsPerRun(100, func() {
		c := &collector{got: make([]byte, 0, parts*len(reply))}
		g := Gather(c, 1, false, parts, func(all [][]byte) []byte { return slices.Concat(all...) })
		for i := range parts {
			g.Part(i).Take(0, reply, 1, false)
		}
	})
	if got > 8 {
		t.Errorf("%v allocations for %d parts", got, parts)
	}
}

// A client chooses how much there is to join.
func TestLongRepliesAreJoinedAside(t *testing.T) {
	for n, want := range map[int]int{heldAside: 0, heldAside + 1: 1} {
		c := &collector{}
		g := Gather(c, 1, false, 2, together)
		g.Part(0).Take(0, make([]byte, n-1), 1, false)
		g.Part(1).Take(0, []byte("x"), 1, false)
		if len(c.aside) != want || (len(c.got) == n) != (want == 0) || (c.held == n) != (want == 1) {
			t.Fatalf("%d bytes: %d are joined aside, %d are there, %d are held", n, len(c.aside), len(c.got), c.held)
		}
		for _, work := range c.aside {
			work()()
		}
		if len(c.got) != n || c.held != 0 {
			t.Errorf("%d bytes: %d are there, %d are held", n, len(c.got), c.held)
		}
	}
}
