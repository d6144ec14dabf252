// Package metrics counts what happens in the proxy and says how each number is shown.
//
//	Counters ────────┐
//	                 ├─► Source ─► Stats ─► Table ─┬─► INFO lockproxy
//	gauges, measured ┘                             ├─► /metrics
//	                                               └─► docs/METRICS.md
//
// Table has one row for each number. A new counter needs a field of Counters, one of Stats, and a row; the tests of
// this package fail if the row is missing.
//
// Any goroutine may change a counter. Counting never blocks: a counter is an atomic number, or a small map behind a
// mutex of its own under which nothing else happens. The package starts no goroutine.
package metrics

import (
	"bytes"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

// Reason says why the proxy has closed a client.
type Reason uint8

// The reasons.
const (
	TooManyClients Reason = iota // more than max-clients
	NoHandshake                  // no TLS or PROXY header, or not in time
	ProtocolError
	QueryLimit  // too many bytes read and not yet parsed
	OutputLimit // too many bytes not taken by the client
	PubSubLimit // the same, by a client with subscriptions
	SlowCommand // a large command that did not come
	MemoryLimit // the largest client when all together had too much
	Panic       // a bug
	Outage      // Redis could not be reached, or its answer was lost
)

// reasons are their labels.
var reasons = [...]string{
	TooManyClients: "max_clients", NoHandshake: "handshake", ProtocolError: "protocol_error", QueryLimit: "query_limit",
	OutputLimit: "output_limit", PubSubLimit: "pubsub_limit", SlowCommand: "slow_command", MemoryLimit: "memory_limit",
	Panic: "panic", Outage: "upstream",
}

// Counters are the numbers that the proxy keeps itself. All but Clients and PinReasons only grow. The zero value is
// ready.
type Counters struct {
	Accepted atomic.Int64 // client connections
	Clients  atomic.Int64 // client connections that are open

	Closed [len(reasons)]atomic.Int64 // clients that the proxy has closed, by Reason

	LocksLeft atomic.Int64 // held by clients that were closed because of Redis

	LoginsFailed atomic.Int64 // credentials that Redis has refused

	Overloaded  atomic.Int64 // commands answered -OVERLOADED
	PinWaits    atomic.Int64 // commands that had to wait for a pin
	PinTimeouts atomic.Int64 // commands that waited for a pin and got none
	PinReasons  Tally        // pins in use, by command

	Traffic Traffic // commands and bytes

	proxyTime, upstreamTime [Classes]Histogram // of measured commands, by class

	errors      Tally                             // answers of the proxy's own codes to lock commands
	waits       [grammar.FairLock + 1]Histogram   // that ended with a grant, by verb
	queued      [4]Histogram                      // stays in wait queues, by outcome: see queuedNames
	holds       [len(lockcmds.HoldEnds)]Histogram // by their end
	handoverIn  [1]Histogram                      // from the release to the answer that grants the lock to a waiter
	renewed     atomic.Int64                      // renewals
	renewedLate atomic.Int64                      // of these, with less than a third of the lease left
	renewFailed atomic.Int64                      // attempts without an answer
	renewGone   atomic.Int64                      // renewals of locks that were gone
	margin      Least                             // of the lease, when a renewal was answered
	handovers   atomic.Int64                      // grants in the same step as a release
	attempts    atomic.Int64                      // attempts on behalf of waiters
	waitRefused atomic.Int64                      // lock commands that found too many waiters
	reentered   atomic.Int64                      // acquires by a connection that held the lock, without OWNER
	lost        Tally                             // locks, by reason
	repaired    atomic.Int64                      // fence counters
}

// Timed counts the times of one measured command: in the proxy, and at Redis; the latter is negative if it was not
// sent.
func (c *Counters) Timed(class int, proxy, upstream time.Duration) {
	c.proxyTime[class].Add(proxy)
	if upstream >= 0 {
		c.upstreamTime[class].Add(upstream)
	}
}

// LockEvents are the events that the lock engines report.
func (c *Counters) LockEvents() lockcmds.Events {
	return lockcmds.Events{
		Granted: func(v grammar.Verb, waited time.Duration) { c.waits[v].Add(waited) },
		HandedOver: func(took time.Duration) {
			c.handovers.Add(1)
			c.handoverIn[0].Add(took)
		},
		Left:  func(outcome table.Outcome, waited time.Duration) { c.queued[queuedAs(outcome)].Add(waited) },
		Ended: func(end lockcmds.HoldEnd, held time.Duration) { c.holds[end].Add(held) },
		Renewed: func(r watchdog.Round) {
			c.renewed.Add(int64(r.Done))
			c.renewedLate.Add(int64(r.Late))
			c.renewFailed.Add(int64(r.Failed))
			c.renewGone.Add(int64(r.Gone))
			if r.Done > 0 {
				c.margin.Add(time.Now(), r.Margin)
			}
		},
		Attempt:  func() { c.attempts.Add(1) },
		Refused:  func(string, string) { c.waitRefused.Add(1) },
		Lost:     func(reason string) { c.lost.Add(reason, 1) },
		Repaired: func() { c.repaired.Add(1) },
	}
}

// queuedNames are the outcomes of waits.
var queuedNames = [4]string{"granted", "timed_out", "refused", "client_gone"}

func queuedAs(o table.Outcome) int {
	switch o {
	case table.Granted:
		return 0
	case table.Null:
		return 1
	case table.Gone:
		return 3
	default:
		return 2
	}
}

// LockAnswer counts the answer to a lock command if it is an error of the proxy's own.
func (c *Counters) LockAnswer(reply []byte) {
	if len(reply) == 0 || reply[0] != '-' {
		return
	}
	code, _, _ := bytes.Cut(reply[1:], []byte(" "))
	for _, own := range resp.Codes() {
		if string(code) == string(own) {
			c.errors.Add(string(own), 1)
			return
		}
	}
	c.errors.Add(otherCode, 1)
}

// otherCode stands for all codes of Redis.
const otherCode = "redis"

// Reentered counts an acquire by a connection that held the lock already, without OWNER.
func (c *Counters) Reentered() { c.reentered.Add(1) }
