package proxy

import (
	"os"
	"strconv"
	"strings"
	"time"

	"lockproxy/internal/resp"
)

// info is the section lockproxy of INFO, in Redis's shape for that version of the protocol.
func (e *env) info(proto int) []byte {
	var b strings.Builder
	text := func(name, v string) { b.WriteString(name + ":" + v + "\r\n") }
	number := func(name string, v int64) { text(name, strconv.FormatInt(v, 10)) }

	b.WriteString("# Lockproxy\r\n")
	text("lockproxy_version", e.opts.Version)
	text("lockproxy_uuid", e.opts.uuid)
	number("process_id", int64(os.Getpid()))
	number("uptime_in_seconds", int64(time.Since(e.started).Seconds()))
	up := "up"
	if ready, _ := e.upstream.Ready(); !ready {
		up = "down"
	}
	text("upstream", up)
	number("connected_clients", e.stats.clients.Load())
	number("total_connections_received", e.stats.accepted.Load())
	number("rejected_connections", e.stats.rejected.Load())
	work, logins := e.upstream.Pins()
	number("lanes_set_aside", e.upstream.SetAside())
	number("pins_open", int64(work.Open))
	number("pins_idle", int64(work.Idle))
	number("pins_ready", int64(work.Ready))
	number("logins_open", int64(logins.Open))
	number("logins_idle", int64(logins.Idle))
	text("pins_by_reason", e.stats.pinReasons.String())
	number("pin_waits", e.stats.pinWaits.Load())
	number("pin_timeouts", e.stats.pinTimeouts.Load())
	number("logins_failed", e.stats.loginsFailed.Load())
	number("commands_refused_no_upstream", e.stats.refused.Load())
	number("clients_closed_no_handshake", e.stats.handshakes.Load())
	number("clients_closed_no_first_command", e.stats.firstTimeouts.Load())
	number("clients_closed_protocol_error", e.stats.protocolErrors.Load())
	number("clients_closed_query_limit", e.stats.queryLimit.Load())
	number("clients_closed_output_limit", e.stats.outputLimit.Load())
	number("clients_closed_slow_command", e.stats.slowCommands.Load())
	number("clients_closed_memory_limit", e.stats.memoryLimit.Load())
	number("clients_memory", e.budget.Used())
	number("max_memory", e.budget.Limit())
	number("lock_waits_refused", e.stats.waitRefused.Load())
	number("locks_lost", int64(e.stats.lost.sum()))
	number("fence_counter_repairs", e.stats.repaired.Load())
	number("session_panics", e.stats.panics.Load())

	if proto < 3 {
		return resp.AppendBulk(nil, b.String())
	}
	reply := resp.AppendHeader(nil, '=', len("txt:")+b.Len())
	return append(append(append(reply, "txt:"...), b.String()...), '\r', '\n')
}
