package cluster

import (
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// clusterDown is the reply to a command for a server that cannot be reached, while others can.
var clusterDown = resp.AppendRawError(nil, "CLUSTERDOWN no server of the slot is reachable, nothing was done")

// guarded looks for refusals for another server's sake among the replies to a command, or to a transaction, on a pin.
// The client gets no redirection.
type guarded struct {
	host    Host
	to      reply.Handler                                // of other replies; nil: they pass to the client
	slot    int                                          // of the command: a refusal of another slot is none
	ahead   ahead                                        // the replies that come first
	refused func(at reply.ID, why topology.Refusal) bool // false: the command has been refused for too long
	unsent  func() bool                                  // it could not be sent; false: the client is told; nil: always

	failure failure
}

// A failure is a reply so far, if it is an error: it may be a refusal, so it is looked at when it is whole.
type failure struct {
	begun bool   // bytes of the reply have come
	words []byte // empty: it is no error
}

// longestRefusal is the number of bytes of an error that may be a refusal. A longer one passes as it comes.
const longestRefusal = 64 << 10

// take takes bytes of the reply. It returns those to go on with; nil: more must come first.
func (f *failure) take(b []byte, more bool) []byte {
	if !f.begun && b[0] == '-' || len(f.words) > 0 {
		f.words = append(f.words, b...)
		b = f.words
	}
	f.begun = true
	if more && len(f.words) > 0 {
		if len(b) <= longestRefusal {
			return nil
		}
		f.words = nil
	}
	return b
}

// Take implements reply.Handler.
func (g *guarded) Take(at reply.ID, b []byte, n int, more bool) int {
	rest, left := g.ahead.strip(b, n)
	if ran, _ := g.ahead.ranAlone(); ran {
		g.host.Abandon()
	}
	if n -= left; len(rest) > 0 {
		n += g.take(at, rest, left, more)
	}
	return n
}

// take takes bytes of the reply that counts.
func (g *guarded) take(at reply.ID, b []byte, n int, more bool) int {
	if b = g.failure.take(b, more); b == nil {
		return 0
	}
	if len(g.failure.words) > 0 {
		b = g.ahead.judge(g.slot, b)
		why := topology.ReadWaitingRefusal(b)
		switch {
		case !why.Concerns(g.slot):
		case g.refused(at, why):
			return n
		case why.Reason != topology.TryLate: // the client knows no other servers
			b = clusterDown
		}
	}
	if g.to != nil {
		return g.to.Take(at, b, n, more)
	}
	g.host.Pass(at, b, more)
	return n
}

// Lost implements reply.Handler.
func (g *guarded) Lost(at reply.ID, _ int, sent bool) {
	if !sent && g.unsent != nil && g.unsent() {
		return
	}
	if g.to != nil {
		g.to.Lost(at, 1, sent)
		return
	}
	g.host.Refuse(at, 1)
}

// Asker is the handler of other replies.
func (g *guarded) Asker() reply.Handler { return g.to }

var _ reply.Handler = (*guarded)(nil)
