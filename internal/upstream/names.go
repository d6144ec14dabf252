package upstream

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/lanes"
	"github.com/lockproxy/lockproxy/internal/upstream/pins"
	"github.com/lockproxy/lockproxy/internal/upstream/stream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// The types of the packages below this one that sessions and engines use.
type (
	// Identity is the user, database and protocol version of a connection to Redis.
	Identity = dial.Identity

	// Node names one server.
	Node = topology.Node

	// Receiver gets the replies to a session's requests.
	Receiver = stream.Receiver

	// Observer gets the bytes on a pin that are no counted replies.
	Observer = stream.Observer

	// ScriptSet records which scripts a connection has run.
	ScriptSet = stream.ScriptSet

	// Lane is a connection that sessions share.
	Lane = lanes.Lane

	// LaneStatus describes one lane for people.
	LaneStatus = lanes.Status

	// Role is the use that a session has for a lane.
	Role = lanes.Role

	// Pin is a connection that one session has for itself.
	Pin = pins.Pin

	// Ask is a request for a pin.
	Ask = pins.Ask

	// PinLimits bound the pins.
	PinLimits = pins.Limits

	// Driver moves the bytes of lanes in place of goroutines.
	Driver = stream.Driver

	// Mover moves the bytes of one lane.
	Mover = stream.Mover

	// Wire is a lane's side toward its connection.
	Wire = stream.Wire
)

// AnyNode stands for any server; if there is one, for that.
const AnyNode = topology.Any

// The roles of lanes.
const (
	Reads   = lanes.Reads   // commands that change no data
	Writes  = lanes.Writes  // commands that may change data
	Scripts = lanes.Scripts // scripts of clients
	Large   = lanes.Large   // commands of a session whose replies are large
)

// The reasons why a session gets no pin.
var (
	ErrPins     = pins.ErrNone
	ErrPinShare = pins.ErrShare
)

// Lane returns a lane of an identity to a server that driver moves, connecting it if need be on owner's account.
// Goroutines move the lanes of a nil driver, and all lanes over TLS. If all places are taken, the lane that is returned
// refuses everything (Full). Each call is paired with one of Leave.
func (u *Upstream) Lane(id Identity, at Node, driver Driver, owner string, r Role) *Lane {
	return u.lanes.Lane(id, at, driver, owner, r)
}

// HasPlace reports whether there is a lane of an identity, or a place for one on owner's account.
func (u *Upstream) HasPlace(id Identity, at Node, driver Driver, owner string) bool {
	return u.lanes.HasPlace(id, at, driver, owner)
}

// Join returns the lane for reads of an identity if it is connected, else nil. Each call that returns one is paired
// with one of Leave.
func (u *Upstream) Join(id Identity, at Node, driver Driver) *Lane {
	return u.lanes.Join(id, at, driver)
}

// Move returns the lane that a user of l uses next. It may be l itself. No command of the caller may be outstanding on
// l.
func (u *Upstream) Move(l *Lane, r Role) *Lane { return u.lanes.Move(l, r) }

// Leave says that a caller of Lane does not use it any more. No command of the caller may be outstanding on it.
func (u *Upstream) Leave(l *Lane) { u.lanes.Leave(l) }

// Paused says that Redis holds back the writes of all clients until then; a time that is over says that it does not.
func (u *Upstream) Paused(until time.Time) { u.lanes.Paused(until) }

// HeldBack estimates the number of clients that wait because Redis holds back writes, beyond those that Redis counts as
// blocked. Redis counts a lane once.
func (u *Upstream) HeldBack() int { return u.lanes.HeldBack() }

// Lanes describes the lanes that serve new sessions, in no order.
func (u *Upstream) Lanes() []LaneStatus { return u.lanes.List() }

// LaneEvents are the numbers of lanes that were set aside, and of connections that lanes have lost, since the start.
func (u *Upstream) LaneEvents() (aside, lost int64) { return u.lanes.Counts() }

// Acquire returns a pin, or nil if there is none now for that owner. The pin may still be connecting: commands wait for
// it, and are reported as lost and unsent if Redis cannot be reached.
func (u *Upstream) Acquire(a Ask) *Pin { return u.pins.Acquire(a) }

// AwaitPin queues for a pin. Waiting addresses take turns. deliver is called once, from another goroutine: with the
// pin, or, after the wait limit, with the reason why there is none. The returned function withdraws the request; it
// reports false if deliver has been or is being called.
func (u *Upstream) AwaitPin(a Ask, deliver func(*Pin, error)) (withdraw func() bool) {
	return u.pins.Await(a, deliver)
}

// Pins counts the pins for work and those for logins.
func (u *Upstream) Pins() (work, logins pins.Status) { return u.pins.Status() }
