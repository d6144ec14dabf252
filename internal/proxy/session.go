package proxy

import (
	"runtime/debug"
	"sync"
	"time"

	"go.uber.org/zap"

	"lockproxy/internal/buffers"
	"lockproxy/internal/lockcmds"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
)

// wait is why a session does not go on with its next command.
type wait uint8

const (
	nothing    wait = iota
	forQuiet        // replies are outstanding that must come first
	forPin          // no pin was free
	forReply        // the reply to the last command decides how the next one travels
	forLock         // a lock command has not been answered
	forGoodbye      // the last words are said when the outstanding replies are in; nothing is parsed any more
)

// host is what a session needs of the engine that drives it.
type host interface {
	// Flush moves the session's output to the client, without blocking. It is called without the session's lock.
	Flush()

	// Hangup closes the client's connection without blocking. It may be called with the session's lock held.
	Hangup()

	// Driver moves the bytes of the session's lane; nil: goroutines do.
	Driver() upstream.Driver

	// Resume ends a pause that MayRead has asked for. It may be called with the session's lock held.
	Resume()
}

// A Session is one client connection without its I/O. All methods may be called from any goroutine.
type Session struct {
	id    uint64
	addr  string
	since time.Time
	env   *env
	host  host

	mu sync.Mutex

	// Input.
	guard  *resp.Guard
	in     []byte   // read, but not yet parsed
	args   [][]byte // scratch: arguments of the command being routed
	script []byte   // scratch: the script call being sent
	wait   wait

	// Upstream side. A session uses its pin if it has one, else its lane.
	ident   upstream.Identity
	lane    *upstream.Lane // of ident; nil until first used
	pin     *pinned        // nil: none
	pending int            // commands sent whose replies have not all arrived
	owed    int            // bytes of commands sent since pending was last 0
	paused  bool           // the engine waits for Resume
	unpin   func() bool    // withdraws the request for a pin
	noPin   bool           // the request for a pin has timed out

	// Client state kept here.
	name  string // CLIENT SETNAME
	reply replyMode
	muted bool // the command being routed gets no reply

	engines []*lockcmds.Engine // those that know this session
	early   []byte             // the answer to a lock command, until the earlier commands have been answered

	// Output.
	output

	lastWords []byte // sent after the outstanding replies, then the connection closes
	eof       bool   // the client sends nothing more
	streaming bool   // the start of a large command has been sent on the pin, or thrown away if there is none any more
	ended     bool
}

func newSession(id uint64, addr string, e *env, h host) *Session {
	s := &Session{id: id, addr: addr, since: time.Now(), env: e, host: h, guard: resp.NewGuard(e.opts.Limits.Request), ident: e.firstIdentity()}
	s.guard.Restrict(e.restricts(s.ident))
	return s
}

// Feed takes bytes that the client sent. It does not keep b. false: the session has ended, and the connection is to be closed.
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
	defer func() {
		alive, output = !s.ended, len(s.out) > 0 || s.closing
		s.mu.Unlock()
	}()
	defer s.contain()
	switch {
	case s.over():
	case len(s.in) > 0:
		s.in = buffers.Append(s.in, b, s.guard.Need())
		s.advance()
	default:
		if n := s.consume(b); n < len(b) && !s.over() {
			s.in = buffers.Append(s.in, b[n:], s.guard.Need())
		}
	}
	if len(s.in) > s.env.opts.Limits.Query {
		s.env.queryLimit(s.addr, len(s.in))
		s.end()
	}
	return alive, output
}

// leave ends every entry into a session.
func (s *Session) leave() {
	if r := recover(); r != nil {
		s.crashed(r)
	}
	s.mu.Unlock()
}

// contain ends the session if it panics.
func (s *Session) contain() {
	if r := recover(); r != nil {
		s.crashed(r)
	}
}

// crashed ends this session, and only this one, after a panic in it.
func (s *Session) crashed(r any) {
	s.env.opts.Logger.Error("BUG: panic in a session", zap.String("client", s.addr), zap.Any("panic", r), zap.ByteString("stack", debug.Stack()))
	s.env.stats.panics.Add(1)
	s.end()
}

// advance goes on with the input that has been held back.
func (s *Session) advance() {
	defer s.atEOF()
	if len(s.in) == 0 || s.wait != nothing || s.gone() {
		return
	}
	in := s.in
	n := s.consume(in)
	switch {
	case s.over():
		s.in = nil
	case n == len(in):
		s.in = shrink(in)
	case n == 0: // nothing to move
	default:
		s.in = append(in[:0], in[n:]...)
	}
}

// over reports whether no further command of this client will be executed.
func (s *Session) over() bool { return s.ended || s.wait == forGoodbye }

// gone reports whether the client gets nothing more than what is in the output.
func (s *Session) gone() bool { return s.ended || s.closing }

// shrink empties a buffer and drops it if it has grown beyond what an ordinary client needs.
func shrink(b []byte) []byte {
	if cap(b) > maxKept {
		buffers.Free(b)
		return nil
	}
	return b[:0]
}

// maxKept bounds the buffers that an idle session keeps.
const maxKept = 32 << 10

// consume routes the whole commands at the start of buf, as long as the session need not wait, and returns how many bytes
// they had. Commands that may share the lane are sent together, one copy for all of them.
func (s *Session) consume(buf []byte) int {
	table := s.env.policies()
	off := 0
	run := run{s: s, buf: buf}
	for s.wait == nothing && !s.gone() {
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
		row := table.lookup(f.Name)
		if row.policy == shared && s.plain() {
			run.add(off, f.Raw, n)
			off += n
			continue
		}
		run.send()
		if s.wait != nothing || !s.route(row, f.Raw) {
			break
		}
		off += n
	}
	run.send()
	return off
}

// plain reports whether a shared command may simply join the lane: the hot path.
func (s *Session) plain() bool { return s.pin == nil && s.reply == replyOn }

// run is a stretch of buf that holds n whole commands for the lane.
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
		r.s.forward(raw, r.s, 1)
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
		r.s.forward(r.buf[r.start:r.end], r.s, r.n)
		r.n = 0
	}
}

// forward sends n commands on the pin or the lane, for a receiver that reports back to this session.
func (s *Session) forward(raw []byte, to receiver, n int) {
	var err error
	switch {
	case s.pin != nil && s.pin.mode == readsFrames:
		s.await(raw, expected{to: to})
		return
	case s.pin != nil:
		err = s.pin.conn.Append(raw, to, n)
	default:
		if s.lane == nil {
			s.lane = s.env.upstream.Lane(s.ident, s.host.Driver())
		}
		err = s.lane.Append(raw, to, n)
	}
	s.pending += n
	s.owed += len(raw)
	if err != nil {
		s.env.stats.refused.Add(int64(n))
		s.lost(n, false, to)
	}
}

// rejected reports whether Redis does not accept the session's credentials any more: its user has been deleted, say. Redis
// itself closes the connections of such a user.
func (s *Session) rejected() bool {
	if s.pin != nil {
		return s.pin.conn.Rejected()
	}
	return s.lane != nil && s.lane.Rejected()
}

// protocolError answers what the guard found, once everything before it has been answered, and closes the connection.
func (s *Session) protocolError(err error) {
	s.env.stats.protocolErrors.Add(1)
	words := resp.AppendRawError(nil, "ERR "+err.Error())
	if s.reply != replyOn {
		words = words[:0]
	}
	s.goodbye(words)
}

// goodbye sends the last reply after the outstanding ones and closes the connection.
func (s *Session) goodbye(words []byte) {
	s.lastWords = words
	s.wait = forGoodbye
	if s.pending == 0 {
		s.sayGoodbye()
	}
}

func (s *Session) sayGoodbye() {
	s.emit(s.lastWords)
	s.lastWords = nil
	s.closeAfterOutput()
}

// quiet is called when nothing is outstanding any more.
func (s *Session) quiet() {
	s.owed = 0
	if s.paused {
		s.paused = false
		s.host.Resume()
	}
	switch {
	case s.gone():
		s.leaveLane()
		return
	case s.wait == forGoodbye && s.lastWords != nil:
		s.sayGoodbye()
		return
	case s.wait == forQuiet:
		s.wait = nothing
	case s.early != nil:
		reply := s.early
		s.early = nil
		s.giveAnswer(reply)
	}
	if s.pin != nil && s.pin.mode == readsFrames && !s.pin.subscribed() {
		s.readReplies()
	}
	s.releasePin()
}

// Hungup says that the client's connection is gone.
func (s *Session) Hungup() {
	s.mu.Lock()
	defer s.leave()
	s.end()
}

// end gives up everything the session has. Replies still outstanding on a lane are thrown away as they come.
func (s *Session) end() {
	if s.ended {
		return
	}
	s.ended = true
	s.giveUp()
	s.host.Hangup()
}

// cutOff ends a session whose connection to Redis is gone: the client gets the replies that there were, and its connection
// closes, as if it had been connected there itself.
func (s *Session) cutOff() {
	if s.gone() {
		return
	}
	s.wait = forGoodbye
	s.closeAfterOutput()
	s.giveUp()
}

func (s *Session) giveUp() {
	s.lastWords, s.in = nil, nil
	if s.unpin != nil {
		s.unpin()
		s.unpin = nil
	}
	if s.pin != nil {
		s.pin.discard()
		s.pin, s.pending = nil, 0
	}
	if s.pending == 0 {
		s.leaveLane()
	}
	for _, e := range s.engines {
		e.Ended((*lockSession)(s))
	}
	s.engines = nil
}

func (s *Session) leaveLane() {
	if s.lane != nil {
		s.env.upstream.Leave(s.lane)
		s.lane = nil
	}
}

// MayRead reports whether the engine may read from the client: not while too many bytes of its commands are unanswered. Then
// Resume follows. The wait is for Redis, never for the client, so two sides that only send cannot block each other.
func (s *Session) MayRead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return true
	case s.streaming && s.pin != nil:
		s.paused = s.pin.conn.WhenEmpty(streamBacklog, s.unpause)
	default:
		s.paused = s.pending > 0 && s.owed >= s.env.opts.Limits.Unanswered
	}
	return !s.paused
}

// unpause ends a pause of the engine.
func (s *Session) unpause() {
	s.mu.Lock()
	defer s.leave()
	if s.paused {
		s.paused = false
		s.host.Resume()
	}
}

// EOF says that the client will send nothing more, although it may still read. As with Redis, what it has sent is executed,
// and answered unless that takes waiting. It returns false if the session has ended.
func (s *Session) EOF() bool {
	s.mu.Lock()
	defer s.leave()
	s.eof = true
	s.atEOF()
	return !s.ended
}

// atEOF ends a session whose client sends nothing more, when nothing is left to execute.
func (s *Session) atEOF() {
	if !s.eof || s.over() || s.closing {
		return
	}
	switch {
	case s.streaming:
		s.cutOff() // the large command stays incomplete
	case s.wait == forLock && s.pending == 0:
		s.end() // it waits for a lock, which nobody could use
	case s.wait != nothing:
	case s.pin != nil && (s.pending > 0 || s.pin.mode == readsRaw):
		// Only Redis knows whether this is a command that waits. It sees the end as if the client were connected there:
		// it executes what it has got, answers what it can, and closes.
		s.pin.conn.CloseWrite()
	default:
		s.goodbye([]byte{})
	}
}

// Drain ends the session when it has its replies, unless it has used a lock command and so may hold a lock. One that waits
// for others, on a list or a channel, ends at once.
func (s *Session) Drain() {
	s.mu.Lock()
	defer s.leave()
	switch {
	case s.ended, len(s.engines) > 0, s.wait == forGoodbye:
	case s.wait == forPin, s.pin != nil && (s.pin.mode != readsReplies || s.pin.blocking):
		s.end()
	default:
		s.goodbye([]byte{})
	}
}
