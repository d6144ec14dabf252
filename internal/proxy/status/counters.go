// Package status counts what happens in the proxy and says how each number is shown.
//
//	Counters ────────┐
//	                 ├─► Source ─► Stats ─► Table ─┬─► INFO lockproxy
//	gauges, measured ┘                             ├─► /metrics
//	                                               ├─► the status page
//	                                               └─► docs/COUNTERS.md
//
// Table has one row for each number. A new counter needs a field of Counters, one of Stats, and a row; the tests of this
// package fail if the row is missing.
//
// Any goroutine may change a counter. Counting never blocks: a counter is an atomic number, or a small map behind a mutex of
// its own under which nothing else happens. The package starts no goroutine.
package status

import (
	"sync/atomic"
	"time"

	"lockproxy/internal/lockcmds"
	"lockproxy/internal/lockcmds/grammar"
)

// Counters are the numbers that the proxy keeps itself. All but Clients and PinReasons only grow. The zero value is ready.
type Counters struct {
	Accepted atomic.Int64 // client connections
	Clients  atomic.Int64 // client connections that are open

	// Clients that the proxy has closed, by reason.
	Rejected       atomic.Int64 // more than max-clients
	Handshakes     atomic.Int64 // no TLS or PROXY header, or not in time
	FirstTimeouts  atomic.Int64 // no first command in time
	ProtocolErrors atomic.Int64
	QueryLimit     atomic.Int64 // too many bytes read and not yet parsed
	OutputLimit    atomic.Int64 // too many bytes not taken by the client
	SlowCommands   atomic.Int64 // a large command that did not come
	MemoryLimit    atomic.Int64 // the largest client when all together had too much
	Panics         atomic.Int64 // a bug

	LoginsFailed atomic.Int64 // credentials that Redis has refused

	Refused     atomic.Int64 // commands answered -NOUPSTREAM
	PinWaits    atomic.Int64 // commands that had to wait for a pin
	PinTimeouts atomic.Int64 // commands that waited for a pin and got none
	PinReasons  tally        // pins in use, by command

	waits       [grammar.FairLock + 1]histogram // that ended with a grant, by verb
	handovers   atomic.Int64                    // grants in the same step as a release
	attempts    atomic.Int64                    // attempts on behalf of waiters
	waitRefused atomic.Int64                    // lock commands that found too many waiters
	reentered   atomic.Int64                    // acquires by a connection that held the lock already, without OWNER
	noReentry   atomic.Int64                    // the same, refused
	lost        tally                           // locks, by reason
	repaired    atomic.Int64                    // fence counters
}

// LockEvents are the events that the lock engines report.
func (c *Counters) LockEvents() lockcmds.Events {
	return lockcmds.Events{
		Granted:    func(v grammar.Verb, waited time.Duration) { c.waits[v].add(waited) },
		HandedOver: func() { c.handovers.Add(1) },
		Attempt:    func() { c.attempts.Add(1) },
		Refused:    func(string, string) { c.waitRefused.Add(1) },
		Lost:       func(reason string) { c.lost.Add(reason, 1) },
		Repaired:   func() { c.repaired.Add(1) },
	}
}

// Reentered counts an acquire by a connection that held the lock already, without OWNER.
func (c *Counters) Reentered(refused bool) {
	if refused {
		c.noReentry.Add(1)
	} else {
		c.reentered.Add(1)
	}
}
