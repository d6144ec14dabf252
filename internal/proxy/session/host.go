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

func (h host) Due() int { return h.out.Slots.Due() }

func (h host) Forget(place reply.ID) { h.out.Slots.Answer(place, 1) }

func (h host) Unsent(place reply.ID)                                  { h.lose(place, 1, false) }
func (h host) AwaitQuiet() bool                                       { return h.awaitQuiet() }
func (h host) AwaitReply()                                            { h.wait = waitReply }
func (h host) Repeat(r *request)                                      { h.repeated, h.wait = r, waitReply }
func (h host) Present() (*upstream.Lane, upstream.Role)               { return h.lane, h.role }
func (h host) TurnTo(l *upstream.Lane, r upstream.Role)               { h.lane, h.role = l, r }
func (h host) Lane(row *command.Row, at upstream.Node) *upstream.Lane { return h.onLane(row, at) }

func (h host) Leave(l *upstream.Lane) { h.proxy.Upstream.Lanes.Leave(l) }

func (h host) Transmit(by *upstream.Lane, raw []byte, at reply.ID, n int) { h.transmit(by, raw, at, n) }

func (h host) TakePin(r *request, reason string) ([]byte, bool) {
	return h.claimPin(r, reason, r.Policy)
}
func (h host) PauseOf(r *request) func(reply []byte) { return h.pauseOf(r) }
func (h host) Allowance(bytes int) int               { return h.proxy.Budget.Allowance(bytes) }
func (h host) Hopeful() bool                         { return !h.stranded() }
func (h host) NotCarriedOut(r *request) bool         { return h.notCarriedOut(r) }
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

// Pause implements cluster.Host: what is paused for has no answer yet.
func (h host) Pause() {
	if h.wait == waitNone || h.wait == waitTurn {
		h.wait = waitQuiet
	}
}

// Pin implements cluster.Host.
func (h host) Pin() cluster.Pin {
	if h.pin == nil {
		return nil
	}
	return h.pin
}

// Forward implements cluster.Host.
func (h host) Forward(raw []byte, to reply.Handler, n int) {
	h.pin.fresh = false
	h.forward(ordinaryRow, raw, to, n)
}

// Endures implements cluster.Host: the session keeps its locks.
func (h host) Endures() bool { return h.holds() && h.proxy.Upstream.Away() }

func (p *pinned) At() upstream.Node    { return p.conn.At() }
func (p *pinned) Hopeless() bool       { return p.conn.Hopeless() }
func (p *pinned) Unwatched(spent bool) { p.tx.watching, p.spent = false, p.spent || spent }

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
