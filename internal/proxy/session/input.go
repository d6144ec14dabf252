package session

import (
	"bytes"

	"lockproxy/internal/proxy/budget"
	"lockproxy/internal/proxy/command"
)

// Feed takes bytes from the client. It does not keep b. false: the session has ended, and the connection is to be closed.
func (s *Session) Feed(b []byte) bool {
	alive, output := s.feed(b)
	if output {
		s.host.Flush()
	}
	return alive
}

// feed reports whether the session goes on, and whether it has something for the client.
func (s *Session) feed(b []byte) (alive, output bool) {
	s.mu.Lock()
	s.active = s.proxy.Clock.Load()
	defer func() {
		alive, output = !s.ended, !s.out.Empty() || s.closing
		s.unlock()
	}()
	defer s.contain()
	if !s.known {
		s.known = true
		s.knock()
	}
	switch {
	case s.over() || s.eof: // no further command runs
	case s.in.Len() > 0:
		s.in.Append(b, s.guard.Need())
		s.advance()
	default:
		if n := s.consume(b); n < len(b) && !s.over() {
			s.in.Append(b[n:], s.guard.Need())
		}
	}
	if s.in.Len() > s.proxy.Settings.Limits.Query {
		s.proxy.QueryLimit(s.Addr, s.in.Len())
		s.end()
	}
	return alive, output
}

// advance continues with the input that was held back.
func (s *Session) advance() {
	defer s.atEOF()
	if s.in.Len() == 0 || s.wait != waitNone || s.gone() {
		return
	}
	n := s.consume(s.in.Bytes())
	if s.over() {
		s.in.Forget()
		return
	}
	s.in.Drop(n)
	s.readOn()
}

// consume routes the whole commands at the start of buf until the session must wait, and returns the number of their bytes.
// Consecutive commands for the lane are sent together, with one copy.
func (s *Session) consume(buf []byte) int {
	table, careful := s.proxy.Policies(), s.careful()
	off := 0
	run := run{s: s, buf: buf}
	var last *command.Row // that of name; nil: there is none
	var name []byte
	var latest *command.Row // the last one of buf; nil: none, or it has been noted
	for s.wait == waitNone && !s.gone() {
		f, n, err := s.guard.Next(buf[off:])
		if err != nil {
			run.send()
			s.protocolError(err)
			break
		}
		if n == 0 {
			run.send()
			off += s.stream(table, buf[off:])
			break
		}
		s.begun = true
		if s.streaming {
			run.send()
			s.endStream(f.Raw)
			off += n
			continue
		}
		if len(f.Raw) == 0 { // an empty command, which Redis ignores
			run.send()
			off += n
			continue
		}
		row := last
		if row == nil || !bytes.Equal(name, f.Name) { // most commands of a pipeline have the same name
			row = table.Lookup(f.Name)
			if last, name = row, f.Name; &f.Raw[0] != &buf[off] {
				last = nil // an inline command's name does not stay where it is
			}
		}
		if row.Policy == command.Shared && !row.Script && s.plain() && !careful {
			if latest = row; row.HasSubcommands() {
				s.cmd, latest = row.TitleOf(f.Raw), nil
			}
			run.add(off, f.Raw, n)
			off += n
			continue
		}
		run.send()
		if s.wait != waitNone {
			break
		}
		s.cmd, latest = row.TitleOf(f.Raw), nil
		if !s.route(row, f.Raw) {
			break
		}
		off += n
	}
	run.send()
	s.guard.Trim()
	if latest != nil {
		s.cmd = latest.Title
	}
	return off
}

// plain reports whether a shared command may simply join the lane: the hot path.
func (s *Session) plain() bool { return s.pin == nil && s.reply == replyOn }

// run is a part of buf with n whole commands for the lane.
type run struct {
	s          *Session
	buf        []byte
	start, end int
	n          int
}

// add appends the command that takes n bytes at off.
func (r *run) add(off int, raw []byte, n int) {
	if len(raw) != n || &raw[0] != &r.buf[off] { // an inline command, rewritten elsewhere
		r.send()
		r.s.forward(raw, nil, 1)
		return
	}
	if r.n == 0 {
		r.start = off
	}
	r.n++
	r.end = off + n
}

func (r *run) send() {
	if r.n > 0 {
		r.s.scripts = false
		r.s.forward(r.buf[r.start:r.end], nil, r.n)
		r.n = 0
	}
}

// MayRead reports whether the engine may read from the client. It may not while too many bytes of commands are unanswered, or held
// behind a command that waits. Then Resume follows. The session never waits for the client, so two sides that only send cannot block
// each other.
func (s *Session) MayRead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return true
	}
	s.paused = s.hasEnough()
	return !s.paused
}

// maxHeld is the number of bytes that are read behind a command that waits. Further bytes stay in the sockets. It is large, because
// the end of a client is seen only if all bytes before it fit in here and in the sockets.
const maxHeld = 16 << 20

// mayHold is the number of bytes that may be held behind a command that waits: here, or on the way to Redis if that command is there.
func mayHold(b *budget.Budget, unanswered int) int { return b.Allowance(min(maxHeld, unanswered)) }

// hasEnough reports whether the session holds as many bytes of its client as it may. Behind a command that waits for other clients,
// reading continues as long as the bytes can be held, so that a hang-up is seen. Of a large command, only the bytes that its pin
// has not sent are held. The pin says when these are few again.
func (s *Session) hasEnough() bool {
	if s.streaming && s.pin != nil {
		full := s.pin.conn.WhenEmpty(streamBacklog, s.unpause)
		s.large.excused = s.large.excused || full
		return full
	}
	limit := s.proxy.Settings.Limits.Unanswered
	if s.slots.Due() > 0 && s.unanswered >= min(limit, budget.Free) && !(s.pin != nil && s.pin.waits) {
		return s.unanswered+s.in.Len() >= s.proxy.Budget.Allowance(limit) // the bytes of s.in wait for the same answers
	}
	return s.wait != waitNone && s.in.Len() >= budget.Free && s.unanswered+s.in.Len() >= mayHold(s.proxy.Budget, s.proxy.Settings.Limits.Unanswered)
}

// readOn ends a pause of the engine if there is space again. A pause that began behind a command that waits may end in the middle
// of a large one.
func (s *Session) readOn() {
	if s.paused && !s.hasEnough() {
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
