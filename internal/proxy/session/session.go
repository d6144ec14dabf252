package session

import (
	"sync"
	"time"

	"lockproxy/internal/lockcmds/engines"
	"lockproxy/internal/lockcmds/losses"
	"lockproxy/internal/proxy/budget"
	"lockproxy/internal/proxy/clients"
	"lockproxy/internal/proxy/command"
	"lockproxy/internal/proxy/inbox"
	"lockproxy/internal/proxy/replies"
	"lockproxy/internal/proxy/shared"
	"lockproxy/internal/proxy/weight"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
)

// wait is the reason why a session does not take its next command.
type wait uint8

const (
	waitNone    wait = iota
	waitQuiet        // replies are outstanding that must come first
	waitPin          // no pin was free
	waitReply        // the reply to the last command decides how the next one travels
	waitLock         // a lock command has not been answered
	waitList         // LOCKLIST has not been answered; unlike a wait for a lock it ends by itself
	waitDoor         // Redis has not said yet whether it accepts clients without credentials
	waitGoodbye      // the connection closes when the outstanding replies are in; nothing is parsed any more
)

// A Host is what a session needs of the engine that moves its bytes. Its methods do not block.
type Host interface {
	// Flush moves the session's output to the client. The session must not be locked.
	Flush()

	// Hangup closes the client's connection. The session may be locked.
	Hangup()

	// Driver moves the bytes of the session's lane; nil: goroutines do.
	Driver() upstream.Driver

	// Resume ends a pause that MayRead has asked for. The session may be locked.
	Resume()
}

// A Session is one client connection without its I/O. All methods may be called from any goroutine.
type Session struct {
	clients.Origin
	owner string // the account of its connections to Redis: the client's address
	proxy *shared.Proxy
	host  Host

	mu sync.Mutex

	// Input.
	guard  *resp.Guard
	in     inbox.Inbox // read, but not yet parsed
	args   [][]byte    // scratch: arguments of the command being routed
	script []byte      // scratch: the script call being sent
	wait   wait

	// Upstream side. A session uses its pin if it has one, else its lane.
	ident         upstream.Identity
	lane          *upstream.Lane // of ident; nil until first used
	role          upstream.Role  // the role for which the lane was asked
	writes        bool           // the command being routed may change data
	scripts       bool           // it runs a script
	weight.Weight                // of its replies
	pin           *pinned        // nil: none
	unanswered    int            // bytes of the commands sent since no reply was due, and of their slots
	paused        bool           // the engine waits for Resume
	cancelPinWait func() bool    // withdraws the request for a pin
	hasty         bool           // the command that gets the pin does not wait for other clients
	pinTimedOut   error          // why the request for a pin has failed
	era           uint64         // of Upstream.Knock: tells sessions without credentials apart
	visited       *upstream.Lane // the lane on which Redis judges an identity change; nil: none

	// Client state kept here.
	name  string    // CLIENT SETNAME
	lib   [2]string // CLIENT SETINFO: LIB-NAME, LIB-VER
	reply replyMode
	muted bool // the command being routed gets no reply

	engines     []*engines.Engine   // the engines that know this session
	token       string              // of its default owner as lock engines know it; empty: not made yet
	losses      map[int]*losses.Set // of locks, by database
	afterUnlock []func()            // run when the session is unlocked

	// For CLIENT LIST.
	cmd    string // the last command
	active int64  // env.clock at the last bytes from or to the client
	redir  clients.Redirection
	wanted []func(conn uint64) // by other sessions that need to name this session's own connection to Redis

	// Output.
	slots replies.Queue[connection, handler] // of the replies, in the order of the commands
	output

	memory

	known     bool // a byte has come
	begun     bool // a whole command has come
	leaving   bool // the client has ended its side; some of its bytes are still to be read
	eof       bool // the client has ended its side, and all its bytes have been read
	streaming bool // the start of a large command has been sent on the pin, or dropped if the pin is gone
	large     progress
	ended     bool
}

// New makes the session of a client.
func New(from clients.Origin, e *shared.Proxy, h Host) *Session {
	s := &Session{
		Origin: from, owner: clients.Account(from.Addr), proxy: e, host: h,
		guard: resp.NewGuard(e.Settings.Limits.Request), ident: e.FirstIdentity(),
	}
	s.guard.Restrict(e.Restricts(s.ident))
	s.bill.Open(e.Budget, s)
	if e.Upstream.Tight() {
		s.Window = weight.FirstWindow
	}
	return s
}

// ExpectFirst closes the client if its first command is not whole at a time; zero: never.
func (s *Session) ExpectFirst(by time.Time) {
	if by.IsZero() {
		return
	}
	time.AfterFunc(time.Until(by), func() {
		s.mu.Lock()
		defer s.exit()
		if !s.begun && !s.ended {
			s.proxy.FirstTimeout(s.Addr)
			s.end()
		}
	})
}

// exit ends every entry into a session.
func (s *Session) exit() {
	if r := recover(); r != nil {
		s.crashed(r)
	}
	s.unlock()
}

// unlock unlocks the session and runs the functions of afterUnlock.
func (s *Session) unlock() {
	if s.pin != nil {
		s.pin.conn.Send()
	}
	deferred := s.afterUnlock
	s.afterUnlock = nil
	s.charge()
	s.mu.Unlock()
	for _, f := range deferred {
		s.runDeferred(f)
	}
}

func (s *Session) runDeferred(f func()) {
	defer func() {
		if r := recover(); r != nil {
			s.proxy.Panicked(s.Addr, r)
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
	s.proxy.Panicked(s.Addr, r)
	s.end()
}

// over reports whether no further command of this client will be executed.
func (s *Session) over() bool { return s.ended || s.wait == waitGoodbye }

// gone reports whether the client gets no more than the output so far.
func (s *Session) gone() bool { return s.ended || s.closing }

// connection is a lane or a pin.
type connection interface {
	Append(b []byte, to upstream.Receiver, tag uint64, n int) error
	Progress() (appended, written int64)
	Scripts() *upstream.ScriptSet
	Rejected() bool
}

// conn returns the connection of the next command.
func (s *Session) conn() connection {
	if s.pin != nil {
		return s.pin.conn
	}
	return s.onLane()
}

// forward sends n commands on the pin or the lane. h handles their replies; nil: they pass to the client.
func (s *Session) forward(raw []byte, h handler, n int) {
	conn := s.conn()
	if s.pin == nil && s.guard.Restricted() {
		raw = command.Modest(raw, n)
	}
	at := s.slots.Add(conn, h, n)
	if h != nil {
		s.unanswered += slotCost
	}
	s.transmit(conn, raw, at, n)
}

// transmit sends the n commands of a slot.
func (s *Session) transmit(conn connection, raw []byte, at replies.ID, n int) {
	var err error
	framed := s.pin != nil && s.pin.mode != readsReplies
	if framed {
		err = conn.Append(raw, nil, 0, 0)
	} else {
		err = conn.Append(raw, s, uint64(at), n)
	}
	if s.unanswered += len(raw); s.unanswered > budget.Free {
		s.countBacklog(conn, len(raw))
	}
	switch {
	case err == nil:
	case framed:
		s.pin.broken()
	default:
		s.proxy.Counters.Refused.Add(int64(n))
		s.lose(at, n, false)
	}
}

// rejected reports whether Redis no longer accepts the session's credentials, because its user has been deleted for example. Redis
// itself closes the connections of such a user.
func (s *Session) rejected() bool {
	if s.pin != nil {
		return s.pin.conn.Rejected()
	}
	return s.lane != nil && s.lane.Rejected()
}

// quiet is called when nothing is outstanding any more.
func (s *Session) quiet() {
	s.unanswered, s.backlog = 0, budget.Backlog{}
	if s.pin != nil {
		s.pin.waits = false
	}
	s.endVisit()
	s.readOn()
	if s.Weigh() {
		s.leaveLane()
	}
	switch {
	case s.gone():
		s.leaveLane()
		return
	case s.wait == waitGoodbye:
		s.closeAfterOutput()
		return
	case s.wait == waitQuiet:
		s.wait = waitNone
	}
	if s.pin != nil && s.pin.mode == readsFrames && !s.pin.Subscribed() {
		s.readReplies()
	}
	if s.wait == waitNone {
		s.serveWanted()
	}
	s.releasePin()
	if s.pin != nil && s.pin.conn.Finished() {
		s.cutOff() // the next commands belong on a connection that takes no more commands
	}
}
