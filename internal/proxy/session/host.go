package session

import (
	"github.com/lockproxy/lockproxy/internal/proxy/cluster"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// host is the session as its route over a cluster sees it. With one server nothing of this file is used.
type host struct{ *Session }

var (
	_ cluster.Host = host{}
	_ cluster.Pin  = (*pinned)(nil)
	_ keeper       = (*cluster.Parcel)(nil)
	_ route        = (*cluster.Route)(nil)
)

func (h host) Identity() upstream.Identity          { return h.ident }
func (h host) Answer(r *request, words []byte) bool { return h.answer(r, words) }

func (h host) AwaitQuiet() bool                                       { return h.awaitQuiet() }
func (h host) AwaitReply()                                            { h.wait = waitReply }
func (h host) Repeat(r *request)                                      { h.repeated, h.wait = r, waitReply }
func (h host) Present() (*upstream.Lane, upstream.Role)               { return h.lane, h.role }
func (h host) TurnTo(l *upstream.Lane, r upstream.Role)               { h.lane, h.role = l, r }
func (h host) Lane(row *command.Row, at upstream.Node) *upstream.Lane { return h.onLane(row, at) }

func (h host) Leave(l *upstream.Lane) { h.proxy.Upstream.Lanes.Leave(l) }

func (h host) TakePin(r *request, reason string) ([]byte, bool) {
	return h.takePin(r, reason, r.Policy, true)
}
func (h host) PauseOf(r *request) func(reply []byte) { return h.pauseOf(r) }
func (h host) Abandon()                              { h.abandon() }
func (h host) GiveUp()                               { h.giveUp() }
func (h host) Part()                                 { h.part() }

// Expect implements cluster.Host.
func (h host) Expect(from upstream.Connection, to reply.Handler) reply.ID {
	h.unanswered += slotCost
	return h.out.Slots.Add(from, to, 1)
}

// Hold implements cluster.Host.
func (h host) Hold(n int) reply.ID {
	h.out.Slots.Grow(1 + n)
	return h.out.Slots.Hold()
}

// Transmit implements cluster.Host.
func (h host) Transmit(by *upstream.Lane, raw []byte, at reply.ID, n int) {
	if by == nil {
		h.lose(at, n, false)
		return
	}
	h.transmit(by, raw, at, n)
}

// Pin implements cluster.Host.
func (h host) Pin() cluster.Pin {
	if h.pin == nil {
		return nil
	}
	return h.pin
}

// Patience implements cluster.Host.
func (h host) Patience() cluster.Patience {
	switch {
	case !h.proxy.Upstream.Away():
	case h.reach == unmet:
		return cluster.None
	case h.holds():
		return cluster.Endless
	}
	return cluster.Usual
}

func (p *pinned) At() upstream.Node    { return p.conn.At() }
func (p *pinned) Hopeless() bool       { return p.conn.Hopeless() }
func (p *pinned) Unwatched(spent bool) { p.tx.watching, p.spent = false, p.spent || spent }

// Send implements cluster.Pin.
func (p *pinned) Send(raw []byte, to reply.Handler, n int) {
	p.fresh = false
	p.s.forward(ordinaryRow, raw, to, n)
}

// State implements cluster.Pin.
func (p *pinned) State() cluster.PinState {
	return cluster.PinState{
		Fresh: p.fresh, Kept: p.keep, Answers: p.mode == readsReplies, Listens: p.mode == readsFrames,
		Subscribed: p.subscribed(), Channels: p.Channels+p.Patterns > 0, Watching: p.tx.watching,
	}
}

// Leave implements cluster.Pin. Nothing is outstanding.
func (p *pinned) Leave(broken bool) {
	s := p.s
	if s.pin != p || !broken && (p.keep || p.borrowed > 0) {
		return
	}
	p.spent = p.spent || broken
	if p.mode == readsFrames {
		s.readReplies()
	}
	s.returnPin()
}
