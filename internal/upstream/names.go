package upstream

import (
	"github.com/lockproxy/lockproxy/internal/upstream/handshake"
	"github.com/lockproxy/lockproxy/internal/upstream/pins"
	"github.com/lockproxy/lockproxy/internal/upstream/stream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
	"github.com/lockproxy/lockproxy/internal/upstream/wire"
)

// The types of the packages below this one that sessions and engines use.
type (
	// Identity is who a connection to Redis is and how it speaks.
	Identity = handshake.Identity

	// Node names one server.
	Node = topology.Node

	// Receiver gets the replies to a session's requests.
	Receiver = stream.Receiver

	// Observer gets the bytes on a pin that are no counted replies.
	Observer = stream.Observer

	// ScriptSet records which scripts a connection has run.
	ScriptSet = stream.ScriptSet

	// Pin is a connection that one session has for itself.
	Pin = pins.Pin

	// Ask is a request for a pin.
	Ask = pins.Ask

	// Driver moves the bytes of lanes in place of goroutines.
	Driver = wire.Driver

	// Mover moves the bytes of one lane.
	Mover = wire.Mover

	// Wire is a lane's side toward its connection.
	Wire = wire.Wire
)

// AnyNode stands for any server; if there is one, for that.
const AnyNode = topology.Any

// The reasons why a session gets no pin.
var (
	ErrPins     = pins.ErrNone
	ErrPinShare = pins.ErrShare
)

// Acquire returns a pin, or nil if there is none now for the one who asks. The pin may still be connecting: what is appended waits for
// it, and is reported as lost and unsent if Redis cannot be reached.
func (u *Upstream) Acquire(a Ask) *Pin { return u.pins.Acquire(a) }

// AwaitPin queues for a pin. Waiting addresses take turns. deliver is called once, from another goroutine:
// with the pin, or, after the wait limit, with the reason why there is none. The returned function withdraws the request; it
// reports false if deliver has been or is being called.
func (u *Upstream) AwaitPin(a Ask, deliver func(*Pin, error)) (withdraw func() bool) {
	return u.pins.Await(a, deliver)
}

// Pins counts the pins for work and those for logins.
func (u *Upstream) Pins() (work, logins pins.Status) { return u.pins.Status() }
