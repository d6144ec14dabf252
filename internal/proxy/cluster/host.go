package cluster

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// Servers are those of a cluster, as package upstream knows them, or a test without servers.
type Servers interface {
	// View is the present view.
	View() *topology.View

	// Refresh has then called from another goroutine when the view has been refreshed by a question that has begun
	// after this call.
	Refresh(hint topology.Node, then func())

	// Watch has f called from another goroutine when the view has changed, until stop is called.
	Watch(f func()) (stop func())

	// Refused notes that a server has refused a command for another server's sake.
	Refused(why topology.RefusalReason)

	// Silent reports whether a server has not answered lately. Away reports whether none can be reached.
	Silent(at topology.Node) bool
	Away() bool

	// FailoverWait is how long a command is sent again.
	FailoverWait() time.Duration

	// MaxShared is the size of a command, in bytes, above which a server may close its connection.
	MaxShared() int64
}

// A Host is the session whose commands a Route brings to the servers.
type Host interface {
	reply.Session

	// Identity is that of the session.
	Identity() upstream.Identity

	// Answer gives the proxy's own reply to a request, behind the earlier ones. It returns true.
	Answer(r *command.Request, words []byte) bool

	// Expect takes a place for the reply to a command that is sent on a connection now; nil: no server is known. Hold
	// takes one for a reply that the route makes of n others.
	Expect(from upstream.Connection, h reply.Handler) reply.ID
	Hold(n int) reply.ID

	// AwaitQuiet reports whether nothing is outstanding; otherwise the session reads nothing new until all replies are
	// in. AwaitReply has it wait until Resume. Repeat has it route a request again after Resume.
	AwaitQuiet() bool
	AwaitReply()
	Repeat(r *command.Request)

	// Present is the lane of the session's next command; nil: it has none. TurnTo makes another lane the present one.
	// Lane is the present lane, or another one to its server that fits the command. Without a present lane it is one to
	// that server. Leave leaves a lane.
	Present() (*upstream.Lane, upstream.Role)
	TurnTo(*upstream.Lane, upstream.Role)
	Lane(row *command.Row, at topology.Node) *upstream.Lane
	Leave(*upstream.Lane)

	// Transmit sends n commands, whose replies have a place, by a lane; nil: no server is known, so they are not sent.
	Transmit(by *upstream.Lane, raw []byte, place reply.ID, n int)

	// Pin is the session's own connection; nil: it has none. TakePin gives it one for a request. false: the session
	// waits for one, or the request is refused with these words.
	Pin() Pin
	TakePin(r *command.Request, reason string) (refusal []byte, ok bool)

	// PauseOf is what follows the answer to a CLIENT PAUSE or UNPAUSE; nil: the request is another command.
	PauseOf(r *command.Request) func(reply []byte)

	// Patience is how long a command that could not be sent is tried again.
	Patience() Patience

	// Abandon closes the connection of the client: a command may have run. GiveUp does because Redis cannot be reached,
	// Part behind the replies that are outstanding.
	Abandon()
	GiveUp()
	Part()

	// Do runs f with the session locked, unless the client gets no more. It is called without the lock.
	Do(f func()) bool
}

// Patience is how long a session has a command tried again that could not be sent.
type Patience uint8

// The degrees of patience.
const (
	Usual   Patience = iota // for failover-wait
	None                    // not at all: the client is new, and no server can be reached
	Endless                 // while no server can be reached: the session holds locks
)

// A Pin is a session's own connection to one of the servers.
type Pin interface {
	// At is the server. Hopeless reports whether no connection to it will be made.
	At() topology.Node
	Hopeless() bool

	// Send sends n commands.
	Send(raw []byte, h reply.Handler, n int)

	// State is what the session knows of the connection.
	State() PinState

	// Unwatched says that the connection watches no keys any more; spent: it may bear another trace.
	Unwatched(spent bool)

	// Leave has the session give the connection up, if it has no state; broken: its server will close it.
	Leave(broken bool)
}

// A PinState is the state of a pin.
type PinState struct {
	Fresh      bool // the command for which the session has it has not been sent
	Kept       bool // the session has it until its end
	Answers    bool // each command has one reply
	Listens    bool // it is in pub/sub mode
	Subscribed bool // to anything
	Channels   bool // to channels or patterns
	Watching   bool // keys, for a transaction
}
