package status

import (
	"os"
	"strings"
	"time"

	"lockproxy/internal/lockcmds"
	"lockproxy/internal/lockcmds/grammar"
	"lockproxy/internal/proxy/budget"
	"lockproxy/internal/upstream"
)

// Stats holds all numbers at one moment. Labels are from closed sets.
type Stats struct {
	Version, UUID string
	Process       int           // id of the process
	Uptime        time.Duration // since the start
	UpstreamUp    bool          // Redis was reachable at the last contact

	Clients  int64
	Accepted int64
	Closed   map[string]int64 // clients closed by the proxy, by reason
	Refused  map[string]int64 // commands that were not sent, by error code

	Memory, MaxMemory int64 // bytes in the buffers of all clients together, and their limit

	Lanes                         int
	LanesSetAside                 int64            // since the start, because they stood still
	Moves                         int64            // of the primary to another address, since the start
	PinsOpen, PinsIdle, PinsReady int              // PinsIdle of PinsOpen have no session; on PinsReady of these a command is sent at once
	LoginsOpen, LoginsIdle        int              // connections on which Redis judges identity changes
	PinReasons                    map[string]int64 // pins in use, by the command that made each necessary
	PinWaits, PinTimeouts         int64
	LoginsFailed                  int64

	Held, Waiting        int // locks held through this proxy, clients that wait for locks
	WaitsRefused         int64
	Waits                map[string]Waits // grants, by verb
	HandedOver, Attempts int64
	Lost                 map[string]int64 // locks, by reason
	FencesRepaired       int64
	Reentries            map[string]int64 // acquires by a connection that held the lock already, without OWNER, by outcome
}

// A Source has everything that the numbers of one proxy are read from.
type Source struct {
	Version, UUID string
	Started       time.Time

	Counters *Counters
	Upstream *upstream.Upstream
	Memory   *budget.Budget
	Locks    LockEngines
}

// LockEngines counts for a Source.
type LockEngines interface {
	// Held is the number of locks that clients of this proxy hold.
	Held() int

	// Waiting is the number of clients that wait for a lock.
	Waiting() int
}

// Stats reads the numbers, one after the other.
func (src *Source) Stats() Stats {
	s := Stats{
		Version:       src.Version,
		UUID:          src.UUID,
		Process:       os.Getpid(),
		Uptime:        time.Since(src.Started),
		Memory:        src.Memory.Used(),
		MaxMemory:     src.Memory.Limit(),
		Lanes:         len(src.Upstream.Lanes()),
		LanesSetAside: src.Upstream.SetAside(),
		Moves:         src.Upstream.Moves(),
		Held:          src.Locks.Held(),
		Waiting:       src.Locks.Waiting(),
	}
	s.UpstreamUp, _ = src.Upstream.Ready()
	work, logins := src.Upstream.Pins()
	s.PinsOpen, s.PinsIdle, s.PinsReady = work.Open, work.Idle, work.Ready
	s.LoginsOpen, s.LoginsIdle = logins.Open, logins.Idle
	src.Counters.read(&s)
	return s
}

// read fills in the numbers that are counted.
func (c *Counters) read(s *Stats) {
	s.Clients = c.Clients.Load()
	s.Accepted = c.Accepted.Load()
	s.Closed = map[string]int64{
		"max_clients": c.Rejected.Load(), "handshake": c.Handshakes.Load(), "first_command": c.FirstTimeouts.Load(),
		"protocol_error": c.ProtocolErrors.Load(), "query_limit": c.QueryLimit.Load(), "output_limit": c.OutputLimit.Load(),
		"slow_command": c.SlowCommands.Load(), "memory_limit": c.MemoryLimit.Load(), "panic": c.Panics.Load(),
	}
	s.Refused = map[string]int64{"NOUPSTREAM": c.Refused.Load(), "OVERLOADED": c.PinTimeouts.Load() + c.waitRefused.Load()}
	s.PinReasons = c.PinReasons.snapshot()
	s.PinWaits = c.PinWaits.Load()
	s.PinTimeouts = c.PinTimeouts.Load()
	s.LoginsFailed = c.LoginsFailed.Load()
	s.WaitsRefused = c.waitRefused.Load()
	s.Waits = map[string]Waits{}
	for _, verb := range []grammar.Verb{grammar.Lock, grammar.TryLock, grammar.FairLock} {
		s.Waits[strings.ToLower(verb.String())] = c.waits[verb].snapshot()
	}
	s.HandedOver = c.handovers.Load()
	s.Attempts = c.attempts.Load()
	s.Lost = c.lost.snapshot()
	for _, reason := range lockcmds.LossReasons() {
		s.Lost[reason] += 0 // a reason is shown before its first loss
	}
	s.FencesRepaired = c.repaired.Load()
	s.Reentries = map[string]int64{"granted": c.reentered.Load(), "refused": c.noReentry.Load()}
}
