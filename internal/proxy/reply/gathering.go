package reply

// A Gathering collects the replies to the parts of a command. The session waits for a reply meanwhile.
type Gathering struct {
	session Session
	at      ID   // of the joined reply
	muted   bool // the client does not see it
	join    func(replies [][]byte) []byte
	parts   []part
	replies [][]byte
	free    []byte // space for small replies
	left    int    // parts without a reply
	held    int    // bytes
}

// Gather begins a command of n parts. The joined reply has a slot at. join may be called without the session's lock.
func Gather(s Session, at ID, muted bool, n int, join func(replies [][]byte) []byte) *Gathering {
	return &Gathering{
		session: s, at: at, muted: muted, join: join, parts: make([]part, n), replies: make([][]byte, n), left: n,
	}
}

// Part is the handler of the reply to one part.
func (g *Gathering) Part(i int) Handler {
	g.parts[i] = part{g, i}
	return &g.parts[i]
}

type part struct {
	*Gathering
	i int
}

// Take implements Handler.
func (p *part) Take(_ ID, b []byte, n int, more bool) int {
	if !more && p.replies[p.i] == nil {
		p.replies[p.i] = p.copied(b)
	} else {
		p.replies[p.i] = append(p.replies[p.i], b...)
	}
	p.held += len(b)
	p.session.Held(p.held)
	if !more {
		p.came()
	}
	return n
}

// copied is a copy of a whole reply. Replies of about its size share their space.
func (g *Gathering) copied(b []byte) []byte {
	if len(b) > cap(g.free)-len(g.free) {
		g.free = make([]byte, 0, max(len(b), min(len(b)*g.left, 4<<10)))
	}
	begin := len(g.free)
	g.free = append(g.free, b...)
	return g.free[begin:len(g.free):len(g.free)]
}

// Lost implements Handler.
func (p *part) Lost(ID, int, bool) {
	p.replies[p.i] = append(p.replies[p.i][:0], p.session.Refusal()...)
	p.came()
}

// came counts replies; with the last one the command is answered.
func (g *Gathering) came() {
	if g.left--; g.left > 0 {
		return
	}
	s := g.session
	switch {
	case s.Gone():
		s.Held(0)
		s.Answered(g.at, 1)
	case g.held > heldAside:
		s.Aside(func() func() {
			reply := g.join(g.replies)
			return func() { g.finish(reply) }
		})
	default:
		g.finish(g.join(g.replies))
	}
}

// heldAside is the number of bytes of replies that are joined at once. A client can have far more.
const heldAside = 64 << 10

// finish answers the command.
func (g *Gathering) finish(reply []byte) {
	s := g.session
	s.Held(0)
	if !g.muted {
		s.Put(g.at, reply, false)
	}
	s.Resume()
	s.Answered(g.at, 1)
}

var _ Handler = (*part)(nil)
