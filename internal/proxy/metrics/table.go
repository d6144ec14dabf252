package metrics

import (
	"runtime"
	"strings"
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
	Waits   func(*Stats) map[string]Waits
	Values  func(*Stats) []string // /metrics shows 1 with these values of the labels
}

// IsCounter reports whether a metric grows until the process ends. Its name says so.
func (r *Row) IsCounter() bool { return strings.HasSuffix(r.Metric, "_total") }

const (
	closedHelp   = "Client connections closed by the proxy, by reason."
	refusedHelp  = "Commands that were not sent to Redis, by error code."
	commandsHelp = "Commands of clients, by class: shared (on a lane), pinned (on a connection of the " +
		"client's own), local (answered by the proxy), lock."
	pinsHelp   = "Connections to Redis that serve one client at a time, by state: used or idle."
	loginsHelp = "Connections to Redis on which it checks logins."
)

// Table has every number that the proxy shows, in the order of INFO lockproxy.
var Table = []Row{
	{
		Info: "lockproxy_version", Metric: "build_info",
		Help:   "1, with the versions as labels.",
		Label:  "version,revision,goversion",
		Values: func(s *Stats) []string { return []string{s.Version, s.Revision, runtime.Version()} },
		Text:   func(s *Stats) string { return s.Version },
	},
	{
		Info: "lockproxy_uuid", Help: "The proxy's part in the names of owners.",
		Text: func(s *Stats) string { return s.UUID },
	},
	{
		Info: "process_id", Help: "Process ID.",
		Number: func(s *Stats) int64 { return int64(s.Process) },
	},
	{
		Info: "uptime_in_seconds", Help: "Seconds since the start.",
		Number: func(s *Stats) int64 { return int64(s.Uptime.Seconds()) },
	},
	{
		Info: "upstream", Metric: "upstream_up", Outage: true,
		Help: "1 (up) if Redis was reachable at the last contact, else 0 (down).",
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
		Info: "upstream_error", Outage: true, Help: "Why Redis was not reachable at the last contact.",
		Text: func(s *Stats) string { return s.UpstreamError },
	},
	{
		Info: "upstream_down_seconds", Outage: true, Help: "Seconds for which Redis has not been reachable.",
		Number: func(s *Stats) int64 { return int64(s.UpstreamDown.Seconds()) },
	},
	{
		Info: "certificates_not_after", Metric: "certificate_not_after_timestamp_seconds", Label: "side",
		Help:    "When the proxy's certificates expire, in seconds since 1970, by side: clients, upstream, sentinels.",
		ByLabel: func(s *Stats) map[string]int64 { return s.CertificateEnds },
	},
	{
		Info: "connected_clients", Metric: "clients", Help: "Open client connections.",
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
		Help:   "Times that a lane stood still and its clients moved to another one.",
		Number: func(s *Stats) int64 { return s.LanesSetAside },
	},
	{
		Info: "upstream_moves", Metric: "upstream_moves_total",
		Help:   "Changes of the primary, behind Sentinels.",
		Number: func(s *Stats) int64 { return s.Moves },
	},
	{
		Info: "cluster_redirections", Metric: "cluster_redirections_total", Label: "reason",
		Help: "Commands that a cluster node refused, by reason: moved, ask, later (TRYAGAIN, CLUSTERDOWN, " +
			"LOADING). They are sent again.",
		ByLabel: func(s *Stats) map[string]int64 { return s.Redirections },
	},
	{
		Info: "cluster_refreshes", Metric: "cluster_refreshes_total",
		Help:   "Questions about the slots of a cluster.",
		Number: func(s *Stats) int64 { return s.Refreshes },
	},
	{
		Info: "cluster_changes", Metric: "cluster_changes_total",
		Help:   "Changes of a cluster that the proxy has found.",
		Number: func(s *Stats) int64 { return s.Views },
	},
	{
		Info: "commands_by_class", Metric: "commands_total", Label: "class", Help: commandsHelp,
		ByLabel: func(s *Stats) map[string]int64 { return s.Commands },
	},
	{
		Info: "command_bytes_by_class", Metric: "command_bytes_total", Label: "class",
		Help:    "Bytes of commands of clients, by class.",
		ByLabel: func(s *Stats) map[string]int64 { return s.Bytes },
	},
	{
		Metric: "command_proxy_seconds", Label: "class",
		Help: "Time that commands spend in the proxy, there and back. Samples one of 64 commands, and one each " +
			"quarter of a second.",
		Waits: func(s *Stats) map[string]Waits { return s.ProxyTime },
	},
	{
		Metric: "command_upstream_seconds", Label: "class",
		Help:  "Time that the sampled commands spend at Redis. A pinned command may wait there, like BLPOP.",
		Waits: func(s *Stats) map[string]Waits { return s.UpstreamTime },
	},
	{
		Info: "lane_commands", Metric: "lane_commands", Help: "Unanswered commands on all lanes.",
		Number: func(s *Stats) int64 { return s.LaneCommands },
	},
	{
		Info: "lane_bytes", Metric: "lane_bytes",
		Help:   "Bytes that lanes have not written to Redis.",
		Number: func(s *Stats) int64 { return s.LaneBytes },
	},
	{
		Info: "lanes_lost", Metric: "lanes_lost_total", Help: "Lost connections of lanes.",
		Number: func(s *Stats) int64 { return s.Reconnects },
	},
	{
		Info: "loops", Metric: "loops", Help: "Event loops.",
		Number: func(s *Stats) int64 { return int64(s.Loops) },
	},
	{
		Info: "loop_busy_ms", Metric: "loop_busy_seconds_total", Scale: 0.001,
		Help:   "Estimated busy time of all event loops together.",
		Number: func(s *Stats) int64 { return s.LoopsBusy.Milliseconds() },
	},
	{
		Metric: "limit", Label: "setting", Help: "The limits in force, by setting.",
		ByLabel: func(s *Stats) map[string]int64 { return s.Limits },
	},
	{
		Info: "log_entries_dropped", Metric: "log_entries_dropped_total", Label: "kind",
		Help:    "Dropped log entries, because standard error was not read or written, by kind: audit, ordinary.",
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
		Info: "pin_waits", Metric: "pin_waits_total", Help: "Commands that waited for a pin.",
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
		Number: func(s *Stats) int64 { return s.Overloaded },
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
		Help:   "Locks of clients that the proxy closed because of Redis. They keep the rest of their leases.",
		Number: func(s *Stats) int64 { return s.LocksLeft },
	},
	{
		Info: "clients_memory", Metric: "clients_memory_bytes", Help: "Bytes in the buffers of all clients.",
		Number: func(s *Stats) int64 { return s.Memory },
	},
	{
		Info: "max_memory", Metric: "clients_memory_limit_bytes",
		Help:   "Limit of the bytes in the buffers of all clients.",
		Number: func(s *Stats) int64 { return s.MaxMemory },
	},
	{
		Info: "locks_held", Metric: "locks_held", Label: "mode",
		Help:    "Locks held by clients of this proxy, by mode: exclusive, shared (each holder), limit (each permit).",
		ByLabel: func(s *Stats) map[string]int64 { return s.HeldBy },
		Number:  func(s *Stats) int64 { return int64(s.Held) },
	},
	{
		Info: "lock_waiters", Metric: "lock_waiters", Help: "Clients that wait for locks.",
		Number: func(s *Stats) int64 { return int64(s.Waiting) },
	},
	{
		Info: "lock_oldest_wait_ms", Metric: "lock_oldest_wait_seconds", Scale: 0.001,
		Help:   "Time that the oldest waiter has waited. Negative: there is none.",
		Number: func(s *Stats) int64 { return s.OldestWait.Milliseconds() },
	},
	{
		Metric: "lock_wait_seconds", Label: "verb", Help: "Time from the request to the grant of a lock.",
		Waits: func(s *Stats) map[string]Waits { return s.Waits },
	},
	{
		Info: "lock_waits_refused", Help: "Lock commands refused because of too many waiters.",
		Number: func(s *Stats) int64 { return s.WaitsRefused },
	},
	{
		Info: "lock_attempts", Metric: "lock_attempts_total", Help: "Attempts to acquire for clients that wait.",
		Number: func(s *Stats) int64 { return s.Attempts },
	},
	{
		Info: "lock_handovers", Metric: "lock_handovers_total", Help: "Grants in the same step as a release.",
		Number: func(s *Stats) int64 { return s.HandedOver },
	},
	{
		Info: "lock_reentries_by_connection", Metric: "lock_reentries_by_connection_total",
		Help: "Re-entries without OWNER by a connection that is the owner (lock.reentry): perhaps threads that " +
			"share it.",
		Number: func(s *Stats) int64 { return s.Reentries },
	},
	{
		Info: "hot_locks",
		Help: "The ten locks of the client's user and database for which clients have waited longest in the " +
			"last one to two hours, in milliseconds.",
		Text: func(s *Stats) string { return hotText(s.HotLocks) },
	},
	{
		Metric: "lock_wait_end_seconds", Label: "outcome",
		Help:  "Time in the wait queue, by outcome.",
		Waits: func(s *Stats) map[string]Waits { return s.Queued },
	},
	{
		Metric: "lock_hold_seconds", Label: "end",
		Help: "Time for which a lock was held, by its end: released, lost, expired (PX, EX), client_gone (the " +
			"lease may go on).",
		Waits: func(s *Stats) map[string]Waits { return s.Holds },
	},
	{
		Metric: "lock_handover_seconds", Label: "to",
		Help:  "Time from a release to the grant for a waiter of this proxy.",
		Waits: func(s *Stats) map[string]Waits { return s.Handovers },
	},
	{
		Info: "lock_errors", Metric: "lock_errors_total", Label: "code",
		Help:    "Error answers to lock commands, by code; redis: all of Redis's own.",
		ByLabel: func(s *Stats) map[string]int64 { return s.LockErrors },
	},
	{
		Info: "lock_renewals", Metric: "lock_renewals_total", Label: "outcome",
		Help:    "Renewals: done, done late (less than a third of the lease left), failed, gone.",
		ByLabel: func(s *Stats) map[string]int64 { return s.Renewals },
	},
	{
		Info: "lock_renewal_margin_ms", Metric: "lock_renewal_margin_seconds", Scale: 0.001,
		Help:   "The least time that a lease had left at its renewal, in the last minute or two. Negative: no renewal.",
		Number: func(s *Stats) int64 { return s.RenewalMargin.Milliseconds() },
	},
	{
		Info: "locks_lost", Metric: "locks_lost_total", Label: "reason",
		Help: "Locks lost, by reason: gone, deadline, max_hold, forced. Also expired (PX, EX) and client_gone, " +
			"which INFO does not count.",
		ByLabel: func(s *Stats) map[string]int64 { return s.Lost },
		Number:  (*Stats).toldLosses,
	},
	{
		Info: "fence_counter_repairs", Metric: "fence_repairs_total",
		Help:   "Times that the fence counter was unusable and set to Redis's time.",
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
