package session

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/buffers"
	"github.com/lockproxy/lockproxy/internal/proxy/budget"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/metrics"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// Feed takes bytes from the client. It does not keep b. alive is false if the session has ended, and the connection is
// to be closed. more is false if the engine may not read from the client: too many bytes of commands are unanswered, or
// held behind a command that waits. Then Client.Resume follows. The session never waits for the client, so two sides
// that only send cannot block each other.
func (s *Session) Feed(b []byte) (alive, more bool) {
	alive, more, output := s.feed(b)
	if output {
		s.host.Flush()
	}
	return alive, more
}

// feed is Feed without the output. output reports whether there is any.
func (s *Session) feed(b []byte) (alive, more, output bool) {
	s.mu.Lock()
	s.active = s.proxy.Clock.Load()
	defer func() {
		gone := s.life == ended
		alive, more, output = !gone, !s.paused || gone, !s.out.Outbox.Empty() || s.life == cutOff
		s.unlock()
	}()
	defer s.contain()
	s.usual, s.reading = s.pin == nil, true
	s.parting.sent()
	switch {
	case s.over() || s.side == sideEnded: // no further command runs
	case s.in.len() > 0:
		s.hold(b)
		s.advance()
	default:
		if n := s.consume(b); n < len(b) && !s.over() {
			s.hold(b[n:])
		}
	}
	if s.in.len() > s.proxy.Limits().Query && !s.pausesAtQuery() {
		s.proxy.Closed(metrics.QueryLimit, s.Addr, s.in.len())
		s.end()
	}
	s.paused = s.life < ended && s.mustPause()
	return alive, more, output
}

// hold keeps bytes that cannot be sent on yet. What a client only announces takes no more of the memory of all than the
// client may be read ahead.
func (s *Session) hold(b []byte) {
	s.in.append(b, min(s.guard.Need(), s.proxy.Budget.Allowance(buffers.Large)))
}

// contain ends the session if it panics.
func (s *Session) contain() {
	if r := recover(); r != nil {
		s.crashed(r)
	}
}

// consume routes the whole commands at the start of buf until the session must wait, and returns the number of their
// bytes. Consecutive commands for the lane are sent together, with one copy.
func (s *Session) consume(buf []byte) int {
	if s.doubted { // Redis may have been opened since
		s.doubt()
	}
	table, careful := s.proxy.Policies(), s.careful()
	off := 0
	batch := batch{s: s, buf: buf}
	if table != s.table {
		s.table, s.row = table, nil
	}
	s.guard.LimitBulk(s.proxy.Upstream.MaxArgument())
	maxShared := int(s.proxy.Upstream.MaxShared())
	var latest *command.Row // the last one of buf; nil: none, or it has been noted
	var turn turn
	for s.ready() {
		if turn.ends(s.out.Slots.Due()+batch.n) && off < len(buf) {
			if batch.send(); s.ready() {
				s.rest()
			}
			break
		}
		f, n, err := s.guard.Next(buf[off:])
		if err != nil {
			batch.send()
			s.protocolError(err)
			break
		}
		if n == 0 {
			batch.send()
			off += s.stream(table, buf[off:])
			break
		}
		switch s.large.state {
		case largeUnknown:
		case largeHeld:
			s.large.state = largeUnknown
		case largeStreaming:
			batch.send()
			s.endStream(f.Raw)
			off += n
			continue
		}
		if len(f.Raw) == 0 { // an empty command, which Redis does not answer
			batch.send()
			s.empty(buf[off : off+n])
			off += n
			continue
		}
		row := s.row
		if row == nil || !row.Is(f.Name) { // most commands have the name of the one before
			row = table.Lookup(f.Name)
			s.row = row
		}
		if row.Policy == command.Shared && !row.Script && s.plain() && !careful && n <= maxShared {
			if latest = row; row.HasSubcommands() {
				s.cmd, latest = row.TitleOf(f.Raw), nil
			}
			batch.add(off, f.Raw, n)
			off += n
			continue
		}
		batch.send()
		if !s.ready() {
			break
		}
		s.cmd, latest = row.TitleOf(f.Raw), nil
		turn.routed()
		if !s.route(s.newRequest(row, f.Raw)) {
			break
		}
		off += n
		careful = s.careful() // RESET changes the identity at once
	}
	batch.send()
	s.guard.Trim()
	if latest != nil {
		s.cmd = latest.Title
	}
	return off
}

// A turn is the commands that a session takes at once: a lane, an event loop and the session's lock are its own
// meanwhile. It ends after a time, because the costs of commands differ a thousandfold. The clock is read only now and
// then, so a command by itself pays nothing for it. A turn ends also when mostDue replies are due, because the commands
// of others stand behind these on a connection that they share.
type turn struct {
	began  time.Time // zero: not yet
	weight int       // of the commands since the clock was read
}

const (
	turnTime    = 250 * time.Microsecond
	mostDue     = 2048 // replies
	clockWeight = 1024 // between two readings of the clock: about 50 microseconds of work
	routeWeight = 32   // of a command that is routed by itself, beside the 1 of every command
)

// routed counts the work of a command that is routed by itself.
func (t *turn) routed() { t.weight += routeWeight }

// ends reports whether the turn ends before another command is taken.
func (t *turn) ends(due int) bool {
	if t.weight++; t.weight >= clockWeight {
		t.weight = 0
		if t.began.IsZero() {
			t.began = time.Now()
		} else if time.Since(t.began) > turnTime {
			return true
		}
	}
	return due >= mostDue
}

// rest ends a turn. The session goes on when half of its replies are in. If none is due, it goes on after the time of a
// turn, which is that of others.
func (s *Session) rest() {
	s.wait, s.rests = waitTurn, s.out.Slots.Due()/2
	if s.out.Slots.Due() == 0 {
		time.AfterFunc(turnTime, s.goOn)
	}
}

// goOn ends a wait that is not for replies.
func (s *Session) goOn() {
	s.Do(func() {
		if s.wait == waitTaken || s.wait == waitTurn && s.out.Slots.Due() == 0 {
			s.wait = waitNone
		}
	})
}

// awaitReader reports whether a reply that the proxy makes or edits is needed now: nothing is outstanding, and the
// client has taken the replies before it, but for a few. Otherwise the session waits. So a client has one such reply at
// a time made, however many it asks for. A client that writes on may not read before it has written everything, so it
// gets one each writerTime.
func (s *Session) awaitReader() bool {
	if !s.awaitQuiet() {
		return false
	}
	if s.out.Unread() >= mostUntaken && !s.writesOn {
		s.wait = waitTaken
		return false
	}
	s.writesOn = false
	return true
}

// writerTime is how long a client that has filled its input does without a reply that it does not read.
const writerTime = 10 * time.Millisecond

// awaitWriter ends a wait for the client to read after writerTime.
func (s *Session) awaitWriter() {
	if !s.writesOn {
		s.writesOn = true
		time.AfterFunc(writerTime, s.goOn)
	}
}

// mostUntaken is the number of bytes that a client may leave unread while the proxy makes replies for it.
const mostUntaken = 256 << 10

// taken has the session go on that waits until its client has read.
func (s *Session) taken() {
	if s.wait == waitTaken && s.out.Unread() < mostUntaken {
		time.AfterFunc(0, s.goOn)
	}
}

// empty handles an empty command. On a connection it ends the effect of the command before it, such as CLIENT CACHING,
// and it is a replica's sign of life. A lane has no such state.
func (s *Session) empty(raw []byte) {
	if s.replyMode == replySkip {
		s.replyMode = replyOn // it counts as the command that gets no reply
	}
	if s.pin != nil && !s.pinWaits() {
		s.transmit(s.pin.conn, raw, 0, 0)
	}
}

// plain reports whether a shared command may simply join the lane: the hot path.
func (s *Session) plain() bool {
	return s.pin == nil && s.replyMode == replyOn
}

// batch is a part of buf with n whole commands for the lane.
type batch struct {
	s          *Session
	buf        []byte
	start, end int
	n          int
}

// add appends the command that takes n bytes at off.
func (b *batch) add(off int, raw []byte, n int) {
	if len(raw) != n || &raw[0] != &b.buf[off] { // an inline command, rewritten elsewhere
		b.send()
		b.forward(raw, 1)
		return
	}
	if b.n == 0 {
		b.start = off
	}
	b.n++
	b.end = off + n
}

func (b *batch) send() {
	if b.n > 0 {
		b.forward(b.buf[b.start:b.end], b.n)
		b.n = 0
	}
}

func (b *batch) forward(raw []byte, n int) {
	b.s.out.time(b.s.ID, metrics.ClassShared, n, b.s.active)
	b.s.proxy.Counters.Traffic.Add(b.s.ID, metrics.ClassShared, n, len(raw))
	b.s.forward(ordinaryRow, raw, nil, n)
}

// maxHeld is the number of bytes that are read behind a command that waits for other clients. Further bytes stay in the
// sockets. It is large, because the end of a client is seen only if all bytes before it fit in here and in the sockets.
const maxHeld = 16 << 20

// maxQueued is the number of bytes that are read behind any other command that waits: its wait ends by itself.
const maxQueued = 64 << 10

// maxStranger is the number of bytes that are held for a client that has yet to authenticate, in each direction. Redis
// takes its longest argument for a client's whole need.
const maxStranger = 16 << 10

// mayHold is the number of bytes that may be held behind a command that waits for other clients: here, or on the way to
// Redis if that command is there.
func mayHold(b *budget.Budget, unanswered int) int { return b.Allowance(min(maxHeld, unanswered)) }

// pausesAtQuery reports whether the session waits for something that comes by itself, such as a pin. Then the client
// has done nothing wrong: reading pauses at the limit of the query buffer. Everywhere else the limit closes the client,
// as Redis does.
func (s *Session) pausesAtQuery() bool {
	return !s.ready() && s.wait != waitLock && !s.pinWaits()
}

// mustPause reports whether the session holds as many bytes of its client as it may. Behind a command that waits for
// other clients, reading continues as long as the bytes can be held, so that a hang-up is seen. Of a large command,
// only the bytes that its pin has not sent are held. The pin says when these are few again.
//
// A session that does not wait holds one incomplete command at most, which can only become whole if reading continues.
func (s *Session) mustPause() bool {
	if s.streaming() && s.pin != nil {
		full := s.pin.conn.WhenEmpty(s.proxy.Budget.Allowance(streamBacklog), s.unpause)
		s.large.excused = s.large.excused || full
		return full
	}
	limits, held := s.proxy.Limits(), s.in.len()
	waits := !s.ready()
	switch {
	case s.pin != nil && s.pin.mode == readsRaw &&
		s.pin.conn.WhenEmpty(s.proxy.Budget.Allowance(streamBacklog), s.unpause):
		return true // no replies tell how far Redis is
	case held > budget.Free && s.proxy.Budget.WhenFits(s.unpause):
		return true
	case s.guard.Restricted():
		return s.out.Unread() >= maxStranger || (waits || s.out.Slots.Due() > 0) && s.unanswered+held >= maxStranger
	case waits && s.awaitsOthers():
		return held >= budget.Free && s.unanswered+held >= mayHold(s.proxy.Budget, limits.Unanswered)
	case waits:
		full := held >= min(maxQueued, limits.Query)
		if full && s.wait == waitTaken {
			s.awaitWriter()
		}
		return full
	}
	if s.out.Slots.Due() == 0 || s.unanswered < min(limits.Unanswered, budget.Free) || s.pinWaits() {
		return false
	}
	// An incomplete command waits for the same answers.
	return s.unanswered+held >= s.proxy.Budget.Allowance(limits.Unanswered)
}

// readOn ends a pause of the engine if there is space again, behind all that the session can do with the bytes that it
// holds.
func (s *Session) readOn() {
	if s.paused && !s.mustPause() {
		s.paused = false
		s.host.Resume()
	}
}

// unpause ends a pause of the engine.
func (s *Session) unpause() {
	s.mu.Lock()
	defer s.exit()
	if s.paused {
		s.paused = false
		s.host.Resume()
	}
}

// protocolError answers the guard's error behind all earlier replies, and closes the connection.
func (s *Session) protocolError(err error) {
	s.proxy.Counters.Closed[metrics.ProtocolError].Add(1)
	words := resp.AppendError(nil, resp.Err, err.Error())
	if s.replyMode != replyOn {
		words = words[:0]
	}
	s.goodbye(words)
}
