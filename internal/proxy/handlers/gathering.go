package handlers

import (
	"github.com/lockproxy/lockproxy/internal/proxy/parts"
	"github.com/lockproxy/lockproxy/internal/proxy/replies"
)

// A Gathering collects the replies to the parts of a command. The session waits for a reply meanwhile.
type Gathering struct {
	session Session
	at      replies.ID // of the joined reply
	muted   bool       // the client does not see it
	join    parts.Join
	edit    func([]byte) []byte // of the joined reply; nil: it stays
	replies [][]byte
	left    int // parts without a reply
	held    int // bytes
}

// Gather begins a command of n parts. The joined reply has a slot at.
func Gather(s Session, at replies.ID, muted bool, n int, join parts.Join) *Gathering {
	return &Gathering{session: s, at: at, muted: muted, join: join, replies: make([][]byte, n), left: n}
}

// Edit has f change the joined reply.
func (g *Gathering) Edit(f func([]byte) []byte) { g.edit = f }

// Part is the handler of the reply to one part.
func (g *Gathering) Part(i int) Handler { return &part{g, i} }

type part struct {
	*Gathering
	i int
}

// Take is Handler.
func (p *part) Take(_ replies.ID, b []byte, n int, more bool) int {
	p.replies[p.i] = append(p.replies[p.i], b...)
	p.held += len(b)
	p.session.Held(p.held)
	if !more {
		p.came()
	}
	return n
}

// Lost is Handler.
func (p *part) Lost(replies.ID, int, bool) {
	p.replies[p.i] = append(p.replies[p.i][:0], p.session.Refusal()...)
	p.came()
}

// came counts replies; with the last one the command is answered.
func (g *Gathering) came() {
	if g.left--; g.left > 0 {
		return
	}
	s := g.session
	s.Held(0)
	if !s.Gone() {
		reply := g.join(g.replies)
		if g.edit != nil {
			reply = g.edit(reply)
		}
		if !g.muted {
			s.Put(g.at, reply, false)
		}
		s.Resume()
	}
	s.Answered(g.at, 1)
}

var _ Handler = (*part)(nil)
