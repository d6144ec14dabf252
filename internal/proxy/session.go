package proxy

import (
	"sync"
	"time"

	"lockproxy/internal/lockcmds/engines"
	"lockproxy/internal/lockcmds/losses"
	"lockproxy/internal/proxy/budget"
	"lockproxy/internal/proxy/engine"
	"lockproxy/internal/proxy/inbox"
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
	forList         // LOCKLIST has not been answered; unlike a wait for a lock it ends by itself
	forDoor         // Redis has not said yet whether it lets in who comes without credentials
	forGoodbye      // the last words are said when the outstanding replies are in; nothing is parsed any more
)

// A Session is one client connection without its I/O. All methods may be called from any goroutine.
type Session struct {
	origin
	owner string // on whose account its connections to Redis go
	env   *env
	host  engine.Client

	mu sync.Mutex

	// Input.
	guard  *resp.Guard
	in     inbox.Inbox // read, but not yet parsed
	args   [][]byte    // scratch: arguments of the command being routed
	script []byte      // scratch: the script call being sent
	wait   wait

	// Upstream side. A session uses its pin if it has one, else its lane.
	ident   upstream.Identity
	lane    *upstream.Lane // of ident; nil until first used
	role    upstream.Role  // what the lane was asked for
	writes  bool           // the command being routed may change data
	scripts bool           // it runs a script
	weight                 // of its replies
	pin     *pinned        // nil: none
	pending int            // commands sent whose replies have not all arrived
	owed    int            // bytes of commands sent since pending was last 0, with what it takes to remember them
	paused  bool           // the engine waits for Resume
	unpin   func() bool    // withdraws the request for a pin
	hasty   bool           // the command that is to get the pin will not wait for others
	noPin   error          // why the request for a pin has failed
	era     uint64         // of Upstream.Knock: tells sessions without credentials apart
	visited *upstream.Lane // on which Redis judges where the session may go; nil: none

	// Client state kept here.
	name  string    // CLIENT SETNAME
	lib   [2]string // CLIENT SETINFO: LIB-NAME, LIB-VER
	reply replyMode
	muted bool // the command being routed gets no reply

	engines []*engines.Engine   // those that know this session
	token   string              // of its default owner as lock engines know it; empty: not made yet
	losses  map[int]*losses.Set // of locks, by database
	early   []byte              // the answer to a lock command, until the earlier commands have been answered
	later   []func()            // to be run when the session is left

	// For CLIENT LIST.
	cmd    string // the last command
	heard  int64  // env.clock when the client was last heard or spoken to
	redir  redirection
	wanted []func(conn uint64) // by others who need to name the session's own connection to Redis

	// Output.
	output

	memory

	lastWords []byte // sent after the outstanding replies, then the connection closes
	known     bool   // something has come
	begun     bool   // a whole command has come
	leaving   bool   // the client sends nothing more than what is still to be read
	eof       bool   // the client sends nothing more
	streaming bool   // the start of a large command has been sent on the pin, or thrown away if there is none any more
	large     progress
	ended     bool
}

func newSession(from origin, e *env, h engine.Client) *Session {
	s := &Session{
		origin: from, owner: account(from.addr), env: e, host: h,
		guard: resp.NewGuard(e.opts.Limits.Request), ident: e.firstIdentity(),
	}
	s.guard.Restrict(e.restricts(s.ident))
	s.bill.Open(e.budget, s)
	if e.upstream.Tight() {
		s.window = firstWindow
	}
	return s
}

// expectFirst closes the client if its first command is not whole at a time; zero: never.
func (s *Session) expectFirst(by time.Time) {
	if by.IsZero() {
		return
	}
	time.AfterFunc(time.Until(by), func() {
		s.mu.Lock()
		defer s.leave()
		if !s.begun && !s.ended {
			s.env.firstTimeout(s.addr)
			s.end()
		}
	})
}

// leave ends every entry into a session.
func (s *Session) leave() {
	if r := recover(); r != nil {
		s.crashed(r)
	}
	s.unlock()
}

// unlock runs, without the session's lock, what was put off until then.
func (s *Session) unlock() {
	if s.pin != nil {
		s.pin.conn.Send()
	}
	later := s.later
	s.later = nil
	s.charge()
	s.mu.Unlock()
	for _, f := range later {
		s.runLater(f)
	}
}

func (s *Session) runLater(f func()) {
	defer func() {
		if r := recover(); r != nil {
			s.env.panicked(s.addr, r)
		}
	}()
	f()
}

// contain ends the session if it panics.
func (s *Session) contain() {
	if r := recover(); r != nil {
		s.crashed(r)
	}
}

// crashed ends this session, and only this one, after a panic in it.
func (s *Session) crashed(r any) {
	s.env.panicked(s.addr, r)
	s.end()
}

// over reports whether no further command of this client will be executed.
func (s *Session) over() bool { return s.ended || s.wait == forGoodbye }

// gone reports whether the client gets nothing more than what is in the output.
func (s *Session) gone() bool { return s.ended || s.closing }

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
		if s.guard.Restricted() {
			raw = modest(raw, n)
		}
		err = s.onLane().Append(raw, to, n)
	}
	s.pending += n
	s.owed += len(raw)
	if to != receiver(s) {
		s.owed += hookCost
		s.hooks++
	}
	if s.owed > budget.Free {
		s.countBacklog(len(raw))
	}
	if err != nil {
		s.env.stats.Refused.Add(int64(n))
		s.lost(n, false, to)
	}
}

// notes are those of the connection that the next command goes to.
func (s *Session) notes() *upstream.Notes {
	if s.pin != nil {
		return s.pin.conn.Notes()
	}
	return s.onLane().Notes()
}

// rejected reports whether Redis does not accept the session's credentials any more: its user has been deleted, say. Redis
// itself closes the connections of such a user.
func (s *Session) rejected() bool {
	if s.pin != nil {
		return s.pin.conn.Rejected()
	}
	return s.lane != nil && s.lane.Rejected()
}

// quiet is called when nothing is outstanding any more.
func (s *Session) quiet() {
	s.owed, s.hooks, s.backlog = 0, 0, budget.Backlog{}
	if s.pin != nil {
		s.pin.waits = false
	}
	s.endVisit()
	s.readOn()
	if s.weigh() {
		s.leaveLane()
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
	if s.wait == nothing {
		s.serveWanted()
	}
	s.releasePin()
	if s.pin != nil && s.pin.conn.Finished() {
		s.cutOff() // what follows belongs on a connection that takes nothing more
	}
}
