package upstream

import (
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

	// Mark is the moment at which requests were handed to a socket.
	Mark = stream.Mark

	// Lane is a connection that sessions share.
	Lane = lanes.Lane

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

	// Stream is what a lane has appended, and the replies that it awaits.
	Stream = stream.Stream
)

// A Connection is a lane or a pin.
type Connection interface {
	Append(b []byte, to Receiver, tag uint64, n int) error
	Progress() (appended, written int64)
	Scripts() *ScriptSet
	Rejected() bool
	IsUp() bool
	Note(m *Mark)
}

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
