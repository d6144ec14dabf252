package status

import (
	"runtime"
	"strings"

	"github.com/lockproxy/lockproxy/internal/metrics"
)

// A Row is one number, or one number for each value of a label, and its names.
type Row struct {
	Info   string // its name in INFO lockproxy; empty: not shown there
	Metric string // its name at /metrics behind "lockproxy_"; empty: not shown there
	Label  string // the label of Metric, or with Values several, with commas; empty: none
	Value  string // the value of Label. Empty with a Label: all that ByLabel, Waits or Values have
	Help   string // the meaning; rows of one metric have the same
	Outage bool   // INFO lockproxy shows it to every client while Redis is away

	// One or two of these read the row.
	Number  func(*Stats) int64
	Scale   float64             // /metrics shows Number times this; 0: Number
	Text    func(*Stats) string // INFO shows it instead of Number or ByLabel
	ByLabel func(*Stats) map[string]int64
	Waits   func(*Stats) map[string]metrics.Waits
	Values  func(*Stats) []string // /metrics shows 1 with these values of the labels
}

// IsCounter reports whether a metric grows until the process ends. Its name says so.
func (r *Row) IsCounter() bool { return strings.HasSuffix(r.Metric, "_total") }

const (
	closedHelp   = "Client connections closed by the proxy, by reason."
	refusedHelp  = "Commands that were not sent to Redis, by error code."
	commandsHelp = "Commands of clients, by class: shared (on a lane), " +
		"pinned (on a connection of the client's own), local (answered by the proxy), lock."
	pinsHelp   = "Connections to Redis that serve one client at a time, by state: used or idle."
	loginsHelp = "Connections to Redis on which it checks logins."
)

// Table has every number that the proxy shows, in the order of INFO lockproxy.
var Table = []Row{
	{
		Info: "lockproxy_version", Metric: "build_info",
		Help:   "1, labelled with the version of the proxy, the revision of its sources and the version of Go.",
		Label:  "version,revision,goversion",
		Values: func(s *Stats) []string { return []string{s.Version, s.Revision, runtime.Version()} },
		Text:   func(s *Stats) string { return s.Version },
	},
	{
		Info: "lockproxy_uuid", Help: "The proxy's part in the names of default owners.",
		Text: func(s *Stats) string { return s.UUID },
	},
	{
		Info: "process_id", Help: "The process, as the system numbers it.",
		Number: func(s *Stats) int64 { return int64(s.Process) },
	},
	{
		Info: "uptime_in_seconds", Help: "Seconds since the start.",
		Number: func(s *Stats) int64 { return int64(s.Uptime.Seconds()) },
	},
	{
		Info: "upstream", Metric: "upstream_up", Outage: true, Help: "1 (up) if Redis was reachable at the last contact, else 0 (down).",
		Number: func(s *Stats) int64 {
			if s.UpstreamUp {
				return 1
			}
			return 0
		},
		Text: func(s *Stats) string {
			if s.UpstreamUp {
				return "up"
			}
			return "down"
		},
	},
	{
		Info: "upstream_error", Outage: true, Help: "Why Redis was not reachable at the last contact; empty: it was.",
		Text: func(s *Stats) string { return s.UpstreamError },
	},
	{
		Info: "upstream_down_seconds", Outage: true, Help: "Seconds since Redis has not been reachable; 0: it is.",
		Number: func(s *Stats) int64 { return int64(s.UpstreamDown.Seconds()) },
	},
	{
		Info: "certificates_not_after", Metric: "certificate_not_after_timestamp_seconds", Label: "side",
		Help: "When the proxy's certificates expire, in seconds since 1970, by side: clients, upstream, sentinels. " +
			"A side without a certificate is left out.",
		ByLabel: func(s *Stats) map[string]int64 { return s.CertificateEnds },
	},
	{
		Info: "connected_clients", Metric: "clients", Help: "Client connections that are open.",
		Number: func(s *Stats) int64 { return s.Clients },
	},
	{
		Info: "total_connections_received", Metric: "connections_total", Help: "Client connections accepted.",
		Number: func(s *Stats) int64 { return s.Accepted },
	},
	closed("rejected_connections", "max_clients"),
	{
		Info: "lanes", Metric: "lanes", Help: "Connections to Redis that clients share.",
		Number: func(s *Stats) int64 { return int64(s.Lanes) },
	},
	{
		Info: "lanes_set_aside", Metric: "lanes_set_aside_total",
		Help:   "Times that a lane stood still and its clients continued on another lane.",
		Number: func(s *Stats) int64 { return s.LanesSetAside },
	},
	{
		Info: "upstream_moves", Metric: "upstream_moves_total",
		Help:   "Times that the primary has moved to another address, behind Sentinels.",
		Number: func(s *Stats) int64 { return s.Moves },
	},
	{
		Info: "cluster_redirections", Metric: "cluster_redirections_total", Label: "reason",
		Help: "Commands that a cluster node redirected to another node, or refused for now, by reason: " +
			"moved, ask, later (TRYAGAIN, CLUSTERDOWN, LOADING). They are sent again.",
		ByLabel: func(s *Stats) map[string]int64 { return s.Redirections },
	},
	{
		Info: "cluster_refreshes", Metric: "cluster_refreshes_total",
		Help:   "Questions about the servers and slots of a cluster.",
		Number: func(s *Stats) int64 { return s.Refreshes },
	},
	{
		Info: "cluster_changes", Metric: "cluster_changes_total",
		Help:   "Changes of the servers or slots of a cluster that the proxy has found.",
		Number: func(s *Stats) int64 { return s.Views },
	},
	{
		Info: "commands_by_class", Metric: "commands_total", Label: "class", Help: commandsHelp,
		ByLabel: func(s *Stats) map[string]int64 { return s.Commands },
	},
	{
		Info: "command_bytes_by_class", Metric: "command_bytes_total", Label: "class",
		Help:    "Bytes of commands from clients, by class as in commands_total.",
		ByLabel: func(s *Stats) map[string]int64 { return s.Bytes },
	},
	{
		Metric: "command_proxy_seconds", Label: "class",
		Help: "Time of commands in the proxy, by class, to Redis's socket and back to the client's. " +
			"One command of 64 is measured, and one in each quarter of a second.",
		Waits: func(s *Stats) map[string]metrics.Waits { return s.ProxyTime },
	},
	{
		Metric: "command_upstream_seconds", Label: "class",
		Help: "Time from the socket to Redis until the reply, of the measured commands that were sent there. " +
			"Of a pinned command it may be a wait in Redis, as of BLPOP.",
		Waits: func(s *Stats) map[string]metrics.Waits { return s.UpstreamTime },
	},
	{
		Info: "lane_commands", Metric: "lane_commands", Help: "Commands without an answer, on all lanes together.",
		Number: func(s *Stats) int64 { return s.LaneCommands },
	},
	{
		Info: "lane_bytes", Metric: "lane_bytes",
		Help:   "Bytes of commands that lanes have not written to Redis, on all lanes together.",
		Number: func(s *Stats) int64 { return s.LaneBytes },
	},
	{
		Info: "lanes_lost", Metric: "lanes_lost_total", Help: "Connections to Redis that lanes have lost, and made anew.",
		Number: func(s *Stats) int64 { return s.Reconnects },
	},
	{
		Info: "loops", Metric: "loops", Help: "Event loops.",
		Number: func(s *Stats) int64 { return int64(s.Loops) },
	},
	{
		Info: "loop_busy_ms", Metric: "loop_busy_seconds_total", Scale: 0.001,
		Help: "Time for which event loops were busy, of all together, estimated. " +
			"Per second and loop it is their share of busy time.",
		Number: func(s *Stats) int64 { return s.LoopsBusy.Milliseconds() },
	},
	{
		Metric: "limit", Label: "setting", Help: "The limits in force, by setting.",
		ByLabel: func(s *Stats) map[string]int64 { return s.Limits },
	},
	{
		Info: "log_entries_dropped", Metric: "log_entries_dropped_total", Label: "kind",
		Help: "Entries of the log that were dropped, because standard error was not read or could not be written, " +
			"by kind: audit (the level), ordinary.",
		ByLabel: func(s *Stats) map[string]int64 { return s.LogDropped },
	},
	{
		Info: "pins_open", Help: pinsHelp,
		Number: func(s *Stats) int64 { return int64(s.PinsOpen) },
	},
	{
		Metric: "pins", Label: "state", Value: "used", Help: pinsHelp,
		Number: func(s *Stats) int64 { return int64(s.PinsOpen - s.PinsIdle) },
	},
	{
		Info: "pins_idle", Metric: "pins", Label: "state", Value: "idle", Help: pinsHelp,
		Number: func(s *Stats) int64 { return int64(s.PinsIdle) },
	},
	{
		Info: "pins_ready", Help: "Idle pins on which a command is sent at once.",
		Number: func(s *Stats) int64 { return int64(s.PinsReady) },
	},
	{
		Info: "logins_open", Help: loginsHelp,
		Number: func(s *Stats) int64 { return int64(s.LoginsOpen) },
	},
	{
		Metric: "login_connections", Label: "state", Value: "used", Help: loginsHelp,
		Number: func(s *Stats) int64 { return int64(s.LoginsOpen - s.LoginsIdle) },
	},
	{
		Info: "logins_idle", Metric: "login_connections", Label: "state", Value: "idle", Help: loginsHelp,
		Number: func(s *Stats) int64 { return int64(s.LoginsIdle) },
	},
	{
		Info: "pins_by_reason", Metric: "pins_by_command", Label: "command",
		Help:    "Pins in use, by the command that made each necessary.",
		ByLabel: func(s *Stats) map[string]int64 { return s.PinReasons },
	},
	{
		Info: "pin_waits", Metric: "pin_waits_total", Help: "Commands that had to wait for a pin.",
		Number: func(s *Stats) int64 { return s.PinWaits },
	},
	{
		Info: "pin_timeouts", Metric: "pin_timeouts_total", Help: "Commands that waited for a pin and were refused.",
		Number: func(s *Stats) int64 { return s.PinTimeouts },
	},
	{
		Info: "logins_failed", Metric: "logins_failed_total", Help: "Logins that Redis refused.",
		Number: func(s *Stats) int64 { return s.LoginsFailed },
	},
	{
		Metric: "commands_refused_total", Label: "code", Value: "OVERLOADED", Help: refusedHelp,
		Number: func(s *Stats) int64 { return s.Refused["OVERLOADED"] },
	},
	closed("clients_closed_no_handshake", "handshake"),
	closed("clients_closed_protocol_error", "protocol_error"),
	closed("clients_closed_query_limit", "query_limit"),
	closed("clients_closed_output_limit", "output_limit"),
	closed("clients_closed_pubsub_limit", "pubsub_limit"),
	closed("clients_closed_slow_command", "slow_command"),
	closed("clients_closed_memory_limit", "memory_limit"),
	closed("clients_closed_upstream", "upstream"),
	{
		Info: "locks_left", Metric: "locks_left_total",
		Help: "Locks of clients that were closed because Redis could not be reached, or its answer was lost: " +
			"they keep the rest of their leases.",
		Number: func(s *Stats) int64 { return s.LocksLeft },
	},
	{
		Info: "clients_memory", Metric: "clients_memory_bytes", Help: "Bytes in the buffers of all clients together.",
		Number: func(s *Stats) int64 { return s.Memory },
	},
	{
		Info: "max_memory", Metric: "clients_memory_limit_bytes",
		Help:   "The limit of the bytes in the buffers of all clients together.",
		Number: func(s *Stats) int64 { return s.MaxMemory },
	},
	{
		Info: "locks_held", Metric: "locks_held", Label: "mode",
		Help: "Locks held by clients of this proxy, by mode: " +
			"exclusive, shared, where each holder counts, or limit, where each permit does.",
		ByLabel: func(s *Stats) map[string]int64 { return s.HeldBy },
		Number:  func(s *Stats) int64 { return int64(s.Held) },
	},
	{
		Info: "lock_waiters", Metric: "lock_waiters", Help: "Clients that wait for locks.",
		Number: func(s *Stats) int64 { return int64(s.Waiting) },
	},
	{
		Info: "lock_oldest_wait_ms", Metric: "lock_oldest_wait_seconds", Scale: 0.001,
		Help:   "Time that the oldest waiter for a lock has waited. Negative: no client waits.",
		Number: func(s *Stats) int64 { return s.OldestWait.Milliseconds() },
	},
	{
		Metric: "lock_wait_seconds", Label: "verb", Help: "Time from the request to the grant, of locks that were granted.",
		Waits: func(s *Stats) map[string]metrics.Waits { return s.Waits },
	},
	{
		Info: "lock_waits_refused", Help: "Lock commands that found too many waiters, in total or of their lock.",
		Number: func(s *Stats) int64 { return s.WaitsRefused },
	},
	{
		Info: "lock_attempts", Metric: "lock_attempts_total", Help: "Attempts to acquire on behalf of clients that wait.",
		Number: func(s *Stats) int64 { return s.Attempts },
	},
	{
		Info: "lock_handovers", Metric: "lock_handovers_total", Help: "Grants in the same step as a release.",
		Number: func(s *Stats) int64 { return s.HandedOver },
	},
	{
		Info: "lock_reentries_by_connection", Metric: "lock_reentries_by_connection_total",
		Help: "Acquires by a connection that held the lock already and is its owner (lock.reentry), without OWNER: " +
			"re-entries, or threads that share a connection.",
		Number: func(s *Stats) int64 { return s.Reentries },
	},
	{
		Info: "hot_locks",
		Help: "The ten locks of the client's user and database for which clients have waited longest, all their waits " +
			"of the last one to two hours together, in milliseconds. The status page has those of all users.",
		Text: func(s *Stats) string { return hotText(s.HotLocks) },
	},
	{
		Metric: "lock_wait_end_seconds", Label: "outcome",
		Help:  "Time in the wait queue of a lock, by outcome, of lock commands that had to wait.",
		Waits: func(s *Stats) map[string]metrics.Waits { return s.Queued },
	},
	{
		Metric: "lock_hold_seconds", Label: "end",
		Help: "Time for which a lock was held, from the command that acquired it, by its end: " +
			"released, lost, expired (its PX or EX has ended), " +
			"client_gone (its client has hung up; the lease may go on).",
		Waits: func(s *Stats) map[string]metrics.Waits { return s.Holds },
	},
	{
		Metric: "lock_handover_seconds", Label: "to",
		Help:  "Time from sending a release to the answer that grants the lock to a waiter of this proxy.",
		Waits: func(s *Stats) map[string]metrics.Waits { return s.Handovers },
	},
	{
		Info: "lock_errors", Metric: "lock_errors_total", Label: "code",
		Help:    "Error answers to lock commands, by code of the proxy; redis: all of Redis's own.",
		ByLabel: func(s *Stats) map[string]int64 { return s.LockErrors },
	},
	{
		Info: "lock_renewals", Metric: "lock_renewals_total", Label: "outcome",
		Help: "Renewals of leases: done, done late (with less than a third of the lease left), failed attempts, " +
			"and locks that were gone.",
		ByLabel: func(s *Stats) map[string]int64 { return s.Renewals },
	},
	{
		Info: "lock_renewal_margin_ms", Metric: "lock_renewal_margin_seconds", Scale: 0.001,
		Help: "The least time that a lease had left when its renewal was answered, of the last minute or two. " +
			"Negative (-1 s): there was no renewal.",
		Number: func(s *Stats) int64 { return s.RenewalMargin.Milliseconds() },
	},
	{
		Info: "locks_lost", Metric: "locks_lost_total", Label: "reason",
		Help: "Locks lost by clients of this proxy, by reason: gone, deadline, max_hold and forced are losses; " +
			"expired: a fixed lease (PX, EX) has ended; " +
			"client_gone: the client has hung up while it held the lock, which INFO does not count.",
		ByLabel: func(s *Stats) map[string]int64 { return s.Lost },
		Number:  (*Stats).toldLosses,
	},
	{
		Info: "fence_counter_repairs", Metric: "fence_repairs_total",
		Help:   "Times that the fence counter held no possible fence and was set to Redis's time.",
		Number: func(s *Stats) int64 { return s.FencesRepaired },
	},
	closed("session_panics", "panic"),
}

// closed is the row of one reason to close clients.
func closed(info, reason string) Row {
	return Row{
		Info: info, Metric: "clients_closed_total", Label: "reason", Value: reason, Help: closedHelp,
		Number: func(s *Stats) int64 { return s.Closed[reason] },
	}
}
