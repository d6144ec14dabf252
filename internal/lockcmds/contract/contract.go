// Package contract is what the lock commands and the sessions that send them demand of each other. Package lockcmds
// takes its types from here, the sessions of the proxy keep the contract, and so does the test double in package
// locktest.
package contract

import (
	"sync/atomic"

	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// Errors that an Asker's Done may be given instead of an answer.
var (
	// ErrUnsent says that the script was never sent: nothing has happened.
	ErrUnsent = redislink.ErrUnsent
	// ErrInDoubt says that the script was sent and the connection was lost before the answer.
	ErrInDoubt = redislink.ErrInDoubt
)

// Unreachable stands in place of a reply to a lock command that was not carried out because Redis cannot be reached.
// The session knows what its client gets: as a rule the end of the connection.
var Unreachable = []byte{}

// Unanswered stands in place of the reply to a lock command that was sent and will not be answered: the connection
// closes at once, and the engine is told so (Engine.Forsaken). No reply begins with a zero.
var Unanswered = []byte{0}

// UnsentError is ErrUnsent with the reply of the session to any command that it could not send; nil: Unreachable.
type UnsentError struct{ Reply []byte }

func (*UnsentError) Error() string { return ErrUnsent.Error() }

// Unwrap says that it is ErrUnsent.
func (*UnsentError) Unwrap() error { return ErrUnsent }

// Session is what the lock commands ask of one client connection. A session's lock is taken before any lock of the lock
// engine: the engine calls Do only while it holds none, and the other methods only where the session is locked.
type Session interface {
	// Do runs f with the session locked. It returns false, and does not run f, if the session has ended. Requires no
	// locks.
	Do(f func()) bool
	// AfterUnlock has f run by the same goroutine as soon as the session is not locked any more. f may enter other
	// sessions, and must not block. Requires the session lock.
	AfterUnlock(f func())
	// Script sends the call as the next command of the session's own lane or pin: with EVAL and Script.Text until that
	// connection has run the script once, and again if it is forgotten. Requires the session lock.
	Script(c Call)
	// Reply is the whole reply of the lock command in progress, behind which the session goes on with its next command;
	// or Unreachable, or Unanswered. Requires the session lock.
	Reply(reply []byte)
	// OnBehind has f run once, before the session is unlocked, when the client has sent a command behind the acquire in
	// progress that must not have to wait for it: any but an acquire, PING, CLIENT, and a lock command about another lock
	// than that. Commands behind SELECT, AUTH, HELLO, RESET or MULTI do not count. Requires the session lock.
	OnBehind(lock string, f func())
	// Push is an out-of-band RESP3 push, ignored for RESP2. Requires the session lock.
	Push(b []byte)
}

// Caller is the session that sends a command, and the facts about its client at that moment.
type Caller struct {
	Session

	ID    uint64 // of the session, unique in this process
	Token string // what script.NewToken has made for the session: it is in the names of its owners
	// Losses is of the session in its present database. All engines that know the session in that database share it.
	Losses *Losses
	// Memory counts the bytes of memory that the locks of the session take, in all engines that know it. nil: it is not
	// counted.
	Memory         *atomic.Int64
	Info           ClientInfo // shown by LOCKLIST and LOCKINFO
	Library        string     // of CLIENT SETINFO LIB-NAME; may be empty
	Announced      bool       // a library had announced itself at the session's first lock command
	Proto          int        // the protocol version, 2 or 3
	NothingPending bool       // every command that the session has sent to Redis has been answered
}

// Losses is what a session has lost and was not told by a reply. The zero value is nothing.
type Losses = table.Losses

// ClientInfo names a client connection for people.
type ClientInfo = table.Client

// Call is one script on a session's own connection to Redis.
type Call struct {
	script.Call
	For Asker
}

// Asker gets the outcome of a Call.
type Asker interface {
	// Done gets the answer, or ErrUnsent or ErrInDoubt, once, with the session locked. It is also called if the session
	// has ended meanwhile: a grant must then be rolled back. It returns what Session.Reply takes; nil says that
	// Session.Reply follows. It does not keep reply.
	Done(reply resp.Value, err error) []byte
}
