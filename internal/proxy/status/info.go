package status

import (
	"os"
	"strconv"
	"strings"
	"time"

	"lockproxy/internal/resp"
)

// Info is the section lockproxy of INFO, in Redis's shape for that version of the protocol.
func (src *Source) Info(proto int) []byte {
	var b strings.Builder
	text := func(name, v string) { b.WriteString(name + ":" + v + "\r\n") }
	number := func(name string, v int64) { text(name, strconv.FormatInt(v, 10)) }

	b.WriteString("# Lockproxy\r\n")
	text("lockproxy_version", src.Version)
	text("lockproxy_uuid", src.UUID)
	number("process_id", int64(os.Getpid()))
	number("uptime_in_seconds", int64(time.Since(src.Started).Seconds()))
	up := "up"
	if ready, _ := src.Upstream.Ready(); !ready {
		up = "down"
	}
	text("upstream", up)
	number("connected_clients", src.Counters.Clients.Load())
	number("total_connections_received", src.Counters.Accepted.Load())
	number("rejected_connections", src.Counters.Rejected.Load())
	work, logins := src.Upstream.Pins()
	number("lanes_set_aside", src.Upstream.SetAside())
	number("pins_open", int64(work.Open))
	number("pins_idle", int64(work.Idle))
	number("pins_ready", int64(work.Ready))
	number("logins_open", int64(logins.Open))
	number("logins_idle", int64(logins.Idle))
	text("pins_by_reason", src.Counters.PinReasons.String())
	number("pin_waits", src.Counters.PinWaits.Load())
	number("pin_timeouts", src.Counters.PinTimeouts.Load())
	number("logins_failed", src.Counters.LoginsFailed.Load())
	number("commands_refused_no_upstream", src.Counters.Refused.Load())
	number("clients_closed_no_handshake", src.Counters.Handshakes.Load())
	number("clients_closed_no_first_command", src.Counters.FirstTimeouts.Load())
	number("clients_closed_protocol_error", src.Counters.ProtocolErrors.Load())
	number("clients_closed_query_limit", src.Counters.QueryLimit.Load())
	number("clients_closed_output_limit", src.Counters.OutputLimit.Load())
	number("clients_closed_slow_command", src.Counters.SlowCommands.Load())
	number("clients_closed_memory_limit", src.Counters.MemoryLimit.Load())
	number("clients_memory", src.Memory.Used())
	number("max_memory", src.Memory.Limit())
	number("lock_waits_refused", src.Counters.waitRefused.Load())
	number("locks_lost", int64(src.Counters.lost.sum()))
	number("fence_counter_repairs", src.Counters.repaired.Load())
	number("session_panics", src.Counters.Panics.Load())

	if proto < 3 {
		return resp.AppendBulk(nil, b.String())
	}
	reply := resp.AppendHeader(nil, '=', len("txt:")+b.Len())
	return append(append(append(reply, "txt:"...), b.String()...), '\r', '\n')
}
