package session

import (
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A route is the way of a session's commands to Redis: to one server, or to those of a cluster. Its methods require the
// session lock.
type route interface {
	// place says where a command goes, which is about to be routed, or answers it.
	place(r *request) decision

	// send sends a command, in these words, where it has been placed. h handles the reply; nil: it passes to the client.
	send(r *request, raw []byte, h reply.Handler)

	// guard returns the handler of the reply to a command that is sent on the pin, where to is that of a reply that is
	// no refusal for another server's sake.
	guard(r *request, to reply.Handler) reply.Handler

	// placesEach reports whether each command has a server of its own. Then it is placed by itself, and does not wait in
	// its connection if it could not be sent: another server may serve it by then.
	placesEach() bool

	// stream finds the server of a large command, of which the start has come. false: it must be held whole, or the
	// session waits.
	stream(r *request, size int) bool

	// home is the server for commands without a key; Any: there is one. conn is a connection to a server.
	home() upstream.Node
	conn(row *command.Row, at upstream.Node) connection

	// script sends a script call of the lock engine.
	script(c *scriptCall) sentScript

	// refusal is the reply to a command that was not sent, because no server of it can be reached; nil: there is none.
	refusal() []byte

	// mask has a reply to HELLO or INFO say that there is one server.
	mask(command string, reply []byte) []byte

	// leave leaves the lanes, drop gives up everything. bytes is the memory that the route holds for its client, who is
	// not at a quiet moment meanwhile.
	leave()
	drop()
	bytes() int
}

// A sentScript is a script call that has been sent.
type sentScript interface {
	// by is the connection by which it was sent.
	by() connection

	// again sends it in other words. Their reply comes in the place of its answer.
	again(at reply.ID, raw []byte)
}

// single is the route to one server: the session's lane, or its pin.
type single struct{ s *Session }

func (single) place(*request) decision                             { return undecided }
func (single) guard(_ *request, to reply.Handler) reply.Handler    { return to }
func (single) placesEach() bool                                    { return false }
func (single) stream(*request, int) bool                           { return true }
func (single) home() upstream.Node                                 { return topology.Any }
func (w single) conn(row *command.Row, _ upstream.Node) connection { return w.s.conn(row) }
func (single) refusal() []byte                                     { return nil }
func (single) mask(_ string, reply []byte) []byte                  { return reply }
func (single) leave()                                              {}
func (single) drop()                                               {}
func (single) bytes() int                                          { return 0 }

func (w single) send(r *request, raw []byte, h reply.Handler) { w.s.forward(r.Row, raw, h, 1) }

func (w single) script(c *scriptCall) sentScript {
	w.s.forward(callRow, c.build(w.s.conn(callRow)), c, 1)
	return w
}

func (w single) by() connection { return w.s.conn(callRow) }

func (w single) again(at reply.ID, raw []byte) { w.s.transmit(w.by(), raw, at, 1) }

var _ route = single{}
