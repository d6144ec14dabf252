package status

import (
	"strings"
	"time"

	"lockproxy/internal/lockcmds"
	"lockproxy/internal/lockcmds/grammar"
	"lockproxy/internal/proxy/budget"
	"lockproxy/internal/upstream"
)

// Stats is a snapshot of what a server counts. Totals only grow. Labels are from closed sets.
type Stats struct {
	Version    string
	UpstreamUp bool // Redis was there when it was last heard of

	Clients  int64            // connected now
	Accepted int64            // since the start
	Closed   map[string]int64 // clients closed by the proxy, by reason
	Refused  map[string]int64 // commands that were not sent, by error code

	Memory, MaxMemory int64 // bytes of buffers of all clients together, and the most they may have

	Lanes                  int
	LanesSetAside          int64 // since the start, because they stood still
	PinsOpen, PinsIdle     int
	LoginsOpen, LoginsIdle int            // connections on which Redis judges identity changes
	PinReasons             map[string]int // pins in use, by the command that made each necessary
	PinWaits, PinTimeouts  int64
	LoginsFailed           int64 // credentials that Redis has refused

	Held, Waiting        int
	Waits                map[string]Waits // grants, by verb
	HandedOver, Attempts int64
	Lost                 map[string]int64 // by reason
	FencesRepaired       int64            // times the fence counter was set to Redis's time
}

// A Source is where the numbers of one proxy come from.
type Source struct {
	Version, UUID string
	Started       time.Time

	Counters *Counters
	Upstream *upstream.Upstream
	Memory   *budget.Budget
	Locks    LockEngines
}

// LockEngines is what a Source needs of the lock engines.
type LockEngines interface {
	// Held is the number of locks that clients of this proxy hold.
	Held() int

	// Waiting is the number of clients that wait for a lock.
	Waiting() int
}

// Stats reads the counters, one after the other.
func (src *Source) Stats() Stats {
	s := src.Counters
	out := Stats{
		Version:  src.Version,
		Clients:  s.Clients.Load(),
		Accepted: s.Accepted.Load(),
		Closed: map[string]int64{
			"max_clients": s.Rejected.Load(), "handshake": s.Handshakes.Load(), "first_command": s.FirstTimeouts.Load(),
			"protocol_error": s.ProtocolErrors.Load(), "query_limit": s.QueryLimit.Load(), "output_limit": s.OutputLimit.Load(),
			"slow_command": s.SlowCommands.Load(), "memory_limit": s.MemoryLimit.Load(), "panic": s.Panics.Load(),
		},
		Refused:       map[string]int64{"NOUPSTREAM": s.Refused.Load(), "OVERLOADED": s.PinTimeouts.Load() + s.waitRefused.Load()},
		Memory:        src.Memory.Used(),
		MaxMemory:     src.Memory.Limit(),
		Lanes:         len(src.Upstream.Lanes()),
		LanesSetAside: src.Upstream.SetAside(),
		PinReasons:    s.PinReasons.snapshot(),
		PinWaits:      s.PinWaits.Load(),
		PinTimeouts:   s.PinTimeouts.Load(),
		LoginsFailed:  s.LoginsFailed.Load(),
		Held:          src.Locks.Held(),
		Waiting:       src.Locks.Waiting(),
		Waits:         map[string]Waits{},
		HandedOver:    s.handovers.Load(),
		Attempts:      s.attempts.Load(),
		Lost:          map[string]int64{},

		FencesRepaired: s.repaired.Load(),
	}
	out.UpstreamUp, _ = src.Upstream.Ready()
	work, logins := src.Upstream.Pins()
	out.PinsOpen, out.PinsIdle, out.LoginsOpen, out.LoginsIdle = work.Open, work.Idle, logins.Open, logins.Idle
	for _, verb := range []grammar.Verb{grammar.Lock, grammar.TryLock, grammar.FairLock} {
		out.Waits[strings.ToLower(verb.String())] = s.waits[verb].snapshot()
	}
	for _, reason := range lockcmds.LossReasons() {
		out.Lost[reason] = 0
	}
	for reason, n := range s.lost.snapshot() {
		out.Lost[reason] = int64(n)
	}
	return out
}
