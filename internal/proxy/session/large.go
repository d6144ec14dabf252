package session

import (
	"bytes"
	"time"

	"github.com/lockproxy/lockproxy/internal/metrics"
	"github.com/lockproxy/lockproxy/internal/proxy/budget"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/proxy/shared"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A large command need not be held whole. If its name is known, and it only carries data, the session takes a pin and sends the
// bytes as they come. The lane stays free for other sessions meanwhile.
const (
	// streamFrom is the announced size from which a command is streamed. Smaller commands are cheaper on the lane.
	streamFrom = 4 << 20

	// streamHeld is the announced size up to which a command is held whole in front of a cluster, if there is plenty of memory: then it can be sent
	// again when its slot moves at that moment.
	streamHeld = 16 << 20

	// streamBacklog is the number of its bytes that may wait for Redis, if there is plenty of memory. Beyond it the client is not read.
	streamBacklog = 1 << 20

	// streamLeast is the number of its bytes that must come within each Limits.LargeCommand. A client that announces a large command
	// and then sends little of it loses its pin.
	streamLeast = 64 << 10
)

// progress measures a large command.
type progress struct {
	timer   *time.Timer
	bytes   int  // received
	checked int  // received at the last check
	excused bool // the client was not read all the time since then

	// In front of a cluster.
	asks    bool   // the command goes behind an ASKING
	slot    int    // of its key
	refusal []byte // the reply to it, if no server can be had; nil: one has been found
}

// stream sends the start of a command that is not whole yet, if the command is large and may be streamed. It returns the number of
// bytes of buf that it has consumed.
func (i *input) stream(table *command.Table, buf []byte) int {
	s := i.s
	if size := max(i.guard.Need(), i.guard.Checked()); !i.streaming && (size < streamFrom || size < i.heldWhole()) || s.wait != waitNone || s.ended {
		return 0
	}
	s.usual = false
	n := i.guard.Checked()
	if !i.streaming && !i.beginStream(table, buf[:n]) {
		return 0
	}
	if s.pin != nil && i.large.refusal == nil {
		if conn := s.pin.conn; conn.Append(buf[:n], nil, 0, 0) == nil {
			s.countBacklog(conn, n)
		} else {
			s.pin.broken()
		}
	}
	i.guard.Discard(n)
	i.large.bytes += n
	return n
}

// heldWhole is the announced size up to which a command is held whole.
func (i *input) heldWhole() int {
	if !i.s.Clustered() {
		return streamFrom
	}
	return i.s.proxy.Budget.Allowance(streamHeld)
}

// beginStream takes a pin for a large command, of which begin has come. false: the command must be held whole, or the session waits.
func (i *input) beginStream(table *command.Table, begin []byte) bool {
	s := i.s
	name, _, open := i.guard.Open()
	if !open || i.unpinned {
		return false
	}
	row := table.Lookup(name)
	if row.Policy != command.Shared || s.pin != nil && s.pin.mode != readsReplies {
		return false
	}
	if s.refused.Open() {
		i.large.refusal = s.refused.Step(row.Name, s.reply != replyOn)
	} else if s.Clustered() && !i.locate(row, begin) {
		return false
	}
	s.hasty = true // it runs even if its client has ended its side behind it
	if s.pin == nil && i.large.refusal == nil && (!s.awaitQuiet() || !s.takePin(row.Name+" (large)", row.Policy)) {
		return false
	}
	s.muted = s.reply != replyOn
	i.streaming, i.located = true, false
	i.large.bytes, i.large.checked, i.large.excused = 0, 0, false
	i.large.timer = time.AfterFunc(s.proxy.Limits().LargeCommand, i.checkStream)
	s.cmd = row.Title
	if s.pin != nil {
		s.pin.fresh = false
		s.pin.Queued++
	}
	return true
}

// locate finds the server of a large command in front of a cluster. Bytes that have been streamed are gone, and cannot follow a redirection. So the
// server is asked first whether it serves the key; the question follows redirections, and waits for a successor. begin is the part of the command that
// is there. false: the session waits, or the command must be held whole, because its key is not known yet, or the session has a connection for a
// transaction.
func (i *input) locate(row *command.Row, begin []byte) bool {
	s := i.s
	at := row.Keys.Fixed()
	args := resp.Begin(begin, at+1)
	switch {
	case i.located && i.large.refusal != nil:
		return true
	case i.located && s.pin != nil: // it may have ended since the answer
		s.Look(row, args)
		s.Wrote(s.pin.conn.At())
		if i.large.slot = s.Slot; i.large.asks {
			s.forward(command.Asking, reply.Discard{}, 1)
		}
		return true
	case at == 0 || len(args) <= at || s.replay != nil || s.ears.Listening() || s.pin != nil && !s.pin.fresh:
		return false
	}
	i.large, i.located = progress{}, false
	i.ask = resp.AppendCommand(nil, "EXISTS", string(args[at]))
	i.asked = found{i, &reply.Reply{Session: s.side(), Muted: true, Whole: true, Done: i.found}}
	return false
}

// found takes the answer to the question of locate. If the user may not ask it, the server is the one that the view names.
func (i *input) found(reply []byte) {
	s := i.s
	i.located, i.large.asks = true, s.Asks
	if bytes.HasPrefix(reply, shared.NoUpstream) || topology.ReadRefusal(reply).Reason == topology.TryLate {
		i.large.refusal = bytes.Clone(reply)
	}
	s.resume()
}

// overtake gives up the pin of a large command that has come in whole before it could be streamed.
func (i *input) overtake() {
	i.located, i.large.refusal = false, nil
	i.s.releasePin()
}

// found is the handler of the answer to the question of locate.
type found struct {
	i *input
	*reply.Reply
}

// Lost implements reply.Handler: there is no server. The command is read to its end, and refused.
func (f found) Lost(reply.ID, int, bool) {
	f.i.located, f.i.large.refusal = true, f.Session.Refusal()
	f.i.s.resume()
}

// endStream sends the last part of a large command. If its pin was lost before any byte reached Redis, the command is refused.
func (i *input) endStream(rest []byte) {
	s := i.s
	s.usual = false
	i.streaming = false
	i.large.timer.Stop()
	if s.reply == replySkip {
		s.reply = replyOn
	}
	if refusal := i.large.refusal; s.pin == nil || refusal != nil {
		if refusal == nil {
			refusal = shared.NoUpstream
		}
		i.large.refusal = nil
		if s.Slots.Due() == 0 {
			s.backlog = budget.Backlog{} // of a connection that has ended
		}
		s.answer(refusal)
		return
	}
	s.proxy.Counters.Traffic.Add(s.ID, metrics.ClassPinned, 1, i.large.bytes+len(rest))
	conn := s.pin.conn
	h := &reply.Guarded{Session: s.side(), To: s.handler(), Read: func([]byte) topology.Refusal { return topology.Refusal{} }}
	h.Unsent = func() bool { // Redis has the start: it has closed the connection, because the command is too long for example
		if conn.Connected() {
			s.cutOff()
		}
		return conn.Connected()
	}
	if s.Clustered() {
		muted := s.muted
		h.Slot, h.Read = i.large.slot, topology.ReadRefusal
		h.Refused = func(at reply.ID, why topology.Refusal) bool {
			if s.Refused(why); why.Reason == topology.TryLate {
				return false
			}
			if !muted {
				s.Put(at, movedMeanwhile, false)
			}
			return true
		}
	}
	s.forward(rest, h, 1)
}

var movedMeanwhile = resp.AppendError(nil, resp.NoUpstream, "the slot of the key moved while the command was sent, which was not carried out")

// checkStream ends a client whose large command comes too slowly.
func (i *input) checkStream() {
	s := i.s
	s.mu.Lock()
	defer s.exit()
	if !i.streaming || s.ended {
		return
	}
	l := &i.large
	if l.bytes-l.checked < streamLeast && !l.excused && !i.paused {
		s.proxy.SlowCommand(s.Addr, l.bytes)
		s.end()
		return
	}
	l.checked, l.excused = l.bytes, false
	l.timer.Reset(s.proxy.Limits().LargeCommand)
}
