package session

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds"
	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/proxy/budget"
	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/engine"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// wait is the reason why a session does not take its next command.
type wait uint8

const (
	waitNone   wait = iota
	waitTurn        // its turn has ended: see turn
	waitTaken       // the client has left too many replies unread
	waitQuiet       // replies are outstanding that must come first
	waitPin         // no pin was free
	waitReply       // the reply to the last command decides how the next one travels
	waitLock        // an acquire has not been answered: it may wait for other clients
	waitEngine      // another lock command has not been answered: that comes by itself
)

// life is how far a session is. It only grows.
type life uint8

const (
	living  life = iota
	leaving      // no further command runs; the session is cut off when the outstanding replies are in
	doomed       // the client gets the output so far; soon, but after its locks have ended, the session is cut off: see outage.go
	cutOff       // the client gets the output so far, and its connection closes; the session has nothing else left
	ended        // it has nothing left
)

// A Session is one client connection without its I/O. Its mutex guards all fields but proxy, host, way, owner and
// Origin, which never change, and lockMemory, which is atomic.
//
// An exported method takes the mutex, unless its comment says that it requires it. Flush takes none.
//
// The fields that each ordinary command uses come first, also in each group: with many clients, each line of memory
// takes time to load.
type Session struct {
	proxy *Proxy
	host  engine.Client
	way   route

	mu          sync.Mutex
	wait        wait
	life        life
	parting     drainState
	afterUnlock []func() // run when the session is unlocked

	// Memory, besides the buffers.
	bill       budget.Account
	backlog    budget.Backlog // bytes appended to the lane or pin that are still here
	lockMemory atomic.Int64   // bytes of memory that its locks take
	usual      bool           // only ordinary commands and replies have moved since the session was locked
	standing   int            // bytes that these do not change, at the last other entry
	gathered   int            // bytes that must be held whole: of a reply, or of the command that is worked on aside

	// The bytes from the client, and the command that is being read.
	guard  *resp.Guard
	in     inbox // read, but not yet parsed
	active int64 // Proxy.Clock at the last bytes from or to the client
	reach  reach
	side   side
	table  *command.Table
	row    *command.Row // of the last command, in table; nil: none
	paused bool         // the engine waits for Resume
	rests  int          // the number of outstanding replies at which waitTurn ends

	large progress // of a large command that is being received

	out output // the replies, until the engine has written them

	// The connections that the session shares. It uses its pin if it has one, else its lane.
	lane       *upstream.Lane // of the session's identity; nil until first used
	role       upstream.Role  // the role for which the lane was asked
	reading    bool           // the session is being fed
	due        *upstream.Lane // is to be written when the session is unlocked; nil: none
	weight     weight         // of the replies
	unanswered int            // bytes of the commands sent since no reply was due, and of their slots

	// The connection of its own.
	pin           *pinned     // nil: none
	cancelPinWait func() bool // withdraws the request for a pin
	hasty         bool        // the command that gets the pin does not wait for other clients
	pinTimedOut   error       // why the request for a pin has failed
	redir         clients.Redirection
	// Closed when the client has read bytes that pass unread, or at the end; nil: it has read enough.
	crowded chan struct{}

	// Facts that the client has told of itself.
	replyMode    replyMode
	name, called string    // CLIENT SETNAME that Redis has accepted; that the client has sent, for locks
	lib          [2]string // CLIENT SETINFO: LIB-NAME, LIB-VER
	library      string    // the LIB-NAME that it has announced, also to a Redis that does not know SETINFO
	announced    bool      // it had announced one at its first lock command

	spare    []*request // answered ones
	repeated *request   // is routed again before the next command; nil: none
	cmd      string     // the last command, for CLIENT LIST
	writesOn bool       // the client has filled its input while the session waited for it to read
	clients.Origin
	args  [][]byte // scratch for the arguments of the request being routed
	owner string   // the account of its connections to Redis: the client's address

	late     *time.Timer // calls overdue; nil: nothing does
	forsaken bool        // the proxy closes the connection because of Redis

	// The identity at Redis, and a change to another one.
	ident   upstream.Identity
	doubted bool           // it has not logged in, and Redis is not known to serve such clients: see admit
	demand  demand         // Redis's answer about the command that is to be routed next
	visited *upstream.Lane // the lane on which Redis judges an identity change; nil: none

	// Lock commands.
	locking *request                   // has not been answered; nil: none
	behind  *behind                    // locking waits for a hold of this session; nil: it does not
	engines []*lockcmds.IdentityEngine // the engines that know this session
	token   string                     // of its name as lock engines know it; empty: not made yet
	losses  map[int]*contract.Losses   // of locks, by database
	script  []byte                     // scratch: the script call being sent
}

// pinned is a session's own connection and why it has it. Its fields are guarded by the session.
type pinned struct {
	s           *Session
	conn        *upstream.Pin
	reason      string // the command that made it necessary
	login       bool   // it is for judging an identity change
	mode        pinMode
	fresh, keep bool // the command that made it necessary has not been sent yet; for the rest of the session
	sole        bool // no new connection could be of this identity: see askForSelect
	spent       bool // it may bear a trace that this session does not know: it is closed, not returned to the pool

	waits    bool // an unanswered command may wait for other clients: BLPOP, WAIT
	debugs   bool // after SCRIPT DEBUG: an unanswered command may wait for the client's next words
	frame    int  // bytes of a frame that the connection keeps until it is whole
	unread   int  // commands sent since it is not read any more that are to be answered
	borrowed int  // sessions that are sending this connection's id to Redis: it must not go to the pool meanwhile

	outcome *outcome // of identity changes after which the session has not settled; nil: none
	tx      txState
	subscriptions
}

// pinMode says how the session reads its pin.
type pinMode uint8

const (
	readsReplies pinMode = iota // one reply for each command
	readsFrames                 // frames that the connection cannot count: pub/sub
	readsVerdict                // as readsRaw unless Redis refuses the command that has been sent
	readsRaw                    // bytes that the session does not read: MONITOR, replication
)

// side is the client's side of the connection.
type side uint8

const (
	sideOpen   side = iota
	sideEnding      // the client has ended it, and some of its bytes are still to be read
	sideEnded       // the client has ended it, and all its bytes have been read, or would not run
)

// replyMode is the setting of CLIENT REPLY.
type replyMode uint8

const (
	replyOn replyMode = iota
	replyOff
	replySkip // the next command gets no reply
)

// AfterUnlock runs f when the session is unlocked. Requires the session lock.
func (s *Session) AfterUnlock(f func()) { s.afterUnlock = append(s.afterUnlock, f) }

// Do is Enter, and then sends the output to the client.
func (s *Session) Do(f func()) bool {
	alive := s.Enter(f)
	s.host.Flush()
	return alive
}

// Enter runs f with the session locked, unless the client gets no more. Then the session takes its next command if f
// has ended its wait.
func (s *Session) Enter(f func()) bool {
	s.mu.Lock()
	defer s.exit()
	if s.waitsForLock() && s.host.Left() {
		s.end() // the engine may see the end later: a grant must not go to a client that has left before it
	}
	if s.out.Gone() {
		return false
	}
	f()
	s.advance()
	return true
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
	if s.parting == drainServed {
		s.leaveIfQuiet()
	}
	s.letRead()
	if s.behind != nil {
		s.lookBehind()
	}
	deferred, due := s.afterUnlock, s.due
	s.afterUnlock, s.due, s.reading = nil, nil, false
	s.charge()
	s.mu.Unlock()
	if due != nil {
		due.Send()
	}
	for _, f := range deferred {
		s.runDeferred(f)
	}
}

// runDeferred runs a function of afterUnlock. Requires no locks.
func (s *Session) runDeferred(f func()) {
	defer func() {
		if r := recover(); r != nil {
			s.proxy.Panicked(s.Addr, r)
		}
	}()
	f()
}

// crashed ends this session, and only this one, after a panic in it.
func (s *Session) crashed(r any) {
	s.proxy.Panicked(s.Addr, r)
	s.end()
}

// over reports whether no further command of this client will be executed.
func (s *Session) over() bool { return s.life >= leaving }

// ready reports whether the session may take its next command.
func (s *Session) ready() bool { return s.wait == waitNone && s.life == living }

// pinWaits reports whether an unanswered command on the pin may wait for other clients, or for the client itself.
func (s *Session) pinWaits() bool {
	return s.pin != nil && (s.pin.waits || s.pin.debugs && s.out.Slots.Due() > 0)
}

// end releases everything that the session has. Replies that are still outstanding on a lane are dropped as they come.
func (s *Session) end() {
	if s.life == ended {
		return
	}
	s.wait, s.life = waitNone, ended
	s.endWait()
	s.out.finish()
	s.proxy.Clients.Remove(s.ID)
	s.releaseAll()
	s.out.forget()
	s.host.Hangup()
}

// CutOff ends a session but for its output: the client gets the replies so far, and its connection closes. The client
// may take its time to read them, so nothing else remains: no lock, and no connection to Redis. Requires the session
// lock.
func (s *Session) CutOff() {
	if s.out.Gone() {
		return
	}
	s.wait, s.life = waitNone, cutOff
	s.out.finish()
	s.releaseAll()
}

// goodbye sends the last reply after the outstanding ones and closes the connection.
func (s *Session) goodbye(words []byte) {
	s.out.say(words)
	s.wait, s.life = waitNone, max(s.life, leaving)
	if s.out.Slots.Due() == 0 {
		s.CutOff()
	}
}

// awaitQuiet makes the session wait until nothing is outstanding; true if nothing is.
func (s *Session) awaitQuiet() bool {
	if s.out.Slots.Due() == 0 {
		return true
	}
	if s.wait == waitNone || s.wait == waitTurn { // else it waits for more than that
		s.wait = waitQuiet
	}
	return false
}

// Resume ends the wait for a reply that decides how the next command travels. Requires the session lock.
func (s *Session) Resume() {
	if s.wait == waitReply {
		s.wait = waitNone
	}
}

// advance continues with the input that was held back.
func (s *Session) advance() {
	defer s.atEOF()
	if s.repeated != nil && !s.repeat() {
		return
	}
	if s.in.len() > 0 && s.ready() {
		n := s.consume(s.in.bytes())
		if s.over() {
			s.in.forget()
			return
		}
		s.in.drop(n)
	}
	s.readOn()
}

// forward sends n commands on the session's own connection. h handles their replies; nil: they pass to the client.
func (s *Session) forward(row *command.Row, raw []byte, h reply.Handler, n int) {
	conn := s.conn(row)
	at := s.out.Slots.Add(conn, h, n)
	if h != nil {
		s.unanswered += slotCost
	}
	s.transmit(conn, raw, at, n)
}
