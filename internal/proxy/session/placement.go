package session

import (
	"bytes"
	"time"

	"lockproxy/internal/proxy/command"
	"lockproxy/internal/proxy/replies"
	"lockproxy/internal/proxy/shared"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
	"lockproxy/internal/upstream/cluster"
)

// In a cluster a transaction belongs to the server of its keys, but MULTI names none. It begins at some server. At the first key of another
// server it is discarded there, and what was queued is queued again at that other server. The same happens if the slot has moved when the client says
// EXEC: a server that refuses to queue a command carries out none of the transaction.

// placement is what a pin remembers of its transaction.
type placement struct {
	kept    [][]byte // MULTI and the commands behind it
	size    int      // their bytes
	home    int      // slot of the first key; -1: there was none
	refused cluster.Refusal
	ends    bool // EXEC or DISCARD has been sent
}

// replay is a transaction that goes on at another server.
type replay struct {
	placement
	asking upstream.Node // the server that has the keys already; AnyNode: the owner of the slot
	sent   bool
}

func (p *pinned) begin(raw []byte) {
	if p.s.view == nil {
		return
	}
	p.forgetTx()
	p.placement = placement{home: -1}
	p.keepCommand(raw)
}

func (p *pinned) keepCommand(raw []byte) {
	p.kept = append(p.kept, bytes.Clone(raw))
	p.size += len(raw)
	p.s.nodes.kept += len(raw)
}

func (p *pinned) forgetTx() {
	p.s.nodes.kept -= p.size
	p.placement = placement{home: -1}
}

var crossSlot = []byte("-CROSSSLOT Keys in request don't hash to the same slot\r\n")

// routeAt looks whether the pin's server is the one for a command. handled is false if it is. Else done is false if the command must wait.
func (u *pinning) routeAt(row *command.Row, p command.Policy, raw []byte) (done, handled bool) {
	s := u.s
	pin := u.pin
	if s.replay != nil {
		return u.resumeTx(row, p, raw), true
	}
	if pin.ends && !s.awaitQuiet() {
		return false, true
	}
	pin.ends = row.Name == "exec" || row.Name == "discard"
	s.look(row)
	if !pin.InTx && pin.Opening == 0 {
		if !s.awaitQuiet() {
			return false, true
		}
		s.adopt()
		elsewhere := s.slot >= 0 && s.serverOf(s.slot) != pin.conn.At() && !pin.fresh
		switch {
		case pin.Watching && elsewhere && p == command.Shared:
			s.target = s.serverOf(s.slot)
			s.send(raw, s.handler())
			return true, true
		case pin.Watching && elsewhere:
			return s.answer(crossSlot), true
		case p == command.Lock:
			return s.answer(noLocksHere), true
		}
		return false, false
	}
	if p == command.Transaction && row.Name != "watch" {
		return false, false
	}
	if s.slot >= 0 && pin.home < 0 {
		if !s.awaitQuiet() {
			return false, true
		}
		if !pin.InTx { // MULTI was refused
			return u.routeAt(row, p, raw)
		}
		at := s.serverOf(s.slot)
		switch elsewhere := at != pin.conn.At() && at != upstream.AnyNode; {
		case elsewhere && (pin.Watching || len(pin.Steps) > 0):
			u.poison(crossSlot)
			return true, true
		case elsewhere:
			pin.home = s.slot
			pin.moveTx(upstream.AnyNode)
			return false, true
		}
		pin.home = s.slot
	}
	switch {
	case s.slot >= 0 && s.slot != pin.home && s.serverOf(s.slot) != s.serverOf(pin.home):
		u.poison(crossSlot)
		return true, true
	case p == command.Lock:
		u.poison(noLocksHere)
		return true, true
	case p == command.Shared || p == command.PinOnce:
		pin.keepCommand(raw)
	}
	return false, false
}

// moveTx discards the transaction here, and has it begin anew at another server.
func (p *pinned) moveTx(asking upstream.Node) {
	s, pin := p.s, p
	s.replay = &replay{placement: pin.placement, asking: asking}
	pin.placement = placement{home: -1}
	s.forward(command.Discard, &replyHandler{s: s, muted: true, done: func([]byte) { pin.End() }}, 1)
	if s.wait == waitNone {
		s.wait = waitQuiet
	}
}

// resumeTx goes on with a transaction at another server, and then with the command behind it. false: the session waits.
func (u *pinning) resumeTx(row *command.Row, p command.Policy, raw []byte) bool {
	s := u.s
	r := s.replay
	if !s.awaitQuiet() {
		return false
	}
	if r.sent {
		s.replay = nil
		if u.pin == nil {
			return s.answer(shared.NoUpstream)
		}
		u.pin.forgetTx()
		u.pin.placement = r.placement
		return u.routePinned(row, p, raw)
	}
	if u.pin == nil {
		if err := s.pinTimedOut; err != nil {
			s.pinTimedOut, s.replay = nil, nil
			s.nodes.kept -= r.size
			return s.answer(s.proxy.NoPinFree(err, s.Addr))
		}
		s.adopt()
		if s.target = s.serverOf(r.home); r.asking != upstream.AnyNode {
			s.target = r.asking
		}
		s.hasty = true
		if !u.takePin("multi", command.Transaction) {
			return false
		}
	}
	pin := u.pin
	pin.fresh, r.sent = false, true
	if r.asking != upstream.AnyNode {
		s.forward(command.Asking, discard{}, 1)
	}
	for i, kept := range r.kept {
		h := &replyHandler{s: s, muted: true}
		if i == 0 {
			pin.Opening++
			base := pin.Queued
			h.done = func(reply []byte) {
				if pin.Opening--; resp.IsOK(reply) {
					pin.InTx, pin.Base, pin.Steps, pin.Names = true, base, nil, 0
				}
			}
		} else {
			pin.Queued++
			h.done = func(reply []byte) {
				if why := cluster.Read(reply); why.Reason != cluster.Done {
					r.refused = why
				}
			}
			h.whole = true
		}
		s.forward(kept, h, 1)
	}
	return s.awaitQuiet()
}

var queued = []byte("+QUEUED\r\n")

// watchOver returns the handler of the reply to a command on the pin, where to is that of a reply that is no refusal.
func (u *pinning) watchOver(row *command.Row, p command.Policy, raw []byte, to handler) handler {
	s := u.s
	pin := u.pin
	if s.view == nil || pin.mode != readsReplies {
		return to
	}
	switch {
	case pin.InTx || pin.Opening > 0:
		muted := s.muted
		return &guarded{s: s, h: to, slot: s.slot, read: cluster.Read, refused: func(at replies.ID, why cluster.Refusal) bool {
			pin.refused = why
			if !muted {
				s.put(at, queued, false)
			}
			return true
		}}
	case s.slot >= 0 && (p == command.PinOnce || row.Name == "watch" && !pin.Watching):
		r := s.repetition(row, raw)
		if s.asks {
			s.forward(command.Asking, discard{}, 1)
		}
		return &guarded{s: s, h: to, slot: s.slot, read: cluster.Read, refused: func(_ replies.ID, why cluster.Refusal) bool {
			if !s.again(r, pin.conn.At(), why) {
				return false
			}
			pin.yield()
			return true
		}}
	}
	return to
}

// repetition is the one that the command being routed is, or would be.
func (n *nodes) repetition(row *command.Row, raw []byte) *repetition {
	if n.repeated != nil {
		return n.repeated
	}
	return &repetition{row: row, raw: bytes.Clone(raw)}
}

// yield returns a pin on which nothing is outstanding and that has no state.
func (p *pinned) yield() {
	s := p.s
	if s.pin == p && !p.keep && !p.spent && p.borrowed == 0 {
		s.pin = nil
		s.proxy.Counters.PinReasons.Add(p.reason, -1)
		p.conn.Release()
	}
}

// watchOverExec is watchOver for an EXEC. If the server has carried out nothing of the transaction, it is queued anew at another one. With WATCH the client
// gets the answer that its keys may have changed.
func (u *pinning) watchOverExec(row *command.Row, raw []byte, h *replyHandler) handler {
	s := u.s
	pin := u.pin
	if s.view == nil {
		return h
	}
	r := s.repetition(row, raw)
	g := &guarded{s: s, h: h, slot: pin.home}
	g.read = func(reply []byte) cluster.Refusal {
		if bytes.HasPrefix(reply, []byte("-EXECABORT")) {
			return pin.refused
		}
		return cluster.Read(reply)
	}
	g.refused = func(at replies.ID, why cluster.Refusal) bool {
		if len(pin.Steps) > 0 {
			return false
		}
		if pin.Watching {
			pin.End()
			if !h.muted {
				s.put(at, nullArray(s.ident.Proto), false)
			}
			return true
		}
		move := &replay{placement: pin.placement, asking: upstream.AnyNode}
		if !s.again(r, pin.conn.At(), why) {
			return false
		}
		move.asking, r.asking = r.asking, upstream.AnyNode
		move.refused, move.ends = cluster.Refusal{}, false
		s.replay, pin.placement = move, placement{home: -1}
		pin.End()
		pin.yield()
		return true
	}
	return g
}

func nullArray(proto int) []byte {
	if proto == 3 {
		return []byte("_\r\n")
	}
	return []byte("*-1\r\n")
}

// A guarded handler looks for refusals among the replies to a command on a pin.
type guarded struct {
	s       *Session
	h       handler // of other replies; nil: they pass to the client
	slot    int
	read    func(reply []byte) cluster.Refusal
	refused func(at replies.ID, why cluster.Refusal) bool // false: the reply passes

	begun  bool
	failed []byte // the reply so far, if it is an error
}

// take is handler.
func (g *guarded) take(at replies.ID, b []byte, n int, more bool) int {
	if !g.begun && b[0] == '-' || len(g.failed) > 0 {
		g.failed = append(g.failed, b...)
		b = g.failed
		if more {
			return 0
		}
		if why := g.read(b); why.Reason != cluster.Done && (why.Reason == cluster.TryLate || why.Slot == g.slot) && g.refused(at, why) {
			return n
		}
	}
	g.begun = true
	if g.h != nil {
		return g.h.take(at, b, n, more)
	}
	g.s.Burst += len(b)
	g.s.put(at, b, more)
	return n
}

// lost is handler.
func (g *guarded) lost(at replies.ID, n int, sent bool) {
	if g.h != nil {
		g.h.lost(at, n, sent)
		return
	}
	g.s.refuse(at, n)
}

var _ handler = (*guarded)(nil)

// A repetition is a command on a pin that the pin's server has refused, as with errands. It is routed anew.
type repetition struct {
	row    *command.Row
	raw    []byte
	asking upstream.Node // the server that has the key already; AnyNode: none
	tries  int
	since  time.Time // of the first refusal
}

// repeat routes the command again. false: the session waits.
func (n *nodes) repeat() bool {
	s := n.s
	if s.wait != waitNone || s.gone() || !s.route(n.repeated.row, n.repeated.raw) {
		return false
	}
	n.repeated = nil
	return s.wait == waitNone
}

// again has a command routed anew when the view has been refreshed. false: it has been refused for too long.
func (n *nodes) again(r *repetition, from upstream.Node, why cluster.Refusal) bool {
	s := n.s
	if r.tries++; r.tries == 1 {
		r.since = time.Now()
	}
	if s.gone() || time.Since(r.since) > failoverWait {
		return false
	}
	r.asking = upstream.AnyNode
	if hint := n.view.At(why.Address); hint != nil {
		if why.Reason == cluster.Asking {
			r.asking = upstream.Node(hint.ID)
		}
		s.proxy.Upstream.Refresh(upstream.Node(hint.ID), nil)
	}
	n.repeated = r
	s.wait = waitReply
	n.refreshed(from, backoff(r.tries), s.resume)
	return true
}
