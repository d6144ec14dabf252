package metrics

import (
	"os"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/proxy/budget"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// Stats holds all numbers at one moment. Labels are from closed sets.
type Stats struct {
	Version, Revision, UUID string
	Process                 int              // id of the process
	Uptime                  time.Duration    // since the start
	UpstreamUp              bool             // Redis was reachable at the last contact
	UpstreamError           string           // why not
	UpstreamDown            time.Duration    // since then
	LocksLeft               int64            // of clients that were closed because of Redis
	CertificateEnds         map[string]int64 // the proxy's own, in seconds since 1970, by side

	Clients    int64
	Accepted   int64
	Closed     map[string]int64 // clients closed by the proxy, by reason
	Overloaded int64            // commands that were not sent, but answered -OVERLOADED

	Memory, MaxMemory int64 // bytes in the buffers of all clients together, and their limit

	Lanes            int
	LanesSetAside    int64            // since the start, because they stood still
	Moves            int64            // of the primary to another address, since the start
	Redirections     map[string]int64 // commands that another server of a cluster should get, by reason
	Refreshes, Views int64            // questions about the servers of a cluster, and changes that were found
	// PinsIdle of PinsOpen have no session; on PinsReady of these a command is sent at once.
	PinsOpen, PinsIdle, PinsReady int
	LoginsOpen, LoginsIdle        int              // connections on which Redis judges identity changes
	PinReasons                    map[string]int64 // pins in use, by the command that made each necessary
	PinWaits, PinTimeouts         int64
	LoginsFailed                  int64

	Commands, Bytes map[string]int64 // of clients, by class
	ProxyTime       map[string]Waits // of measured commands, by class
	UpstreamTime    map[string]Waits
	LaneCommands    int64            // without an answer, on all lanes together
	LaneBytes       int64            // that lanes have not written
	Reconnects      int64            // connections to Redis that lanes have lost
	Loops           int              // event loops
	LoopsBusy       time.Duration    // all together, since the start
	Limits          map[string]int64 // by setting
	LogDropped      map[string]int64 // entries of the log, by kind

	LockErrors    map[string]int64 // answers to lock commands, by code
	Queued        map[string]Waits // stays in wait queues, by outcome
	Holds         map[string]Waits // by end
	Handovers     map[string]Waits // from the release to the grant
	Renewals      map[string]int64 // by outcome
	RenewalMargin time.Duration    // the least of the last minute; -1 s: there was no renewal

	Held, Waiting        int              // holds of locks through this proxy, clients that wait for locks
	HeldBy               map[string]int64 // holds, by mode
	OldestWait           time.Duration    // of these, the one that has waited for longest; -1 s: none waits
	WaitsRefused         int64
	Waits                map[string]Waits // grants, by verb
	HandedOver, Attempts int64
	Lost                 map[string]int64 // locks, by reason; client_gone: no client was told
	FencesRepaired       int64
	HotLocks             []lockcmds.HotLock // those of one account; only for INFO
	Reentries            int64              // acquires by a connection that held the lock already, without OWNER
}

// A Source has everything that the numbers of one proxy are read from.
type Source struct {
	Version, Revision, UUID string
	Started                 time.Time

	Counters     Counters
	Upstream     *upstream.Upstream
	Budget       *budget.Budget
	Locks        *lockcmds.Registry
	Certificates func() map[string]time.Time        // the ends of the proxy's own, by side; nil: none
	InForce      func() map[string]int64            // the present limits, by setting; nil: none
	LogDropped   func() map[string]int64            // entries of the log, by kind; nil: none is
	Loops        func() (n int, busy time.Duration) // event loops, and about how long all were busy; nil: none
}

// Stats reads the numbers, one after the other.
func (src *Source) Stats() Stats {
	lanes := src.Upstream.Lanes.List()
	s := Stats{
		Version:   src.Version,
		Revision:  src.Revision,
		UUID:      src.UUID,
		Process:   os.Getpid(),
		Uptime:    time.Since(src.Started),
		Memory:    src.Budget.Used(),
		MaxMemory: src.Budget.Limit(),
		Lanes:     len(lanes),
		Moves:     src.Upstream.Moves(),
		Held:      src.Locks.Held(),
		HeldBy:    src.Locks.HeldBy(),
		Waiting:   src.Locks.Waiting(),
	}
	if s.OldestWait = -time.Second; s.Waiting > 0 {
		if began := src.Locks.OldestWait(); !began.IsZero() {
			s.OldestWait = time.Since(began)
		}
	}
	for _, l := range lanes {
		s.LaneCommands += l.Commands
		s.LaneBytes += l.Bytes
	}
	s.Redirections = src.Upstream.Redirections()
	s.Refreshes, s.Views = src.Upstream.Refreshes()
	s.LanesSetAside, s.Reconnects = src.Upstream.Lanes.Counts()
	if src.Loops != nil {
		s.Loops, s.LoopsBusy = src.Loops()
	}
	if src.LogDropped != nil {
		s.LogDropped = src.LogDropped()
	}
	s.CertificateEnds = map[string]int64{}
	if src.Certificates != nil {
		for side, end := range src.Certificates() {
			s.CertificateEnds[side] = end.Unix()
		}
	}
	if src.InForce != nil {
		s.Limits = src.InForce()
	}
	s.outage(src)
	work, logins := src.Upstream.Pins.Status()
	s.PinsOpen, s.PinsIdle, s.PinsReady = work.Open, work.Idle, work.Ready
	s.LoginsOpen, s.LoginsIdle = logins.Open, logins.Idle
	src.Counters.read(&s)
	return s
}

// outage fills in whether Redis is available, and if not why.
func (s *Stats) outage(src *Source) {
	s.UpstreamUp, _ = src.Upstream.Ready()
	if since, err := src.Upstream.Outage(); err != nil {
		s.UpstreamError, s.UpstreamDown = strings.Join(strings.Fields(err.Error()), " "), time.Since(since)
	}
}

// read fills in the numbers that are counted.
func (c *Counters) read(s *Stats) {
	s.Clients = c.Clients.Load()
	s.Accepted = c.Accepted.Load()
	s.Closed = map[string]int64{}
	for why, label := range reasons {
		s.Closed[label] = c.Closed[why].Load()
	}
	s.LocksLeft = c.LocksLeft.Load()
	s.Overloaded = c.Overloaded.Load()
	s.PinReasons = c.PinReasons.Snapshot()
	s.PinWaits = c.PinWaits.Load()
	s.PinTimeouts = c.PinTimeouts.Load()
	s.LoginsFailed = c.LoginsFailed.Load()
	s.WaitsRefused = c.waitRefused.Load()
	s.Waits = map[string]Waits{}
	for _, verb := range []grammar.Verb{grammar.Lock, grammar.TryLock, grammar.FairLock} {
		s.Waits[strings.ToLower(verb.String())] = c.waits[verb].Snapshot()
	}
	s.Commands, s.Bytes = c.Traffic.Snapshot()
	s.ProxyTime = named(c.proxyTime[:], ClassNames[:])
	s.UpstreamTime = named(c.upstreamTime[:], ClassNames[:])
	s.LockErrors = c.errors.Snapshot()
	for _, code := range resp.Codes() {
		s.LockErrors[string(code)] += 0
	}
	s.Queued, s.Holds = named(c.queued[:], queuedNames[:]), named(c.holds[:], lockcmds.HoldEnds[:])
	s.Handovers = named(c.handoverIn[:], []string{"local"})
	s.Renewals = map[string]int64{
		"done": c.renewed.Load() - c.renewedLate.Load(), "late": c.renewedLate.Load(),
		"failed": c.renewFailed.Load(), "gone": c.renewGone.Load(),
	}
	s.RenewalMargin = c.margin.Value(time.Now())
	s.HandedOver = c.handovers.Load()
	s.Attempts = c.attempts.Load()
	s.Lost = c.lost.Snapshot()
	for _, reason := range lockcmds.LossReasons() {
		s.Lost[reason] += 0 // a reason is shown before its first loss
	}
	s.Lost[clientGone] = int64(s.Holds[clientGone].Count)
	s.FencesRepaired = c.repaired.Load()
	s.Reentries = c.reentered.Load()
}

// clientGone is the label of locks that no client has any more, because it has hung up.
var clientGone = lockcmds.ByDisconnect.String()

// Losses are the locks that were lost by clients that are there, but for those whose fixed lease has run out.
func (s *Stats) Losses() int64 {
	return s.toldLosses() - s.Lost[lockcmds.ByExpiry.String()] // a fixed lease that ends has done its work
}

// toldLosses are the losses of which clients were told.
func (s *Stats) toldLosses() int64 { return Total(s.Lost) - s.Lost[clientGone] }

// named is a snapshot of each histogram, by its name.
func named(all []Histogram, names []string) map[string]Waits {
	out := make(map[string]Waits, len(all))
	for i := range all {
		out[names[i]] = all[i].Snapshot()
	}
	return out
}
