package session

import (
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A route is the way of a session's commands to Redis: to one server (single), or to those of a cluster
// (cluster.Route). Its methods require the session lock, but for PlacesEach.
type route interface {
	// Place says where a command goes, which is about to be routed, or answers it.
	Place(r *request) command.Decision

	// Send sends a command, in these words, where it has been placed. h handles the reply; nil: it passes to the client.
	Send(r *request, raw []byte, h reply.Handler)

	// Guard returns the handler of the reply to a command that is sent on the pin, where to is that of a reply that is
	// no refusal for another server's sake.
	Guard(r *request, to reply.Handler) reply.Handler

	// PlacesEach reports whether each command has a server of its own. Then it is placed by itself, and does not wait in
	// its connection if it could not be sent: another server may serve it by then.
	PlacesEach() bool

	// Stream finds the server of a large command of that size, of which the start has come. false: it must be held
	// whole, or the session waits. Commands of up to room bytes may be held whole.
	Stream(r *request, size, room int) bool

	// Home is the server for commands without a key; Any: there is one. Conn is a connection to a server.
	Home() upstream.Node
	Conn(row *command.Row, at upstream.Node) upstream.Connection

	// Script sends a call of a script with these keys. build makes the command for the connection by which it is sent.
	Script(keys []string, build func(upstream.Connection) []byte, h reply.Handler) reply.Sent

	// Refusal is the reply to a command that was not sent, because no server of it can be reached; nil: there is none.
	Refusal() []byte

	// Mask has a reply to HELLO or INFO say that there is one server.
	Mask(command string, reply []byte) []byte

	// Leave leaves the lanes. Drop gives up everything. Bytes is the memory that the route holds for its client, who is
	// not at a quiet moment meanwhile.
	Leave()
	Drop()
	Bytes() int
}

// single is the route to one server: the session's lane, or its pin.
type single struct{ s *Session }

func (single) Place(*request) command.Decision                              { return command.Undecided }
func (single) Guard(_ *request, to reply.Handler) reply.Handler             { return to }
func (single) PlacesEach() bool                                             { return false }
func (single) Stream(*request, int, int) bool                               { return true }
func (single) Home() upstream.Node                                          { return topology.Any }
func (w single) Conn(row *command.Row, _ upstream.Node) upstream.Connection { return w.s.conn(row) }
func (single) Refusal() []byte                                              { return nil }
func (single) Mask(_ string, reply []byte) []byte                           { return reply }
func (single) Drop()                                                        {}
func (single) Bytes() int                                                   { return 0 }

func (w single) Leave() {
	if w.s.lane != nil {
		w.s.proxy.Upstream.Lanes.Leave(w.s.lane)
		w.s.lane = nil
	}
}

func (w single) Send(r *request, raw []byte, h reply.Handler) { w.s.forward(r.Row, raw, h, 1) }

func (w single) Script(_ []string, build func(upstream.Connection) []byte, h reply.Handler) reply.Sent {
	w.s.forward(callRow, build(w.By()), h, 1)
	return w
}

// By implements reply.Sent.
func (w single) By() upstream.Connection { return w.s.conn(callRow) }

// Again implements reply.Sent.
func (w single) Again(at reply.ID, raw []byte) { w.s.transmit(w.By(), raw, at, 1) }

var _ route = single{}
