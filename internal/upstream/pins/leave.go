package pins

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/stream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// Leaving is called when a server has moved. Idle pins at its old address are closed. The others are returned, for the caller to Leave and
// Abort. No session gets one of them any more.
func (ps *Pins) Leaving(at topology.Node) []*Pin {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	elsewhere := func(p *Pin) bool {
		return p.target.At == at && p.up.Load() && ps.opts.Dialer.IsElsewhere(at, p.nc)
	}
	ps.dropIdleLocked(elsewhere)
	var lent []*Pin
	for p := range ps.all {
		if elsewhere(p) {
			p.leaves = true
			lent = append(lent, p)
		}
	}
	return lent
}

// DropAt closes the pins that lead to servers that are gone: idle ones at once, others after a time for their replies, unless the server is back by then.
// No other session gets one of them. A session keeps a pin to a server that is alive if nothing is outstanding by then: it may be in a transaction. gone
// and alive are called once more then.
func (ps *Pins) DropAt(gone, alive func(at topology.Node) bool, grace func(at topology.Node) time.Duration) {
	ps.dropIdle(func(p *Pin) bool { return gone(p.target.At) })
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for p := range ps.all {
		at := p.target.At
		if !p.lent || !gone(at) {
			continue
		}
		p.leaves = true
		time.AfterFunc(grace(at), func() {
			if gone(at) && (!alive(at) || stream.Outstanding(p.stream) > 0) {
				p.abort()
			}
		})
	}
}

// Leave reports whether no request is on its way. The session's further requests wait.
func (p *Pin) Leave() (settled bool) { return p.stream.Leave() }

// Abort ends the connection. Requests on their way are reported as sent, and the session learns of the end.
func (p *Pin) Abort() { dial.Abort(p.nc) }
