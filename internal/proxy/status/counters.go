// Package status counts what a proxy does, and says it: a snapshot for metrics and the status page, and the section lockproxy of INFO.
// Counting never blocks.
package status

import (
	"sync/atomic"
	"time"

	"lockproxy/internal/lockcmds"
	"lockproxy/internal/lockcmds/grammar"
)

// Counters are what a proxy counts while it runs. All fields may be changed from any goroutine.
type Counters struct {
	Accepted atomic.Int64 // client connections
	Clients  atomic.Int64 // connected now

	// Clients closed, by reason.
	Rejected       atomic.Int64 // over max-clients
	Handshakes     atomic.Int64 // no TLS or PROXY header, or not in time
	FirstTimeouts  atomic.Int64 // no first command in time
	ProtocolErrors atomic.Int64
	QueryLimit     atomic.Int64 // too much read and not yet parsed
	OutputLimit    atomic.Int64 // too much not taken
	SlowCommands   atomic.Int64 // a large command that did not come
	MemoryLimit    atomic.Int64 // most of what all clients have, when that was too much
	Panics         atomic.Int64 // by a bug

	LoginsFailed atomic.Int64 // credentials that Redis has refused

	Refused     atomic.Int64 // commands answered -NOUPSTREAM
	PinWaits    atomic.Int64 // sessions that had to wait for a pin
	PinTimeouts atomic.Int64 // and did not get one
	PinReasons  tally

	waits       [grammar.FairLock + 1]histogram // by the verb that granted
	handovers   atomic.Int64
	attempts    atomic.Int64
	waitRefused atomic.Int64 // lock commands that may not wait
	lost        tally        // by reason
	repaired    atomic.Int64 // fence counters
}

// LockEvents are what the lock engines report.
func (c *Counters) LockEvents() lockcmds.Events {
	return lockcmds.Events{
		Granted:    func(v grammar.Verb, waited time.Duration) { c.waits[v].add(waited) },
		HandedOver: func() { c.handovers.Add(1) },
		Attempt:    func() { c.attempts.Add(1) },
		Refused:    func() { c.waitRefused.Add(1) },
		Lost:       func(reason string) { c.lost.Add(reason, 1) },
		Repaired:   func() { c.repaired.Add(1) },
	}
}
