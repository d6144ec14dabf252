package proxy

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"lockproxy/internal/lockcmds"
	"lockproxy/internal/lockcmds/grammar"
)

// stats are counters for metrics and INFO lockproxy.
type stats struct {
	accepted atomic.Int64 // client connections
	clients  atomic.Int64 // connected now

	// Clients closed, by reason.
	rejected       atomic.Int64 // over max-clients
	handshakes     atomic.Int64 // no TLS or PROXY header, or not in time
	firstTimeouts  atomic.Int64 // no first command in time
	protocolErrors atomic.Int64
	queryLimit     atomic.Int64 // too much read and not yet parsed
	outputLimit    atomic.Int64 // too much not taken
	slowCommands   atomic.Int64 // a large command that did not come
	memoryLimit    atomic.Int64 // most of what all clients have, when that was too much
	panics         atomic.Int64 // by a bug

	loginsFailed atomic.Int64 // credentials that Redis has refused

	refused     atomic.Int64 // commands answered -NOUPSTREAM
	pinWaits    atomic.Int64 // sessions that had to wait for a pin
	pinTimeouts atomic.Int64 // and did not get one
	pinReasons  tally

	waits       [grammar.FairLock + 1]waits // by the verb that granted
	handovers   atomic.Int64
	attempts    atomic.Int64
	waitRefused atomic.Int64 // lock commands that may not wait
	lost        tally        // by reason
	repaired    atomic.Int64 // fence counters
}

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

// Waits says how long granted locks were waited for.
type Waits struct {
	Count   uint64
	Sum     time.Duration
	Buckets map[time.Duration]uint64 // how many took at most so long
}

// waitBounds are the upper bounds of all buckets but the last: from one round trip to a wait that somebody notices.
var waitBounds = [...]time.Duration{
	time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute,
}

// waits is a histogram.
type waits struct {
	buckets [len(waitBounds) + 1]atomic.Uint64
	sum     atomic.Int64 // nanoseconds
}

func (w *waits) add(d time.Duration) {
	i := 0
	for i < len(waitBounds) && d > waitBounds[i] {
		i++
	}
	w.buckets[i].Add(1)
	w.sum.Add(int64(d))
}

func (w *waits) snapshot() Waits {
	out := Waits{Sum: time.Duration(w.sum.Load()), Buckets: make(map[time.Duration]uint64, len(waitBounds))}
	for i := range w.buckets {
		out.Count += w.buckets[i].Load()
		if i < len(waitBounds) {
			out.Buckets[waitBounds[i]] = out.Count
		}
	}
	return out
}

// tally counts by words of a closed set.
type tally struct {
	mu    sync.Mutex
	count map[string]int
}

func (t *tally) add(word string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count == nil {
		t.count = map[string]int{}
	}
	if t.count[word] += n; t.count[word] == 0 {
		delete(t.count, word)
	}
}

func (t *tally) snapshot() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.count)
}

func (t *tally) sum() int {
	sum := 0
	for _, n := range t.snapshot() {
		sum += n
	}
	return sum
}

// String lists the counts that there are, "blpop=1,multi=2".
func (t *tally) String() string {
	count := t.snapshot()
	var parts []string
	for _, word := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, word+"="+strconv.Itoa(count[word]))
	}
	return strings.Join(parts, ",")
}

// Stats reads the counters, one after the other.
func (srv *Server) Stats() Stats {
	e := srv.env
	s := &e.stats
	out := Stats{
		Version:  e.opts.Version,
		Clients:  s.clients.Load(),
		Accepted: s.accepted.Load(),
		Closed: map[string]int64{
			"max_clients": s.rejected.Load(), "handshake": s.handshakes.Load(), "first_command": s.firstTimeouts.Load(),
			"protocol_error": s.protocolErrors.Load(), "query_limit": s.queryLimit.Load(), "output_limit": s.outputLimit.Load(),
			"slow_command": s.slowCommands.Load(), "memory_limit": s.memoryLimit.Load(), "panic": s.panics.Load(),
		},
		Refused:       map[string]int64{"NOUPSTREAM": s.refused.Load(), "OVERLOADED": s.pinTimeouts.Load() + s.waitRefused.Load()},
		Memory:        e.budget.Used(),
		MaxMemory:     e.budget.Limit(),
		Lanes:         len(e.upstream.Lanes()),
		LanesSetAside: e.upstream.SetAside(),
		PinReasons:    s.pinReasons.snapshot(),
		PinWaits:      s.pinWaits.Load(),
		PinTimeouts:   s.pinTimeouts.Load(),
		LoginsFailed:  s.loginsFailed.Load(),
		Held:          e.locks.held(),
		Waiting:       int(e.locks.waiting.Load()),
		Waits:         map[string]Waits{},
		HandedOver:    s.handovers.Load(),
		Attempts:      s.attempts.Load(),
		Lost:          map[string]int64{},

		FencesRepaired: s.repaired.Load(),
	}
	out.UpstreamUp, _ = e.upstream.Ready()
	work, logins := e.upstream.Pins()
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

// lockEvents are what the lock engines report.
func (e *env) lockEvents() lockcmds.Events {
	return lockcmds.Events{
		Granted:    func(v grammar.Verb, waited time.Duration) { e.stats.waits[v].add(waited) },
		HandedOver: func() { e.stats.handovers.Add(1) },
		Attempt:    func() { e.stats.attempts.Add(1) },
		Refused:    func() { e.stats.waitRefused.Add(1) },
		Lost:       func(reason string) { e.stats.lost.add(reason, 1) },
		Repaired:   func() { e.stats.repaired.Add(1) },
	}
}

// firstTimeout counts and logs a client that is closed because its first command has not come in time.
func (e *env) firstTimeout(client string) {
	e.stats.firstTimeouts.Add(1)
	e.opts.Logger.Debug("client closed: no first command in time", zap.String("client", client))
}

// queryLimit counts and logs a client that is closed because what it has sent cannot be worked off.
func (e *env) queryLimit(client string, n int) {
	e.stats.queryLimit.Add(1)
	e.opts.Logger.Warn("client closed: query buffer limit", zap.String("client", client), zap.Int("bytes", n))
}
