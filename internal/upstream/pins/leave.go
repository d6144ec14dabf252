package pins

import (
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// Leaving is called when a server has moved. Idle pins at its old address are closed. The others are returned, for the
// caller to Leave and Abort. No session gets one of them any more.
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

// DropAt closes the idle pins that lead to servers that are gone, and returns those of these servers to which others
// lead. No other session gets one of these.
func (ps *Pins) DropAt(gone func(at topology.Node) bool) (used []topology.Node) {
	ps.dropIdle(func(p *Pin) bool { return gone(p.target.At) })
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for p := range ps.all {
		if at := p.target.At; p.lent && gone(at) {
			p.leaves = true
			used = append(used, at)
		}
	}
	return used
}

// EndAt ends the pins that lead to a server. If it is alive, a session keeps a pin on which nothing is outstanding: it
// may be in a transaction.
func (ps *Pins) EndAt(node topology.Node, alive bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for p := range ps.all {
		if p.lent && p.target.At == node && (!alive || p.Outstanding() > 0) {
			p.abort()
		}
	}
}

// Abort ends the connection. Requests on their way are reported as sent, and the session learns of the end.
func (p *Pin) Abort() { dial.Abort(p.nc) }
